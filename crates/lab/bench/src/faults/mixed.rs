//! Replicas killed, hung, slowed, failing, flapping, added and drained in random order.

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;

use super::{
    account::{Account, Trouble},
    config::PolicyChoice,
    latency::{Failed, Latency},
    machine::Conditions,
    matrix,
    run::{Bench, RunSpec},
    script::{ScriptStep, Timeline, mixed},
};

/// Number of replicas in the config at first; one more comes and goes.
const MEMBERS: u16 = 5;

/// Results of the mixed part.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Mixed {
    /// Results of the requests.
    pub(crate) account: Account,
    /// Latency over the whole time.
    pub(crate) latency: Latency,
    /// Number of retries.
    pub(crate) retries: Option<u64>,
    /// Steps of the script.
    pub(crate) steps: Vec<ScriptStep>,
    /// Times in which replicas were broken.
    pub(crate) troubles: Vec<Trouble>,
    /// Load of the machine.
    pub(crate) conditions: Conditions,
}

/// Runs the mixed part once.
///
/// # Errors
/// Returns an error if the run could not be carried out.
pub(crate) async fn run(
    bench: &Bench<'_>,
    policy: &PolicyChoice,
    seconds: u16,
) -> anyhow::Result<Mixed> {
    let timeline = Timeline {
        warm_up: Duration::from_secs(3),
        before: Duration::ZERO,
        transition: Duration::ZERO,
        during: Duration::from_secs(seconds.into()),
        after: Duration::ZERO,
    };
    let spec = RunSpec {
        policy,
        replicas: MEMBERS + 1,
        members: (0..MEMBERS).collect::<BTreeSet<u16>>(),
        health: bench.health.clone(),
        workload: matrix::workload(bench, &timeline),
        steps: mixed(bench.seed, &timeline, MEMBERS),
    };
    let record = bench.run(&spec).await?;
    let whole = timeline.warm_up..timeline.end_at();
    Ok(Mixed {
        latency: Latency::of(&record.observations, &whole, Failed::LeftOut),
        account: record.account,
        retries: record.retries,
        steps: spec.steps,
        troubles: record.troubles,
        conditions: record.conditions,
    })
}
