//! Ten cold replicas join two warm ones at once: does the load rush to the cold ones?

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;

use super::{
    account::Account,
    config::PolicyChoice,
    latency::{Failed, Latency},
    machine::Conditions,
    plan::Workload,
    run::{Bench, RunSpec},
    script::{Action, ScriptStep},
    slow::ratio,
};

/// Largest p99 in the seconds after joining, as a multiple of the p99 before, with slow start.
pub(crate) const RATIO_MAX: f64 = 2.0;

/// Name of the setting in `[health]`.
pub(crate) const SLOW_START: &str = "slow_start_ms";

/// Value of the setting, compared with 0.
pub(crate) const SLOW_START_MS: u64 = 10_000;

const WARM: u16 = 2;
const COLD: u16 = 10;

/// Long prompts of 2,000 tokens, which take a cold replica 100 ms at this time scale. The two warm
/// replicas hold all of them: 32,000 of their 40,000 tokens.
const PREFIXES: u32 = 16;
const PREFIX_BYTES: usize = 8_000;

/// Rate as a part of the matrix's rate, so that two replicas are enough.
const RATE_PART: f64 = 0.5;

const WARM_UP_S: u32 = 6;
const BEFORE_S: u32 = 8;
/// Length of the phase right after joining, in seconds.
const JOINED_S: u32 = 8;
const LATER_S: u32 = 8;

/// Results with one setting. A request that failed counts as one of ten seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Herd {
    /// Latency with two warm replicas.
    pub(crate) before: Latency,
    /// Latency in the seconds after the cold ones joined.
    pub(crate) joined: Latency,
    /// Latency in the seconds after that.
    pub(crate) later: Latency,
    /// p99 of the whole reply, joined over before.
    pub(crate) ratio: Option<f64>,
    /// p99 of the first byte, joined over before.
    pub(crate) first_byte_ratio: Option<f64>,
    /// Share of the requests that the cold replicas got right after joining.
    pub(crate) cold_share: f64,
    /// p99 of the whole reply for each second; 0 is the first after joining.
    pub(crate) p99_by_second: Vec<(i32, f64)>,
    /// Results of the requests.
    pub(crate) account: Account,
    /// Load of the machine.
    pub(crate) conditions: Conditions,
}

/// Runs the herd once. `slow_start_ms` is `None` for a binary without slow start.
///
/// # Errors
/// Returns an error if the run could not be carried out.
pub(crate) async fn run(
    bench: &Bench<'_>,
    policy: &PolicyChoice,
    slow_start_ms: Option<u64>,
) -> anyhow::Result<Herd> {
    let second = Duration::from_secs(1);
    let joins_at = second * (WARM_UP_S + BEFORE_S);
    let end = joins_at + second * (JOINED_S + LATER_S);
    let mut health = bench.health.clone();
    health.extend(slow_start_ms.map(|value| (SLOW_START.to_owned(), value)));
    let spec = RunSpec {
        policy,
        replicas: WARM + COLD,
        members: (0..WARM).collect::<BTreeSet<u16>>(),
        health,
        workload: Workload {
            seed: bench.seed,
            rate_per_s: bench.rate_per_s * RATE_PART,
            length: end,
            prefixes: PREFIXES,
            prefix_bytes: PREFIX_BYTES,
        },
        steps: vec![ScriptStep { at: joins_at, action: Action::Join(WARM, COLD) }],
    };
    let record = bench.run(&spec).await?;
    let latency =
        |from, until| Latency::of(&record.observations, &(from..until), Failed::AsDeadline);
    let settled = joins_at + second * JOINED_S;
    let before = latency(second * WARM_UP_S, joins_at);
    let joined = latency(joins_at, settled);
    let p99_of_second = |index: u32| {
        let from = second * index;
        let at = i32::try_from(index).ok()? - i32::try_from(WARM_UP_S + BEFORE_S).ok()?;
        Some((at, latency(from, from + second).total_p99_ms?))
    };
    let shares =
        (WARM..WARM + COLD).filter_map(|one| record.traffic.share(one, &(joins_at..settled)));
    Ok(Herd {
        ratio: ratio(joined.total_p99_ms, before.total_p99_ms),
        first_byte_ratio: ratio(joined.first_byte_p99_ms, before.first_byte_p99_ms),
        cold_share: shares.sum(),
        p99_by_second: (WARM_UP_S..WARM_UP_S + BEFORE_S + JOINED_S + LATER_S)
            .filter_map(p99_of_second)
            .collect(),
        later: latency(settled, end),
        before,
        joined,
        account: record.account,
        conditions: record.conditions,
    })
}
