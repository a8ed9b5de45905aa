//! Summary of the demo: effect of spilling, cost of distance, effect of the outage.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde::Serialize;
use spillway_harness::quantile;

use crate::demo::control::Control;
use crate::demo::region::DemoRegion;
use crate::demo::sample::{Counts, FirstTokens, Sample, SampleEnd};
use crate::demo::shared_limit::SharedLimit;
use crate::demo::snapshot::whole;
use crate::demo::stage::{Loss, StageOutcome};
use crate::demo::survival::Survival;

/// Region that gets more requests than it can serve.
const BUSY: DemoRegion = DemoRegion::UsEast;
/// Length of the longest bar of the summary, in characters.
const BAR_CELLS: f64 = 42.0;
/// Lag in milliseconds above which figures reflect this machine more than the regions.
const LAG_MAX_MS: f64 = 25.0;
/// Lag in milliseconds above which requests run into time limits because of the machine, so that
/// lost requests prove nothing.
const LAG_HOPELESS_MS: f64 = 1_000.0;

/// Results of the demo.
#[derive(Debug, Serialize)]
pub(crate) struct DemoReport {
    /// Time from the first start to the end.
    seconds: f64,
    without_spill: DemoPhase,
    with_spill: DemoPhase,
    /// The 95th percentile of time to first token without spilling, divided by that with it.
    p95_times_better: Option<f64>,
    /// Time to first token of clients of the busy region, by the region that served them.
    delay: Vec<Delay>,
    #[serde(flatten)]
    scenes: Scenes,
    /// Results of the outage; `None` if the demo ended before a region was lost.
    outage: Option<Outage>,
    /// Delay between the due time of requests and their sending, at the 99th percentile.
    lag_p99_ms: f64,
}

/// Results of the scenes beside the load.
#[derive(Debug, Serialize)]
pub(crate) struct Scenes {
    pub(crate) control: Control,
    pub(crate) limit: SharedLimit,
    pub(crate) stream: Survival,
}

/// Results of one phase, as clients saw them.
#[derive(Debug, Serialize)]
struct DemoPhase {
    requests: u64,
    shed: u64,
    failed: u64,
    first_token: Times,
    regions: Vec<RegionPart>,
    /// Requests that another region refused, and requests that were lost in transit to it.
    refused: u64,
    broken: u64,
    /// Percent of prompt tokens that replicas had cached; None without prompts.
    cached_percent: Option<f64>,
}

#[derive(Debug, Serialize)]
struct RegionPart {
    region: &'static str,
    #[serde(flatten)]
    counts: Counts,
    first_token: Times,
}

/// Times to first token.
#[derive(Debug, Serialize)]
struct Times {
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
}

/// Time to first token of clients of the busy region that one region served.
#[derive(Debug, Serialize)]
struct Delay {
    served_by: &'static str,
    rtt_ms: f64,
    streams: usize,
    first_token: Times,
    /// Difference of the median to that of clients served at home.
    more_ms: Option<f64>,
}

/// Results of the loss of a region.
#[derive(Debug, Serialize)]
struct Outage {
    region: &'static str,
    requests: u64,
    shed: u64,
    failed: u64,
    /// Failed requests that were in flight when the region was lost.
    failed_under_way: u64,
    /// Time from the loss until all other regions knew it.
    noticed_ms: Option<f64>,
    /// Time from the loss until no request failed any more and the other regions knew it.
    taken_over_ms: Option<f64>,
    /// Longest time to first token of requests that came before that.
    first_token_max_meanwhile_ms: Option<f64>,
    /// Time to first token of all clients, after that.
    first_token: Times,
    /// Requests by clients of the lost region after the loss. Their times include the path to
    /// another region.
    displaced: u64,
    displaced_first_token: Times,
}

