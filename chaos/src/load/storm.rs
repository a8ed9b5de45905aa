//! Replicas fail: how much more is sent to them for it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::crowd::{Crowd, Habit};
use super::note::{Note, kinds};
use super::plan::Plan;
use super::request;
use super::stage::{Setting, Stage};
use crate::trial::Report;

const LIMIT: Duration = Duration::from_secs(4);
const FAULTY: Duration = Duration::from_secs(12);
const REPLICAS: u16 = 4;
/// Requests a second: about half of what four replicas serve.
const RATE: f64 = 80.0;
/// More than they serve, so that nobody's failure goes unnoticed.
const RATE_HIGH: f64 = 220.0;
/// Retries as a share of what clients sent, in percent.
const AIM: f64 = 20.0;
/// Allowed whatever the share, by the defaults of `[retry]`, and for how long that is in hand.
const FREE_PER_S: f64 = 3.0;
const IN_HAND: Duration = Duration::from_secs(10);

/// What is wrong with how many replicas.
struct Storm {
    name: &'static str,
    fault: Value,
    replicas: usize,
    rate: f64,
}

fn storms() -> Vec<Storm> {
    let storm = |name, fault, replicas| Storm { name, fault, replicas, rate: RATE };
    let all = usize::from(REPLICAS);
    let unavailable = json!({ "kind": "status", "code": 503, "retry_after_s": 1 });
    let half = json!({ "kind": "status", "code": 500, "probability": 0.5 });
    let cut = json!({ "kind": "cut", "after_events": 0 });
    vec![
        storm("one replica breaks off its replies", cut.clone(), 1),
        storm("all replicas do", cut, all),
        storm("one replica refuses connections", json!({ "kind": "refuse" }), 1),
        storm("all replicas refuse connections", json!({ "kind": "refuse" }), all),
        storm("all replicas answer 503", unavailable.clone(), all),
        Storm { rate: RATE_HIGH, ..storm("all answer 503 at twice the load", unavailable, all) },
        storm("all replicas fail half of the time", half, all),
        storm("one replica hangs", json!({ "kind": "hang" }), 1),
        storm("one replica answers garbage", json!({ "kind": "garbage" }), 1),
        storm("one replica is 10 times slower", json!({ "kind": "slow", "factor": 10.0 }), 1),
    ]
}

pub(crate) async fn run(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for storm in storms() {
        let (mut shares, mut served) = (Vec::new(), Vec::new());
        for round in 1..=plan.rounds {
            let (share, good) = once(plan, &storm, plan.seed + round as u64).await?;
            shares.push(share);
            served.push(good);
        }
        let what = format!("{}: retries for 100 requests", storm.name);
        report.quantity(what, "", Some(AIM), shares);
        report.rate(format!("{}: served", storm.name), "%", None, served);
    }
    Ok(report)
}

/// Retries and good replies, in percent of what clients sent.
async fn once(plan: &Plan, storm: &Storm, seed: u64) -> anyhow::Result<(f64, f64)> {
    let stage = Stage::new(plan, Setting::usual(REPLICAS)).await?;
    let page = stage.page().await?;
    let retries = |page: &super::stage::Page| page.sum("spillway_retries_total", "");
    let before = retries(&page);
    // Each request may be repeated in all cases: the budget alone holds it back.
    let make = |number| {
        let mut ask = request::chat(number, LIMIT);
        ask.headers.push(("idempotency-key", format!("k-{number}")));
        ask
    };
    for replica in 0..storm.replicas {
        stage.fault(replica, &storm.fault).await?;
    }
    let crowd = Crowd::open(&stage.data, Habit::once(make), storm.rate, seed);
    // wait: this is how long they fail
    let span = plan.time(FAULTY);
    sleep(span).await;
    let stories = crowd.end(2 * LIMIT).await;
    let notes: Vec<&Note> = stories.iter().flat_map(|story| &story.notes).collect();
    let good = notes.iter().filter(|note| note.is_good()).count();
    let retried = retries(&stage.page().await?) - before;
    // What is free whatever the share is no part of it.
    let paid = (retried - FREE_PER_S * (span + IN_HAND).as_secs_f64()).max(0.0);
    let sent = (notes.len() as f64).max(1.0);
    plan.say(&format!("{}: {retried} retries; {}", storm.name, kinds(notes.iter().copied())));
    plan.done(stage);
    Ok((100.0 * paid / sent, 100.0 * good as f64 / sent))
}
