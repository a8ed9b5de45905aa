//! More requests than the replicas can serve.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::crowd::{Crowd, Habit};
use super::note::{LoadNote, Story, kinds, quantile};
use super::plan::LoadPlan;
use super::probes::{EndpointProbes, Looks};
use super::request;
use super::stage::{LoadStage, Setting};
use crate::trial::TrialReport;

/// Time limit that clients send with their requests. Later replies are worth nothing to them.
const LIMIT: Duration = Duration::from_secs(5);
/// Time before a measurement: queues fill and averages settle.
const WARM_UP: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(15);
const REPLICAS: u16 = 2;
/// Offered loads, as multiples of the peak.
const LOADS: [f64; 3] = [1.0, 2.0, 5.0];
/// Goodput that must be reached, in percent of the peak.
const GOODPUT_AIM: f64 = 90.0;
const SHED_AIM_MS: f64 = 5.0;
const LANE_AIM_MS: f64 = 50.0;

#[derive(Default)]
struct OverloadResults {
    goodput: Vec<f64>,
    /// p99 of refusals in milliseconds, of each round with a refusal.
    shed_ms: Vec<f64>,
    good_p99_ms: Vec<f64>,
    lanes_ms: Vec<f64>,
    lanes_failed: usize,
    looks: usize,
    without_time: usize,
    shed: usize,
}

impl OverloadResults {
    fn add_lanes(&mut self, looks: &Looks) {
        self.lanes_ms.push(looks.p99_ms);
        self.lanes_failed += looks.failed;
        self.looks += looks.count;
    }

    /// Adds the requests of a round that were not served.
    fn add_shed(&mut self, shed: &[&LoadNote]) {
        if !shed.is_empty() {
            self.shed_ms.push(quantile(shed.iter().map(|note| note.took_ms()), 0.99));
        }
        // A request that ran out of its own time (504) needs no Retry-After.
        let untold = |note: &&&LoadNote| {
            note.status() != 504 && note.answer().is_none_or(|answer| answer.retry_after.is_none())
        };
        self.shed += shed.len();
        self.without_time += shed.iter().filter(untold).count();
    }
}

pub(crate) async fn run(plan: &LoadPlan) -> anyhow::Result<TrialReport> {
    let setting = Setting::usual(REPLICAS);
    let clients = u64::from(setting.places) * u64::from(REPLICAS) + 4;
    let mut report = TrialReport::default();
    let mut peaks = Vec::new();
    let mut seen: [OverloadResults; LOADS.len()] = Default::default();
    for round in 1..=plan.rounds {
        let stage = LoadStage::new(plan, setting.clone()).await?;
        let peak = peak(plan, &stage, clients).await;
        plan.say(&format!("round {round}: peak {peak:.1} requests/s"));
        peaks.push(peak);
        for (load, seen) in LOADS.iter().zip(&mut seen) {
            let seed = plan.seed + round as u64;
            offered(plan, &stage, (peak * load, peak, seed), seen).await;
        }
        plan.done(stage);
    }
    report.rate("peak: a closed loop keeps all places busy", "/s", None, peaks);
    for (load, seen) in LOADS.iter().zip(seen) {
        let aim = Some(GOODPUT_AIM);
        report.rate(format!("goodput at {load}× of the peak"), "%", aim, seen.goodput);
        report.figure(format!("p99 of replies in time at {load}×"), None, seen.good_p99_ms);
        // A short run at twice the load may end before the queue is full; five times is always too
        // much.
        if seen.shed > 0 || *load > 2.0 {
            let what = format!("p99 of refusals at {load}×");
            report.figure(what, Some(SHED_AIM_MS), seen.shed_ms);
            let what = format!("refusals at {load}× say when to come again");
            report.check(what, seen.without_time, seen.shed);
        }
        let what = format!("p99 of the slowest of health, lists, metrics and admin at {load}×");
        report.figure(what, Some(LANE_AIM_MS), seen.lanes_ms);
        let what = format!("health, lists, metrics and admin answer at {load}×");
        report.check(what, seen.lanes_failed, seen.looks);
    }
    Ok(report)
}

