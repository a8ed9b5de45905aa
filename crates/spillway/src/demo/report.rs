//! Summary of the demo: effect of spilling, cost of distance, effect of the outage.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde::Serialize;
use spillway_harness::quantile;

use crate::demo::control::Control;
use crate::demo::region::DemoRegion;
use crate::demo::sample::{Counts, FirstTokens, Sample, SampleEnd};
use crate::demo::stage::{Loss, StageOutcome};
use crate::demo::table::whole;

/// Region that gets more requests than it can serve.
const BUSY: DemoRegion = DemoRegion::UsEast;
/// Lag in milliseconds above which figures say more about this machine than about the regions.
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
    control: Control,
    /// Results of the outage; `None` if the demo ended before a region was lost.
    outage: Option<Outage>,
    /// Delay between the due time of requests and their sending, at the 99th percentile.
    lag_p99_ms: f64,
}

/// Results of one phase, as clients saw them.
#[derive(Debug, Serialize)]
struct DemoPhase {
    requests: u64,
    shed: u64,
    failed: u64,
    first_token: Times,
    regions: Vec<RegionPart>,
    /// Requests that another region refused, and requests that were lost on the way there.
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
    /// Requests by clients of the lost region after the loss. Their times include the way to
    /// another region.
    displaced: u64,
    displaced_first_token: Times,
}

impl DemoReport {
    pub(crate) fn new(
        started: Instant,
        [without, with, outage]: [&StageOutcome; 3],
        control: Control,
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
            control,
            outage: outage.loss.map(|loss| Outage::of(&outage.samples, loss)),
            lag_p99_ms: quantile(lags_ms, 0.99).unwrap_or_default(),
        }
    }

    /// Checks properties that hold at any speed of the machine. How much faster replies are with
    /// spilling is for the reader to judge.
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
        ensure!(has_noticed, "nobody noticed that a region was lost");
        Ok(())
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("\n{:<34} {:>14} {:>14}\n", "", "without spill", "with spill");
        let (without, with) = (&self.without_spill, &self.with_spill);
        let mut row = |name: &str, cell: &dyn Fn(&DemoPhase) -> String| {
            text += &format!("{name:<34} {:>14} {:>14}\n", cell(without), cell(with));
        };
        row("requests", &|phase| phase.requests.to_string());
        row("shed", &|phase| phase.shed.to_string());
        row("failed", &|phase| phase.failed.to_string());
        row("first token p50 ms, all clients", &|phase| whole(phase.first_token.p50_ms));
        row("first token p95 ms, all clients", &|phase| whole(phase.first_token.p95_ms));
        for (index, region) in DemoRegion::ALL.into_iter().enumerate() {
            let times = |phase: &DemoPhase| {
                let Times { p50_ms, p95_ms } = phase.regions[index].first_token;
                format!("{} / {}", whole(p50_ms), whole(p95_ms))
            };
            row(&format!("  p50 / p95, {}", region.name()), &times);
        }
        row("served by another region", &|phase| {
            phase.regions.iter().map(|part| part.counts.spilled_out).sum::<u64>().to_string()
        });
        row("prompt tokens cached", &|phase| format!("{} %", whole(phase.cached_percent)));
        let better = self.p95_times_better.unwrap_or(0.0);
        text += &format!(
            "With spilling the 95th percentile is {better:.1} times better; the longer this runs the \
             more, since without it the queue of {} grows all the time.\n\
             Of the requests sent to another region, {} were turned away there and {} lost.\n",
            BUSY.name(),
            with.refused,
            with.broken
        );
        let outage = self.outage.as_ref().map(Outage::text).unwrap_or_default();
        text + &self.delay_text() + &outage + &self.lag_text()
    }

    fn delay_text(&self) -> String {
        let mut text = format!("\nWhat the way costs clients of {}:\n", BUSY.name());
        for delay in &self.delay {
            let Delay { served_by, rtt_ms, streams, first_token, more_ms } = delay;
            let p50 = whole(first_token.p50_ms);
            text += &format!("  {served_by:<15} {streams:>5} streams, first token p50 {p50} ms");
            text += &match more_ms {
                Some(more_ms) if *rtt_ms > 0.0 => {
                    format!(
                        ": {more_ms:.0} ms more than at home, there and back take {rtt_ms:.0}\n"
                    )
                }
                _ => "\n".to_owned(),
            };
        }
        text
    }

    fn lag_text(&self) -> String {
        if self.lag_p99_ms <= LAG_MAX_MS {
            return String::new();
        }
        format!(
            "\nThis machine was too busy: one request in a hundred was sent {:.0} ms late or more. \
             An optimised build, or fewer other programs, would give truer figures.\n",
            self.lag_p99_ms
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
            "\nWhen {region} was lost: {requests} requests in this phase, {failed} failed, of which \
             {failed_under_way} were under way then; {shed} shed.\n\
             \x20 The others had noticed after {} ms and taken over after {} ms. First token of \
             requests that came meanwhile: {} ms at most; from then on p50 {} ms, p95 {} ms.\n\
             \x20 {displaced} requests of its clients went to other regions since: first token p50 \
             {} ms, p95 {} ms, their way there included.\n",
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