impl DemoReport {
    pub(crate) fn new(
        started: Instant,
        [without, with, outage]: [&StageOutcome; 3],
        scenes: Scenes,
    ) -> Self {
        let (without_spill, with_spill) = (DemoPhase::of(without), DemoPhase::of(with));
        let p95 = |phase: &DemoPhase| phase.first_token.p95_ms;
        let p95_times_better = p95(&without_spill).zip(p95(&with_spill)).map(|(a, b)| a / b);
        let phases = [without, with, outage];
        let samples = phases.iter().flat_map(|phase| &phase.samples);
        let lags_ms = samples.map(|sample| sample.lag.as_secs_f64() * 1e3);
        Self {
            seconds: started.elapsed().as_secs_f64(),
            without_spill,
            with_spill,
            p95_times_better,
            delay: delays(&with.samples),
            scenes,
            outage: outage.loss.map(|loss| Outage::of(&outage.samples, loss)),
            lag_p99_ms: quantile(lags_ms, 0.99).unwrap_or_default(),
        }
    }

    /// Checks properties that hold at any speed of the machine. How much faster spilling makes
    /// replies is left to the reader.
    ///
    /// # Errors
    /// Returns an error if requests were lost or shed without need, or no region noticed the loss.
    pub(crate) fn check(&self) -> Result<()> {
        let DemoPhase { requests, shed, failed, .. } = self.with_spill;
        ensure!(requests > 0 && self.without_spill.requests > 0, "no request was sent");
        if self.lag_p99_ms <= LAG_HOPELESS_MS {
            ensure!(failed == 0, "{failed} requests failed although no region was lost");
            ensure!(shed == 0, "{shed} requests were shed although other regions had room");
        }
        let has_noticed = self.outage.as_ref().is_some_and(|outage| outage.noticed_ms.is_some());
        ensure!(has_noticed, "no region noticed that another one was lost");
        self.scenes.limit.check()?;
        self.scenes.stream.check()
    }

    /// Returns the summary for people: the headline first, no line above 80 columns.
    pub(crate) fn text(&self) -> String {
        let outage = self.outage.as_ref().map(Outage::text).unwrap_or_default();
        let Scenes { control, limit, stream } = &self.scenes;
        // The claims first, then the evidence in the order in which it was shown.
        let parts = [
            self.claims(),
            self.bars(),
            self.table(),
            self.delay_text(),
            control.text(),
            limit.text(),
            outage,
            stream.text(),
        ];
        parts.join("\n") + &self.lag_text()
    }

    /// Returns what spilling did for the region that got too much.
    fn headline(&self) -> String {
        let p95_ms = |phase: &DemoPhase| phase.regions[BUSY.index()].first_token.p95_ms;
        let [without, with] = self.phases().map(p95_ms);
        let (region, alone, spilling) = (BUSY.name(), whole(without), whole(with));
        let mut text =
            format!("{region} first token p95: {alone} ms alone, {spilling} ms spilling");
        if let Some((without, with)) = without.zip(with).filter(|&(_, with)| with > 0.0) {
            text += &format!(", {:.1} x", without / with);
        }
        text
    }

    /// Returns a line for each claim of the README.
    fn claims(&self) -> String {
        let cached = |phase: &DemoPhase| whole(phase.cached_percent);
        let [without, with] = self.phases().map(cached);
        let caches =
            format!("{with} % of prompt tokens were cached where requests went; {without} % alone");
        let Scenes { limit, stream, .. } = &self.scenes;
        [
            ("spill", self.headline()),
            ("caches", caches),
            ("limit", limit.headline()),
            ("stream", stream.headline()),
        ]
        .map(|(name, line)| format!("{name:<8}{line}.\n"))
        .concat()
    }

