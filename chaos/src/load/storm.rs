//! Replicas fail: counts the retries that this adds.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use spillway_harness::{LoadAttempt, LoadGenerator, LoadSource, ScrapedPage, kinds};
use tokio::time::sleep;

use super::request;
use super::stage::{LoadStage, Setting};
use crate::plan::TrialPlan;
use crate::trial::TrialReport;

const LIMIT: Duration = Duration::from_secs(4);
/// Time before the fault, in which the retry budget fills up.
const CALM: Duration = Duration::from_secs(6);
const FAULTY: Duration = Duration::from_secs(12);
const REPLICAS: u16 = 4;
/// Requests a second: about half of what four replicas serve.
const RATE: f64 = 80.0;
/// Requests a second: more than four replicas serve, so that each failure shows.
const RATE_HIGH: f64 = 220.0;
/// Most retries for 100 requests, over a fault of the full length.
const AIM: f64 = 20.0;
/// Most retries for 100 requests without those in store, by the default of `[retry]`. The margin is
/// for chance: requests that come in a bunch leave more in store.
const AIM_EARNED: f64 = 16.0;
/// Retries that are always in the node's retry budget.
const IN_HAND: f64 = 30.0;
/// Retries that each request adds to the budget by default; the next constant is the seconds for
/// which they are kept.
const EARNED_SHARE: f64 = 0.15;
const STORED_S: f64 = 3.0;

/// Result of one round.
struct StormResults {
    /// Number of requests sent from the fault on.
    sent: usize,
    good: usize,
    /// Number of retries from the fault on.
    retried: f64,
    /// Retries in store at the start of the fault.
    stored: f64,
}

/// Fault of a number of replicas.
#[derive(Clone)]
struct Storm {
    name: &'static str,
    fault: Value,
    replicas: usize,
    rate: f64,
    /// Time without a fault before it.
    calm: Duration,
}

fn storms() -> Vec<Storm> {
    let storm = |name, fault, replicas| Storm { name, fault, replicas, rate: RATE, calm: CALM };
    // Without a calm time: connections that are open already would stay open, and none be refused.
    let refused = |name, replicas| Storm {
        calm: Duration::ZERO,
        ..storm(name, json!({ "kind": "refuse" }), replicas)
    };
    let all = usize::from(REPLICAS);
    let unavailable = json!({ "kind": "status", "code": 503, "retry_after_s": 1 });
    let half = json!({ "kind": "status", "code": 500, "probability": 0.5 });
    let cut = json!({ "kind": "cut", "after_events": 0 });
    vec![
        storm("one replica breaks off its replies", cut.clone(), 1),
        storm("all replicas do", cut, all),
        refused("one replica refuses connections", 1),
        refused("all replicas refuse connections", all),
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

impl Storm {
    /// Returns the retries in store after a time of `calm` without a fault.
    fn stored(&self, calm: Duration) -> f64 {
        (EARNED_SHARE * self.rate * calm.as_secs_f64().min(STORED_S)).max(IN_HAND)
    }
}

impl StormResults {
    /// Returns the retries beyond those in store.
    fn earned(&self) -> f64 {
        (self.retried - self.stored).max(0.0)
    }

    /// Returns `count` for each 100 requests sent.
    fn per_hundred(&self, count: f64) -> f64 {
        100.0 * count / self.sent as f64
    }
}

pub(crate) async fn run(plan: &TrialPlan) -> anyhow::Result<TrialReport> {
    let mut report = TrialReport::default();
    for storm in storms() {
        let [mut retried, mut earned, mut served]: [Vec<f64>; 3] = Default::default();
        for round in 1..=plan.trials {
            let seen = once(plan, &storm, plan.seed + round as u64).await?;
            retried.push(seen.per_hundred(seen.retried));
            earned.push(seen.per_hundred(seen.earned()));
            served.push(seen.per_hundred(seen.good as f64));
        }
        let what = format!("{}: retries for 100 requests", storm.name);
        // Only in a fault of the full length are the retries in store a small part.
        let aim = (!plan.is_short).then_some(AIM);
        report.quantity(&what, "", aim, retried);
        let what = format!("{what}, without those in store");
        report.quantity(what, "", Some(AIM_EARNED), earned);
        report.rate(format!("{}: served", storm.name), "%", None, served);
    }
    Ok(report)
}

async fn once(plan: &TrialPlan, storm: &Storm, seed: u64) -> anyhow::Result<StormResults> {
    let stage = LoadStage::new(plan, Setting::usual(REPLICAS)).await?;
    let retries = |page: &ScrapedPage| page.sum("spillway_retries_total", &[]);
    // Each request may always be repeated (idempotency key), so only the retry budget limits
    // retries.
    let make =
        |number| request::chat(number, LIMIT).header("idempotency-key", format!("k-{number}"));
    let come = || LoadGenerator::open(&stage.data, LoadSource::new(make), storm.rate, seed);
    // Without a calm time no request is sent before the fault, so no connection is open.
    let early = (!storm.calm.is_zero()).then(come);
    // wait: everything is well for this long
    let calm = plan.time(storm.calm);
    sleep(calm).await;
    let (before, faulty) = (retries(&stage.page().await?), Instant::now());
    for replica in 0..storm.replicas {
        stage.fault(replica, &storm.fault).await?;
    }
    let load = early.unwrap_or_else(come);
    // wait: the replicas fail for this long
    sleep(plan.time(FAULTY)).await;
    let records = load.end(request::patience(LIMIT)).await;
    let attempts = records.iter().flat_map(|record| &record.attempts);
    let attempts: Vec<&LoadAttempt> = attempts.filter(|attempt| attempt.due >= faulty).collect();
    let good = attempts.iter().filter(|attempt| attempt.is_good()).count();
    let retried = retries(&stage.page().await?) - before;
    plan.say(&format!("{}: {retried} retries; {}", storm.name, kinds(attempts.iter().copied())));
    stage.done(plan);
    Ok(StormResults { sent: attempts.len(), good, retried, stored: storm.stored(calm) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_in_store_are_retries_but_not_earned() {
        let seen = |retried| StormResults { sent: 200, good: 150, retried, stored: 30.0 };
        let told =
            |seen: StormResults| (seen.per_hundred(seen.retried), seen.per_hundred(seen.earned()));
        assert_eq!(told(seen(20.0)), (10.0, 0.0));
        assert_eq!(told(seen(70.0)), (35.0, 20.0));
    }

    #[test]
    fn calm_time_leaves_more_in_store_up_to_three_seconds_of_it() {
        let storm = storms().pop().expect("a storm");
        let stored = |rate, calm_s| {
            Storm { rate, ..storm.clone() }.stored(Duration::from_secs(calm_s)).round()
        };
        assert_eq!([stored(80.0, 0), stored(80.0, 1), stored(80.0, 6)], [30.0, 30.0, 36.0]);
        assert_eq!([stored(220.0, 1), stored(220.0, 6)], [33.0, 99.0]);
    }
}
