//! More requests than the replicas can serve.

use std::time::{Duration, Instant};

use spillway_harness::{LoadAttempt, LoadGenerator, LoadRecord, LoadSource, kinds, quantile};
use tokio::time::sleep;

use super::probes::{EndpointProbes, Looks};
use super::request;
use super::stage::{LoadStage, Setting};
use crate::plan::TrialPlan;
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
const PROBE_AIM_MS: f64 = 50.0;

#[derive(Default)]
struct OverloadResults {
    goodput: Vec<f64>,
    /// p99 of refusals in milliseconds, of each round with a refusal.
    shed_ms: Vec<f64>,
    good_p99_ms: Vec<f64>,
    probes_ms: Vec<f64>,
    probes_failed: usize,
    looks: usize,
    without_time: usize,
    shed: usize,
}

impl OverloadResults {
    fn add_probes(&mut self, looks: &Looks) {
        self.probes_ms.push(looks.p99_ms);
        self.probes_failed += looks.failed;
        self.looks += looks.count;
    }

    /// Adds the requests of a round that were not served.
    fn add_shed(&mut self, shed: &[&LoadAttempt]) {
        self.shed_ms.extend(quantile(shed.iter().map(|attempt| attempt.took_ms()), 0.99));
        // A request that ran out of its own time (504) needs no Retry-After.
        let untold = |attempt: &&&LoadAttempt| {
            attempt.status() != 504
                && attempt.reply().is_none_or(|reply| reply.retry_after.is_none())
        };
        self.shed += shed.len();
        self.without_time += shed.iter().filter(untold).count();
    }
}

pub(crate) async fn run(plan: &TrialPlan) -> anyhow::Result<TrialReport> {
    let setting = Setting::usual(REPLICAS);
    let clients = u64::from(setting.slots) * u64::from(REPLICAS) + 4;
    let mut report = TrialReport::default();
    let mut peaks = Vec::new();
    let mut seen: [OverloadResults; LOADS.len()] = Default::default();
    for round in 1..=plan.trials {
        let stage = LoadStage::new(plan, setting.clone()).await?;
        let peak = peak(plan, &stage, clients).await;
        plan.say(&format!("round {round}: peak {peak:.1} requests/s"));
        peaks.push(peak);
        for (load, seen) in LOADS.iter().zip(&mut seen) {
            let seed = plan.seed + round as u64;
            offered(plan, &stage, (peak * load, peak, seed), seen).await;
        }
        stage.done(plan);
    }
    report.rate("peak: a closed loop keeps all slots busy", "/s", None, peaks);
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
        report.figure(what, Some(PROBE_AIM_MS), seen.probes_ms);
        let what = format!("health, lists, metrics and admin answer at {load}×");
        report.check(what, seen.probes_failed, seen.looks);
    }
    Ok(report)
}

/// Measures the requests a second that the replicas can serve: a closed loop keeps all slots busy.
pub(crate) async fn peak(plan: &TrialPlan, stage: &LoadStage, clients: u64) -> f64 {
    let source = LoadSource::new(|number| request::chat(number, LIMIT));
    let load = LoadGenerator::closed(&stage.data, source, clients, Duration::ZERO);
    // wait: queues and averages settle
    sleep(plan.time(WARM_UP)).await;
    let start = Instant::now();
    // wait: this time is measured
    sleep(plan.time(MEASURED)).await;
    let end = Instant::now();
    let records = load.end(request::patience(LIMIT)).await;
    let attempts: Vec<&LoadAttempt> = records.iter().flat_map(|record| &record.attempts).collect();
    let good = attempts
        .iter()
        .filter(|attempt| attempt.is_good() && attempt.ended > start && attempt.ended <= end);
    good.count() as f64 / (end - start).as_secs_f64()
}

/// Returns the attempts that were due after `start` and not after `end`.
pub(crate) fn between(records: &[LoadRecord], start: Instant, end: Instant) -> Vec<&LoadAttempt> {
    let attempts = records.iter().flat_map(|record| &record.attempts);
    attempts.filter(|attempt| attempt.due > start && attempt.due <= end).collect()
}

async fn offered(
    plan: &TrialPlan,
    stage: &LoadStage,
    (rate, peak, seed): (f64, f64, u64),
    seen: &mut OverloadResults,
) {
    let source = LoadSource::new(|number| request::chat(1_000_000 + number, LIMIT));
    let load = LoadGenerator::open(&stage.data, source, rate, seed);
    // wait: queues and averages settle
    sleep(plan.time(WARM_UP)).await;
    let (start, probes) = (Instant::now(), EndpointProbes::start(stage, seed));
    // wait: this time is measured
    sleep(plan.time(MEASURED)).await;
    let end = Instant::now();
    // The load goes on until the last probe is answered.
    let looks = probes.end().await;
    let records = load.end(request::patience(LIMIT)).await;
    let in_time = records.iter().flat_map(|record| &record.attempts).filter(|attempt| {
        attempt.is_good()
            && attempt.took() <= LIMIT
            && attempt.ended > start
            && attempt.ended <= end
    });
    let good_ms: Vec<f64> = in_time.map(LoadAttempt::took_ms).collect();
    let goodput = good_ms.len() as f64 / (end - start).as_secs_f64();
    let attempts = between(&records, start, end);
    let (slowest, slowest_ms) = (looks.slowest, looks.p99_ms);
    plan.say(&format!(
        "offered {rate:.0}/s: goodput {goodput:.1}/s; {}; slowest: {slowest}, p99 {slowest_ms:.0} ms",
        kinds(attempts.clone())
    ));
    let shed: Vec<&LoadAttempt> =
        attempts.into_iter().filter(|attempt| !attempt.is_good()).collect();
    seen.goodput.push(100.0 * goodput / peak);
    seen.good_p99_ms.push(quantile(good_ms, 0.99).unwrap_or(f64::NAN));
    seen.add_probes(&looks);
    seen.add_shed(&shed);
}

#[cfg(test)]
mod tests {
    use spillway_harness::{AttemptEnd, LoadReply};

    use super::*;

    #[test]
    fn a_round_without_refusals_has_no_time_of_refusals() {
        let due = Instant::now();
        let end = AttemptEnd::Whole(LoadReply { status: 503, ..LoadReply::default() });
        let ended = due + Duration::from_millis(3);
        let attempt = LoadAttempt { ended, ..LoadAttempt::at_once(due, end) };
        let mut seen = OverloadResults::default();
        seen.add_shed(&[]);
        seen.add_shed(&[&attempt]);
        assert_eq!((seen.shed_ms.len(), seen.shed, seen.without_time), (1, 1, 1));
        assert!((seen.shed_ms[0] - 3.0).abs() < 1e-6);
    }
}