    /// Returns a bar for the 95th percentile of each region and phase.
    fn bars(&self) -> String {
        let p95_ms = |phase: &DemoPhase, region: DemoRegion| {
            phase.regions[region.index()].first_token.p95_ms
        };
        let all =
            DemoRegion::ALL.into_iter().flat_map(|r| self.phases().map(|phase| p95_ms(phase, r)));
        let most = all.flatten().fold(1.0, f64::max);
        let mut text = String::new();
        for region in DemoRegion::ALL {
            for (name, phase) in ["alone", "spilling"].into_iter().zip(self.phases()) {
                let Some(ms) = p95_ms(phase, region) else { continue };
                let label = if name == "alone" { region.name() } else { "" };
                let cells = (ms / most * BAR_CELLS).round().max(1.0) as usize;
                text += &format!("  {label:<15} {name:<8} {ms:>6.0} ms {}\n", "█".repeat(cells));
            }
        }
        text
    }

    fn table(&self) -> String {
        let mut text = format!("{:<36} {:>14} {:>14}\n", "", "alone", "with spilling");
        let mut row = |name: &str, cell: &dyn Fn(&DemoPhase) -> String| {
            let [without, with] = self.phases().map(cell);
            text += &format!("{name:<36} {without:>14} {with:>14}\n");
        };
        row("requests", &|phase| phase.requests.to_string());
        row("shed", &|phase| phase.shed.to_string());
        row("failed", &|phase| phase.failed.to_string());
        row("served by another region", &|phase| {
            phase.regions.iter().map(|part| part.counts.spilled_out).sum::<u64>().to_string()
        });
        row("  rejected there", &|phase| phase.refused.to_string());
        row("  lost on the way", &|phase| phase.broken.to_string());
        row("prompt tokens cached, %", &|phase| whole(phase.cached_percent));
        row("first token p50, all clients, ms", &|phase| whole(phase.first_token.p50_ms));
        row("first token p95, all clients, ms", &|phase| whole(phase.first_token.p95_ms));
        text
    }

    fn phases(&self) -> [&DemoPhase; 2] {
        [&self.without_spill, &self.with_spill]
    }

    fn delay_text(&self) -> String {
        let mut text = format!("Clients of {} with spilling, by who served them:\n", BUSY.name());
        for Delay { served_by, rtt_ms, streams, first_token, more_ms } in &self.delay {
            let p50 = whole(first_token.p50_ms);
            text += &format!("  {served_by:<15} {streams:>5} streams, first token p50 {p50} ms");
            if let Some(more_ms) = more_ms.filter(|_| *rtt_ms > 0.0) {
                text += &format!(": {more_ms:.0} more, the way takes {rtt_ms:.0}");
            }
            text.push('\n');
        }
        text
    }

    fn lag_text(&self) -> String {
        if self.lag_p99_ms <= LAG_MAX_MS {
            return String::new();
        }
        format!(
            "\nThis machine was too busy: one request in a hundred was sent {:.0} ms late.\n\
             {} would give truer figures.\n",
            self.lag_p99_ms,
            // Cargo's profile dev has them, those that are released do not.
            if cfg!(debug_assertions) {
                "An optimised build, or fewer other programs,"
            } else {
                "Fewer other programs"
            },
        )
    }
}

impl DemoPhase {
    fn of(outcome: &StageOutcome) -> Self {
        let StageOutcome { samples, figures, .. } = outcome;
        let Counts { requests, shed, failed, .. } = Counts::of(samples.iter());
        let part = |region: DemoRegion| {
            let own = || samples.iter().filter(move |sample| sample.door == region);
            RegionPart {
                region: region.name(),
                counts: Counts {
                    spilled_in: samples.iter().filter(|s| s.guest_of() == Some(region)).count()
                        as u64,
                    ..Counts::of(own())
                },
                first_token: Times::of(own()),
            }
        };
        let cached: u64 = figures.iter().map(|figures| figures.cached_tokens).sum();
        let asked: u64 = figures.iter().map(|figures| figures.prompt_tokens).sum();
        Self {
            requests,
            shed,
            failed,
            first_token: Times::of(samples.iter()),
            regions: DemoRegion::ALL.map(part).into(),
            refused: figures.iter().map(|figures| figures.refused).sum(),
            broken: figures.iter().map(|figures| figures.broken).sum(),
            cached_percent: (asked > 0).then(|| cached as f64 * 100.0 / asked as f64),
        }
    }
}

