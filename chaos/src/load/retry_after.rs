//! Clients that are refused try again after the Retry-After that they got.

use std::time::{Duration, Instant};

use spillway_harness::{LoadAttempt, LoadGenerator, LoadRecord, LoadSource, kinds, quantile};
use tokio::time::sleep;

use super::overload::peak;
use super::request;
use super::stage::{LoadStage, Setting};
use crate::plan::TrialPlan;
use crate::trial::TrialReport;

/// Time limit that clients send with their requests.
const LIMIT: Duration = Duration::from_secs(5);
/// Pause of a closed-loop client between two requests.
const THINK: Duration = Duration::from_secs(1);
const CLOSED: Duration = Duration::from_secs(60);
const BURST: Duration = Duration::from_secs(60);
const CALM: Duration = Duration::from_secs(60);
const SUSTAINED: Duration = Duration::from_secs(45);
/// Extra time of load after the last request that counts: retries after a sudden end of the load
/// would meet an idle node.
const TAIL: Duration = Duration::from_secs(25);
/// Longest Retry-After of the gateway.
const WAIT_MAX: Duration = Duration::from_secs(60);
const REPLICAS: u16 = 2;
const ATTEMPTS_MAX: usize = 8;
/// Share of first retries that must be served, in percent.
const AIM: f64 = 95.0;

#[derive(Default)]
struct RetryAfterResults {
    served: Vec<f64>,
    attempts: Vec<f64>,
    unserved: Vec<f64>,
}

pub(crate) async fn run(plan: &TrialPlan) -> anyhow::Result<TrialReport> {
    let setting = Setting::usual(REPLICAS);
    let clients = u64::from(setting.slots) * u64::from(REPLICAS) + 4;
    let [mut closed, mut burst, mut sustained]: [RetryAfterResults; 3] = Default::default();
    for round in 1..=plan.trials {
        let stage = LoadStage::new(plan, setting.clone()).await?;
        let peak = peak(plan, &stage, clients).await;
        plan.say(&format!("round {round}: peak {peak:.1} requests/s"));
        let seed = plan.seed + round as u64;
        add(plan, "closed loop", &closed_loop(plan, &stage, peak).await, &mut closed);
        add(plan, "burst", &burst_of(plan, &stage, peak, seed).await, &mut burst);
        add(plan, "sustained", &sustained_load(plan, &stage, peak, seed).await, &mut sustained);
        stage.done(plan);
    }
    let mut report = TrialReport::default();
    let cases = [
        ("closed loop of twice the capacity", closed, Some(AIM)),
        ("60 s of 2×, then 0.7×", burst, Some(AIM)),
        ("open loop of 2× without an end", sustained, None),
    ];
    for (name, seen, aim) in cases {
        report.rate(format!("{name}: first retries that are served"), "%", aim, seen.served);
        let hundred = format!("{name}: attempts for 100 admissions");
        report.quantity(hundred, "", None, seen.attempts);
        report.quantity(format!("{name}: never served"), "%", None, seen.unserved);
    }
    Ok(report)
}

fn source(plan: &TrialPlan) -> LoadSource {
    let base = plan.seed * 1_000_000_000;
    LoadSource::new(move |number| request::chat(base + number, LIMIT)).retrying(ATTEMPTS_MAX)
}

/// Runs as many clients as would ask for twice the capacity if each were served at once.
async fn closed_loop(plan: &TrialPlan, stage: &LoadStage, peak: f64) -> Vec<LoadRecord> {
    let slots = f64::from(Setting::usual(REPLICAS).slots) * f64::from(REPLICAS);
    let service_s = slots / peak;
    let clients = (2.0 * peak * (service_s + THINK.as_secs_f64())) as u64;
    plan.say(&format!("{clients} clients"));
    let load = LoadGenerator::closed(&stage.data, source(plan), clients, THINK);
    // wait: new requests come for this long
    sleep(plan.time(CLOSED)).await;
    until(Instant::now(), load).await
}

async fn burst_of(plan: &TrialPlan, stage: &LoadStage, peak: f64, seed: u64) -> Vec<LoadRecord> {
    let load = LoadGenerator::open(&stage.data, source(plan), 2.0 * peak, seed);
    // wait: the burst lasts this long
    sleep(plan.time(BURST)).await;
    load.set_rate(0.7 * peak);
    // wait: the time after the burst is measured
    sleep(plan.time(CALM)).await;
    load.end(WAIT_MAX + request::patience(LIMIT)).await
}

async fn sustained_load(
    plan: &TrialPlan,
    stage: &LoadStage,
    peak: f64,
    seed: u64,
) -> Vec<LoadRecord> {
    let load = LoadGenerator::open(&stage.data, source(plan), 2.0 * peak, seed);
    // wait: the load is measured for this long
    sleep(plan.time(SUSTAINED)).await;
    until(Instant::now(), load).await
}

/// Returns the records that began before `end`. The load goes on until most of them are over.
async fn until(end: Instant, load: LoadGenerator) -> Vec<LoadRecord> {
    // wait: the load goes on
    sleep(TAIL).await;
    let records = load.end(WAIT_MAX + request::patience(LIMIT)).await;
    let counts =
        |record: &LoadRecord| record.attempts.first().is_some_and(|attempt| attempt.due < end);
    records.into_iter().filter(counts).collect()
}

fn add(plan: &TrialPlan, name: &str, records: &[LoadRecord], seen: &mut RetryAfterResults) {
    let retried: Vec<bool> = records.iter().filter_map(LoadRecord::first_retry).collect();
    let served = retried.iter().filter(|is_served| **is_served).count();
    let attempts: usize = records.iter().map(|record| record.attempts.len()).sum();
    let admitted = records.iter().filter(|record| record.is_good()).count();
    let share = |part: usize, of: usize| 100.0 * part as f64 / (of as f64).max(1.0);
    let first = records.iter().filter_map(|record| record.attempts.first());
    let second = || records.iter().filter_map(|record| record.attempts.get(1));
    let waits: Vec<f64> = records
        .iter()
        .flat_map(|record| &record.attempts)
        .filter_map(|attempt| Some(attempt.reply()?.retry_after?.as_secs_f64()))
        .collect();
    let waits =
        [0.1, 0.5, 0.9].map(|part| quantile(waits.iter().copied(), part).unwrap_or(f64::NAN));
    plan.say(&format!(
        "{name}: {served} of {} first retries served; first: {}; second: {}; told to wait {waits:?} s",
        retried.len(),
        kinds(first),
        kinds(second()),
    ));
    let late: Vec<f64> =
        second().filter(|attempt| attempt.is_good()).map(LoadAttempt::took_ms).collect();
    plan.say(&format!(
        "{name}: second attempts took p50 {:.0} ms",
        quantile(late, 0.5).unwrap_or(f64::NAN)
    ));
    seen.served.push(share(served, retried.len()));
    seen.attempts.push(100.0 * attempts as f64 / admitted as f64);
    seen.unserved.push(share(records.len() - admitted, records.len()));
}
