//! Clients that are refused try again after the Retry-After that they got.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::crowd::{Crowd, Habit};
use super::note::{LoadNote, Story, kinds};
use super::overload::peak;
use super::plan::LoadPlan;
use super::request;
use super::stage::{LoadStage, Setting};
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

pub(crate) async fn run(plan: &LoadPlan) -> anyhow::Result<TrialReport> {
    let setting = Setting::usual(REPLICAS);
    let clients = u64::from(setting.places) * u64::from(REPLICAS) + 4;
    let [mut closed, mut burst, mut sustained]: [RetryAfterResults; 3] = Default::default();
    for round in 1..=plan.rounds {
        let stage = LoadStage::new(plan, setting.clone()).await?;
        let peak = peak(plan, &stage, clients).await;
        plan.say(&format!("round {round}: peak {peak:.1} requests/s"));
        let seed = plan.seed + round as u64;
        note(plan, "closed loop", &closed_loop(plan, &stage, peak).await, &mut closed);
        note(plan, "burst", &burst_of(plan, &stage, peak, seed).await, &mut burst);
        note(plan, "sustained", &sustained_load(plan, &stage, peak, seed).await, &mut sustained);
        plan.done(stage);
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

fn habit(plan: &LoadPlan) -> Habit {
    let base = plan.seed * 1_000_000_000;
    Habit::once(move |number| request::chat(base + number, LIMIT)).patient(ATTEMPTS_MAX)
}

/// Runs as many clients as would ask for twice the capacity if each were served at once.
async fn closed_loop(plan: &LoadPlan, stage: &LoadStage, peak: f64) -> Vec<Story> {
    let places = f64::from(Setting::usual(REPLICAS).places) * f64::from(REPLICAS);
    let service_s = places / peak;
    let clients = (2.0 * peak * (service_s + THINK.as_secs_f64())) as u64;
    plan.say(&format!("{clients} clients"));
    let crowd = Crowd::closed(&stage.data, habit(plan), clients, THINK);
    // wait: new requests come for this long
    sleep(plan.time(CLOSED)).await;
    until(Instant::now(), crowd).await
}

async fn burst_of(plan: &LoadPlan, stage: &LoadStage, peak: f64, seed: u64) -> Vec<Story> {
    let crowd = Crowd::open(&stage.data, habit(plan), 2.0 * peak, seed);
    // wait: the burst lasts this long
    sleep(plan.time(BURST)).await;
    crowd.set_rate(0.7 * peak);
    // wait: the time after the burst is measured
    sleep(plan.time(CALM)).await;
    crowd.end(WAIT_MAX + request::patience(LIMIT)).await
}

async fn sustained_load(plan: &LoadPlan, stage: &LoadStage, peak: f64, seed: u64) -> Vec<Story> {
    let crowd = Crowd::open(&stage.data, habit(plan), 2.0 * peak, seed);
    // wait: the load is measured for this long
    sleep(plan.time(SUSTAINED)).await;
    until(Instant::now(), crowd).await
}

/// Returns the stories that began before `end`. The load goes on until most of them are over.
async fn until(end: Instant, crowd: Crowd) -> Vec<Story> {
    // wait: the load goes on
    sleep(TAIL).await;
    let stories = crowd.end(WAIT_MAX + request::patience(LIMIT)).await;
    let counts = |story: &Story| story.notes.first().is_some_and(|note| note.due < end);
    stories.into_iter().filter(counts).collect()
}

fn note(plan: &LoadPlan, name: &str, stories: &[Story], seen: &mut RetryAfterResults) {
    let retried: Vec<bool> = stories.iter().filter_map(Story::first_retry).collect();
    let served = retried.iter().filter(|is_served| **is_served).count();
    let attempts: usize = stories.iter().map(|story| story.notes.len()).sum();
    let admitted = stories.iter().filter(|story| story.is_good()).count();
    let share = |part: usize, of: usize| 100.0 * part as f64 / (of as f64).max(1.0);
    let first = stories.iter().filter_map(|story| story.notes.first());
    let second = || stories.iter().filter_map(|story| story.notes.get(1));
    let waits: Vec<f64> = stories
        .iter()
        .flat_map(|story| &story.notes)
        .filter_map(|note| Some(note.answer()?.retry_after?.as_secs_f64()))
        .collect();
    let waits = [0.1, 0.5, 0.9].map(|part| super::note::quantile(waits.iter().copied(), part));
    plan.say(&format!(
        "{name}: {served} of {} first retries served; first: {}; second: {}; told to wait {waits:?} s",
        retried.len(),
        kinds(first),
        kinds(second()),
    ));
    let late: Vec<f64> = second().filter(|note| note.is_good()).map(LoadNote::took_ms).collect();
    plan.say(&format!(
        "{name}: second attempts took p50 {:.0} ms",
        super::note::quantile(late, 0.5)
    ));
    seen.served.push(share(served, retried.len()));
    seen.attempts.push(100.0 * attempts as f64 / admitted as f64);
    seen.unserved.push(share(stories.len() - admitted, stories.len()));
}