impl Times {
    fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Self {
        let times = FirstTokens::of(samples);
        Self { p50_ms: times.quantile_ms(0.5), p95_ms: times.quantile_ms(0.95) }
    }
}

/// Returns the times to first token of clients of the busy region, by the region that served them.
fn delays(samples: &[Sample]) -> Vec<Delay> {
    let busy = || samples.iter().filter(|sample| sample.door == BUSY);
    let by = |region: DemoRegion| {
        FirstTokens::of(busy().filter(|s| s.guest_of().unwrap_or(BUSY) == region))
    };
    let home_ms = by(BUSY).quantile_ms(0.5);
    let delay = |region: DemoRegion| {
        let times = by(region);
        let p50_ms = times.quantile_ms(0.5);
        Delay {
            served_by: region.name(),
            rtt_ms: BUSY.rtt_to(region).as_secs_f64() * 1e3,
            streams: times.count(),
            more_ms: p50_ms.zip(home_ms).map(|(there, home)| there - home),
            first_token: Times { p50_ms, p95_ms: times.quantile_ms(0.95) },
        }
    };
    BUSY.nearest().into_iter().map(delay).collect()
}

impl Outage {
    fn of(samples: &[Sample], Loss { region, at, noticed }: Loss) -> Self {
        let Counts { requests, shed, failed, .. } = Counts::of(samples.iter());
        let has_failed = |sample: &&Sample| sample.end == SampleEnd::Failed;
        let failures = || samples.iter().filter(has_failed);
        let after_ms = |moment: Instant| moment.saturating_duration_since(at).as_secs_f64() * 1e3;
        let last_failed = failures().map(|sample| sample.due).max();
        let taken_over = noticed.map(|noticed| last_failed.map_or(noticed, |due| due.max(noticed)));
        let meanwhile =
            samples.iter().filter(|s| s.due >= at && taken_over.is_none_or(|over| s.due < over));
        let calm = || samples.iter().filter(|s| taken_over.is_some_and(|over| s.due >= over));
        let displaced = || samples.iter().filter(|s| s.home == region && s.due >= at);
        Self {
            region: region.name(),
            requests,
            shed,
            failed,
            failed_under_way: failures().filter(|sample| sample.due < at).count() as u64,
            noticed_ms: noticed.map(after_ms),
            taken_over_ms: taken_over.map(after_ms),
            first_token_max_meanwhile_ms: FirstTokens::of(meanwhile).quantile_ms(1.0),
            first_token: Times::of(calm()),
            displaced: displaced().count() as u64,
            displaced_first_token: Times::of(displaced()),
        }
    }

    fn text(&self) -> String {
        let Self { region, requests, shed, failed, failed_under_way, displaced, .. } = self;
        let Times { p50_ms, p95_ms } = self.displaced_first_token;
        format!(
            "{region} was lost. Of {requests} requests in that phase {failed} failed; {failed_under_way} of \
             them\nwere in flight through its own node, which only a retry helps. {shed} were shed.\n\
             \x20 noticed after {:>5} ms; taken over after {} ms\n\
             \x20 first token of requests meanwhile: {} ms at most; then p50 {}, p95 {} ms\n\
             \x20 {displaced} requests of its clients, served elsewhere: p50 {}, p95 {} ms\n",
            whole(self.noticed_ms),
            whole(self.taken_over_ms),
            whole(self.first_token_max_meanwhile_ms),
            whole(self.first_token.p50_ms),
            whole(self.first_token.p95_ms),
            whole(p50_ms),
            whole(p95_ms),
        )
    }
}

#[cfg(test)]
#[path = "report_test.rs"]
mod report_test;
