//! One tenant, or one replica, misbehaves; another tenant goes on as before.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;

use super::caller::Ask;
use super::crowd::{Crowd, Habit};
use super::note::{Note, Story, kinds, quantile};
use super::plan::Plan;
use super::request;
use super::stage::{Setting, Stage};
use crate::trial::Report;

const LIMIT: Duration = Duration::from_secs(10);
const REPLICAS: u16 = 4;
/// Requests a second of the calm tenant: a tenth of what the replicas serve.
const CALM_RATE: f64 = 18.0;
const BEFORE: Duration = Duration::from_secs(20);
/// Until the fault is known and its first victims are through.
const SETTLING: Duration = Duration::from_secs(4);
const DURING: Duration = Duration::from_secs(20);
/// Its p95 may change by so many percent.
const AIM: f64 = 20.0;
/// Whose requests they are is told by a proxy in front.
const LISTENER: &str = "trusted_proxies = [\"127.0.0.0/8\"]\nauth = \"headers\"";

#[derive(Clone)]
enum Trouble {
    /// A tenant sends so many requests a second.
    Flood(f64),
    /// A tenant sends so many prompts of so many tokens a second.
    Long(f64, usize),
    /// A tenant reads so many long streams as slowly as it can.
    Slow(u64),
    /// A replica has a fault.
    Replica(Value),
}

fn troubles() -> Vec<(&'static str, Trouble)> {
    vec![
        ("a tenant sends five times what the replicas serve", Trouble::Flood(900.0)),
        ("a tenant sends prompts of 8,000 tokens", Trouble::Long(4.0, 8_000)),
        ("a tenant reads 100 streams slowly", Trouble::Slow(100)),
        (
            "a replica is 10 times slower",
            Trouble::Replica(json!({ "kind": "slow", "factor": 10.0 })),
        ),
        ("a replica hangs", Trouble::Replica(json!({ "kind": "hang" }))),
        ("a replica answers 500", Trouble::Replica(json!({ "kind": "status", "code": 500 }))),
        (
            "a replica breaks off its replies",
            Trouble::Replica(json!({ "kind": "cut", "after_events": 0 })),
        ),
    ]
}

pub(crate) async fn run(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for (name, trouble) in troubles() {
        let (mut changes, mut failed, mut sent) = (Vec::new(), 0, 0);
        for round in 1..=plan.rounds {
            let [before, during] = once(plan, &trouble, plan.seed + round as u64).await?;
            let [was, is] = [&before, &during].map(|notes| p95_ms(notes));
            plan.say(&format!(
                "{name}: p95 {was:.0} ms, then {is:.0} ms; {}",
                kinds(during.iter())
            ));
            changes.push(100.0 * (is - was) / was);
            failed += during.iter().filter(|note| !note.is_good()).count();
            sent += during.len();
        }
        report.quantity(format!("{name}: change of another's p95"), "%", Some(AIM), changes);
        report.check(format!("{name}: another's requests are served"), failed, sent);
    }
    Ok(report)
}

fn p95_ms(notes: &[Note]) -> f64 {
    quantile(notes.iter().map(Note::took_ms), 0.95)
}

/// What became of the calm tenant's requests before and during the trouble.
async fn once(plan: &Plan, trouble: &Trouble, seed: u64) -> anyhow::Result<[Vec<Note>; 2]> {
    let setting = Setting { listener: LISTENER, ..Setting::usual(REPLICAS) };
    let stage = Stage::new(plan, setting).await?;
    let calm = Habit::once(|number| of("calm", request::chat(number, LIMIT)));
    let crowd = Crowd::open(&stage.data, calm, CALM_RATE, seed);
    // wait: times of replicas are learned in the first seconds
    sleep(plan.time(SETTLING)).await;
    let start = Instant::now();
    // wait: it is measured meanwhile
    sleep(plan.time(BEFORE)).await;
    let trouble_began = Instant::now();
    let wild = begin(&stage, trouble, seed + 7).await?;
    // wait: this may cost something
    sleep(SETTLING).await;
    let settled = Instant::now();
    // wait: it is measured meanwhile
    sleep(plan.time(DURING)).await;
    let end = Instant::now();
    let stories = crowd.end(LIMIT).await;
    if let Some(wild) = wild {
        let stories = wild.end(Duration::ZERO).await;
        let notes = stories.iter().flat_map(|story| &story.notes);
        plan.say(&format!("the wild one: {}", kinds(notes)));
    }
    plan.done(stage);
    Ok([within(&stories, start, trouble_began), within(&stories, settled, end)])
}

fn within(stories: &[Story], start: Instant, end: Instant) -> Vec<Note> {
    let notes = stories.iter().flat_map(|story| &story.notes);
    notes.filter(|note| note.due > start && note.due <= end).cloned().collect()
}

/// Makes a request a tenant's.
fn of(tenant: &str, mut ask: Ask) -> Ask {
    ask.headers.push(("x-spillway-tenant", tenant.to_owned()));
    ask
}

async fn begin(stage: &Stage, trouble: &Trouble, seed: u64) -> anyhow::Result<Option<Crowd>> {
    const OTHERS: u64 = 1_000_000;
    let data = &stage.data;
    Ok(match trouble {
        Trouble::Flood(rate) => {
            let habit = Habit::once(|number| of("wild", request::chat(OTHERS + number, LIMIT)));
            Some(Crowd::open(data, habit, *rate, seed))
        }
        Trouble::Long(rate, tokens) => {
            let tokens = *tokens;
            let habit = Habit::once(move |number| {
                of("wild", request::long(OTHERS + number, tokens, LIMIT))
            });
            Some(Crowd::open(data, habit, *rate, seed))
        }
        Trouble::Slow(streams) => {
            let habit = Habit::once(|number| {
                let ask = request::stream(OTHERS + number, 4_000, Duration::from_secs(600));
                of("wild", Ask { dawdle: Some(Duration::from_secs(5)), ..ask })
            });
            Some(Crowd::closed(data, habit, *streams, Duration::from_secs(1)))
        }
        Trouble::Replica(fault) => {
            stage.fault(0, fault).await?;
            None
        }
    })
}
