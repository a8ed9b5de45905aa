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
/// Retries for 100 requests of clients, without those in hand.
const AIM: f64 = 20.0;
/// In hand before the first request, by the default of `[retry]`; all else has to be earned.
const IN_HAND: f64 = 30.0;

/// What came of one round.
struct Seen {
    /// By clients.
    sent: usize,
    good: usize,
    /// Retries, all of them.
    retried: f64,
}

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
        Storm {
            rate: RATE_HIGH,
            ..storm("all replicas answer 503 at 220 requests/s, not 80", unavailable, all)
        },
        storm("all replicas fail half of the time", half, all),
        storm("one replica hangs", json!({ "kind": "hang" }), 1),
        storm("one replica answers garbage", json!({ "kind": "garbage" }), 1),
        storm("one replica is 10 times slower", json!({ "kind": "slow", "factor": 10.0 }), 1),
    ]
}

impl Seen {
    /// Retries beyond those in hand.
    fn earned(&self) -> f64 {
        (self.retried - IN_HAND).max(0.0)
    }

    /// For 100 requests.
    fn per_hundred(&self, count: f64) -> f64 {
        100.0 * count / self.sent as f64
    }
}

pub(crate) async fn run(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for storm in storms() {
        let [mut retried, mut earned, mut served]: [Vec<f64>; 3] = Default::default();
        for round in 1..=plan.rounds {
            let seen = once(plan, &storm, plan.seed + round as u64).await?;
            retried.push(seen.per_hundred(seen.retried));
            earned.push(seen.per_hundred(seen.earned()));
            served.push(seen.per_hundred(seen.good as f64));
        }
        let what = format!("{}: retries for 100 requests", storm.name);
        report.quantity(&what, "", None, retried);
        report.quantity(format!("{what}, without the thirty in hand"), "", Some(AIM), earned);
        report.rate(format!("{}: served", storm.name), "%", None, served);
    }
    Ok(report)
}

async fn once(plan: &Plan, storm: &Storm, seed: u64) -> anyhow::Result<Seen> {
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
    let stories = crowd.end(request::patience(LIMIT)).await;
    let notes: Vec<&Note> = stories.iter().flat_map(|story| &story.notes).collect();
    let good = notes.iter().filter(|note| note.is_good()).count();
    let retried = retries(&stage.page().await?) - before;
    plan.say(&format!("{}: {retried} retries; {}", storm.name, kinds(notes.iter().copied())));
    plan.done(stage);
    Ok(Seen { sent: notes.len(), good, retried })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_in_hand_are_retries_but_not_earned() {
        let seen = |retried| Seen { sent: 200, good: 150, retried };
        let told = |seen: Seen| (seen.per_hundred(seen.retried), seen.per_hundred(seen.earned()));
        assert_eq!(told(seen(20.0)), (10.0, 0.0));
        assert_eq!(told(seen(70.0)), (35.0, 20.0));
    }
}
