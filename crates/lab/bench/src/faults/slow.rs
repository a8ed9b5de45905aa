//! Four replicas, one of them ten times slower: the effect on the p99.

use std::time::Duration;

use serde::Serialize;
use spillway_route::{Feedback, Policy};

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

/// Largest p99 of a load-aware policy, as a multiple of the healthy p99.
pub(crate) const RATIO_MAX: f64 = 1.5;

const REPLICAS: u16 = 4;
const VICTIM: u16 = 1;

/// Phases of the run. Twice as long as a default cell of the matrix, so that the p99 rests on 1,000
/// requests.
const TIMELINE: Timeline = Timeline {
    warm_up: Duration::from_secs(3),
    before: Duration::from_secs(10),
    transition: Duration::from_secs(3),
    during: Duration::from_secs(10),
    after: Duration::from_secs(1),
};

/// Results with a slow replica. A request that failed counts as one of ten seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Slow {
    /// Latency with four healthy replicas.
    pub(crate) healthy: Latency,
    /// Latency in the first seconds with a slow replica.
    pub(crate) transition: Latency,
    /// Latency after that.
    pub(crate) slowed: Latency,
    /// p99 of the whole reply, slowed over healthy.
    pub(crate) ratio: Option<f64>,
    /// p99 of the first byte, slowed over healthy.
    pub(crate) first_byte_ratio: Option<f64>,
    /// Share of requests of the slow replica, healthy and slowed.
    pub(crate) shares: (Option<f64>, Option<f64>),
    /// Results of the requests.
    pub(crate) account: Account,
    /// Load of the machine.
    pub(crate) conditions: Conditions,
}

/// Returns true if the limit applies to this policy: blind ones are shown for contrast.
pub(crate) fn is_load_aware(policy: &str) -> bool {
    !policy.parse::<Policy>().is_ok_and(|policy| policy.feedback() == Feedback::Blind)
}

/// Runs the part once.
///
/// # Errors
/// Returns an error if the run could not be carried out.
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

/// Divides two figures; `None` if either is missing or the base is zero.
pub(crate) fn ratio(value: Option<f64>, base: Option<f64>) -> Option<f64> {
    let (value, base) = value.zip(base)?;
    (base > 0.0).then(|| value / base)
}
