//! One of four replicas ten times slower: what that does to the slowest hundredth.

use std::time::Duration;

use serde::Serialize;

use super::{
    account::Account,
    config::PolicyChoice,
    fault::Fault,
    latency::{Failed, Latency},
    machine::Conditions,
    matrix,
    run::{Bench, RunSpec},
    script::{Timeline, first_members, single},
};

/// Times the healthy p99 that a policy which knows of load may have.
pub(crate) const RATIO_MAX: f64 = 1.5;

/// Policies that can't know, shown for contrast.
const BLIND: [&str; 4] = ["round_robin", "random", "weighted_round_robin", "consistent_hash"];

const REPLICAS: u16 = 4;
const VICTIM: u16 = 1;

/// Twice as long as a cell of the matrix by default: the p99 is to stand on 1,000 requests.
const TIMELINE: Timeline = Timeline {
    warm_up: Duration::from_secs(3),
    before: Duration::from_secs(10),
    transition: Duration::from_secs(3),
    during: Duration::from_secs(10),
    after: Duration::from_secs(1),
};

/// What it showed; a request that failed counts as one of ten seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Slow {
    /// With four healthy replicas.
    pub(crate) healthy: Latency,
    /// In the first seconds with a slow one.
    pub(crate) transition: Latency,
    /// After that.
    pub(crate) slowed: Latency,
    /// p99 of the whole reply, slowed over healthy.
    pub(crate) ratio: Option<f64>,
    /// The same for the first byte.
    pub(crate) first_byte_ratio: Option<f64>,
    /// The slow replica's share of the requests, healthy and slowed.
    pub(crate) shares: (Option<f64>, Option<f64>),
    /// What became of the requests.
    pub(crate) account: Account,
    /// What the machine did.
    pub(crate) conditions: Conditions,
}

/// Whether the limit is meant for this policy.
pub(crate) fn is_load_aware(policy: &str) -> bool {
    !BLIND.contains(&policy)
}

/// Runs it once.
///
/// # Errors
/// A run that could not be carried out.
pub(crate) async fn run(bench: &Bench<'_>, policy: &PolicyChoice) -> anyhow::Result<Slow> {
    let spec = RunSpec {
        policy,
        replicas: REPLICAS,
        members: first_members(Fault::Slowed, VICTIM, REPLICAS),
        health: bench.health.clone(),
        workload: matrix::workload(bench, &TIMELINE),
        steps: single(Fault::Slowed, VICTIM, &TIMELINE),
    };
    let record = bench.run(&spec).await?;
    let phases = [
        TIMELINE.warm_up..TIMELINE.fault_at(),
        TIMELINE.fault_at()..TIMELINE.settled_at(),
        TIMELINE.settled_at()..TIMELINE.recovery_at(),
    ];
    let [healthy, transition, slowed] =
        phases.each_ref().map(|phase| Latency::of(&record.observations, phase, Failed::AsDeadline));
    let share = |phase| record.traffic.share(VICTIM, phase);
    Ok(Slow {
        ratio: ratio(slowed.total_p99_ms, healthy.total_p99_ms),
        first_byte_ratio: ratio(slowed.first_byte_p99_ms, healthy.first_byte_p99_ms),
        healthy,
        transition,
        slowed,
        shares: (share(&phases[0]), share(&phases[2])),
        account: record.account,
        conditions: record.conditions,
    })
}

/// One figure over another; none if one is missing or there is nothing to compare with.
pub(crate) fn ratio(value: Option<f64>, base: Option<f64>) -> Option<f64> {
    let (value, base) = value.zip(base)?;
    (base > 0.0).then(|| value / base)
}