/// Measures the requests a second that the replicas can serve: a closed loop keeps all places busy.
pub(crate) async fn peak(plan: &LoadPlan, stage: &LoadStage, clients: u64) -> f64 {
    let habit = Habit::once(|number| request::chat(number, LIMIT));
    let crowd = Crowd::closed(&stage.data, habit, clients, Duration::ZERO);
    // wait: queues and averages settle
    sleep(plan.time(WARM_UP)).await;
    let start = Instant::now();
    // wait: this time is measured
    sleep(plan.time(MEASURED)).await;
    let end = Instant::now();
    let stories = crowd.end(request::patience(LIMIT)).await;
    let notes: Vec<&LoadNote> = stories.iter().flat_map(|story| &story.notes).collect();
    let good =
        notes.iter().filter(|note| note.is_good() && note.ended > start && note.ended <= end);
    good.count() as f64 / (end - start).as_secs_f64()
}

/// Returns the attempts that were due after `start` and not after `end`.
pub(crate) fn between(stories: &[Story], start: Instant, end: Instant) -> Vec<&LoadNote> {
    let notes = stories.iter().flat_map(|story| &story.notes);
    notes.filter(|note| note.due > start && note.due <= end).collect()
}

async fn offered(
    plan: &LoadPlan,
    stage: &LoadStage,
    (rate, peak, seed): (f64, f64, u64),
    seen: &mut OverloadResults,
) {
    let habit = Habit::once(|number| request::chat(1_000_000 + number, LIMIT));
    let crowd = Crowd::open(&stage.data, habit, rate, seed);
    // wait: queues and averages settle
    sleep(plan.time(WARM_UP)).await;
    let (start, probes) = (Instant::now(), EndpointProbes::start(stage, seed));
    // wait: this time is measured
    sleep(plan.time(MEASURED)).await;
    let end = Instant::now();
    // The load goes on until the last probe is answered.
    let looks = probes.end().await;
    let stories = crowd.end(request::patience(LIMIT)).await;
    let in_time = stories.iter().flat_map(|story| &story.notes).filter(|note| {
        note.is_good() && note.took() <= LIMIT && note.ended > start && note.ended <= end
    });
    let good_ms: Vec<f64> = in_time.map(LoadNote::took_ms).collect();
    let goodput = good_ms.len() as f64 / (end - start).as_secs_f64();
    let notes = between(&stories, start, end);
    let (lane, lane_ms) = (looks.slowest, looks.p99_ms);
    plan.say(&format!(
        "offered {rate:.0}/s: goodput {goodput:.1}/s; {}; slowest: {lane}, p99 {lane_ms:.0} ms",
        kinds(notes.clone())
    ));
    let shed: Vec<&LoadNote> = notes.into_iter().filter(|note| !note.is_good()).collect();
    seen.goodput.push(100.0 * goodput / peak);
    seen.good_p99_ms.push(quantile(good_ms, 0.99));
    seen.add_lanes(&looks);
    seen.add_shed(&shed);
}

#[cfg(test)]
mod tests {
    use super::super::note::{NoteEnd, NotedAnswer};
    use super::*;

    #[test]
    fn a_round_without_refusals_has_no_time_of_refusals() {
        let due = Instant::now();
        let end = NoteEnd::Whole(NotedAnswer { status: 503, ..NotedAnswer::default() });
        let note = LoadNote { due, ended: due + Duration::from_millis(3), end };
        let mut seen = OverloadResults::default();
        seen.add_shed(&[]);
        seen.add_shed(&[&note]);
        assert_eq!((seen.shed_ms.len(), seen.shed, seen.without_time), (1, 1, 1));
        assert!((seen.shed_ms[0] - 3.0).abs() < 1e-6);
    }
}
