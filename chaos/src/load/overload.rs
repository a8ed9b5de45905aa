//! More requests come than the replicas can serve.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::crowd::{Crowd, Habit};
use super::lanes::Lanes;
use super::note::{Note, Story, kinds, quantile};
use super::plan::Plan;
use super::request;
use super::stage::{Setting, Stage};
use crate::trial::Report;

/// What clients say their requests may take. Later replies are worth nothing to them.
const LIMIT: Duration = Duration::from_secs(5);
/// Before what is measured: queues fill and averages settle.
const WARM_UP: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(15);
const REPLICAS: u16 = 2;
/// Times the peak.
const LOADS: [f64; 3] = [1.0, 2.0, 5.0];
/// Of the peak must be reached, in percent.
const GOODPUT_AIM: f64 = 90.0;
const SHED_AIM_MS: f64 = 5.0;
const LANE_AIM_MS: f64 = 50.0;

#[derive(Default)]
struct Seen {
    goodput: Vec<f64>,
    shed_ms: Vec<f64>,
    good_p99_ms: Vec<f64>,
    lanes_ms: Vec<f64>,
    lanes_failed: usize,
    looks: usize,
    without_time: usize,
    shed: usize,
}

pub(crate) async fn run(plan: &Plan) -> anyhow::Result<Report> {
    let setting = Setting::usual(REPLICAS);
    let clients = u64::from(setting.places) * u64::from(REPLICAS) + 4;
    let mut report = Report::default();
    let mut peaks = Vec::new();
    let mut seen: [Seen; LOADS.len()] = Default::default();
    for round in 1..=plan.rounds {
        let stage = Stage::new(plan, setting.clone()).await?;
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
        // A short run at twice the load may end before the queue is full; five times are always too much.
        if seen.shed > 0 || *load > 2.0 {
            let what = format!("p99 of refusals at {load}×");
            report.figure(what, Some(SHED_AIM_MS), seen.shed_ms);
            let what = format!("refusals at {load}× say when to come again");
            report.check(what, seen.without_time, seen.shed);
        }
        let what = format!("p99 of health, lists, metrics and admin at {load}×");
        report.figure(what, Some(LANE_AIM_MS), seen.lanes_ms);
        let what = format!("health, lists, metrics and admin answer at {load}×");
        report.check(what, seen.lanes_failed, seen.looks);
    }
    Ok(report)
}

/// What the replicas can serve: a closed loop keeps all of their places busy.
pub(crate) async fn peak(plan: &Plan, stage: &Stage, clients: u64) -> f64 {
    let habit = Habit::once(|number| request::chat(number, LIMIT));
    let crowd = Crowd::closed(&stage.data, habit, clients, Duration::ZERO);
    // wait: it is measured meanwhile
    sleep(plan.time(WARM_UP)).await;
    let start = Instant::now();
    // wait: it is measured meanwhile
    sleep(plan.time(MEASURED)).await;
    let end = Instant::now();
    let stories = crowd.end(LIMIT).await;
    let notes: Vec<&Note> = stories.iter().flat_map(|story| &story.notes).collect();
    let good =
        notes.iter().filter(|note| note.is_good() && note.ended > start && note.ended <= end);
    good.count() as f64 / (end - start).as_secs_f64()
}

/// Whoever came in the time that counts.
pub(crate) fn between(stories: &[Story], start: Instant, end: Instant) -> Vec<&Note> {
    let notes = stories.iter().flat_map(|story| &story.notes);
    notes.filter(|note| note.due > start && note.due <= end).collect()
}

async fn offered(plan: &Plan, stage: &Stage, (rate, peak, seed): (f64, f64, u64), seen: &mut Seen) {
    let habit = Habit::once(|number| request::chat(1_000_000 + number, LIMIT));
    let crowd = Crowd::open(&stage.data, habit, rate, seed);
    // wait: it is measured meanwhile
    sleep(plan.time(WARM_UP)).await;
    let (start, lanes) = (Instant::now(), Lanes::start(stage));
    // wait: it is measured meanwhile
    sleep(plan.time(MEASURED)).await;
    let end = Instant::now();
    let (lanes_ms, failed) = lanes.end();
    let stories = crowd.end(2 * LIMIT).await;
    let in_time = stories.iter().flat_map(|story| &story.notes).filter(|note| {
        note.is_good() && note.took() <= LIMIT && note.ended > start && note.ended <= end
    });
    let good_ms: Vec<f64> = in_time.map(Note::took_ms).collect();
    let goodput = good_ms.len() as f64 / (end - start).as_secs_f64();
    let notes = between(&stories, start, end);
    plan.say(&format!("offered {rate:.0}/s: goodput {goodput:.1}/s; {}", kinds(notes.clone())));
    let shed: Vec<&&Note> = notes.iter().filter(|note| !note.is_good()).collect();
    seen.goodput.push(100.0 * goodput / peak);
    seen.good_p99_ms.push(quantile(good_ms, 0.99));
    seen.shed_ms.push(quantile(shed.iter().map(|note| note.took_ms()), 0.99));
    seen.lanes_ms.push(quantile(lanes_ms.iter().copied(), 0.99));
    seen.lanes_failed += failed;
    seen.looks += lanes_ms.len();
    seen.shed += shed.len();
    // Of a request whose own time is up (504) nobody knows whether it will come again.
    let untold = |note: &&&&Note| {
        note.status() != 504 && note.answer().is_none_or(|answer| answer.retry_after.is_none())
    };
    seen.without_time += shed.iter().filter(untold).count();
}
