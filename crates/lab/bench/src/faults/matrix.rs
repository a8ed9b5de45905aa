//! Cell of the matrix: a policy against a fault.

use std::{ops::Range, time::Duration};

use serde::Serialize;

use super::{
    account::Account,
    config::PolicyChoice,
    fault::Fault,
    latency::{Failed, Latency},
    machine::Conditions,
    plan::Workload,
    run::{Bench, RunRecord, RunSpec},
    script::{Timeline, first_members, single},
};

/// Number of replicas in each cell.
const REPLICAS: u16 = 4;

/// Index of the replica that breaks.
const VICTIM: u16 = 1;

/// Number of shared prompts; the next constant is their size in bytes, well above what hashing by
/// prefix looks at.
const PREFIXES: u32 = 8;
const PREFIX_BYTES: usize = 1_500;

/// Time of load before the measurement.
const WARM_UP: Duration = Duration::from_secs(3);

/// Length of the transition after a fault.
const TRANSITION: Duration = Duration::from_secs(3);

/// Results of one cell. Times count from the fault, or for `back_s` from its end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    /// Latency without the fault.
    pub(crate) before: Latency,
    /// Latency in the first seconds of the fault.
    pub(crate) transition: Latency,
    /// Latency from then until the end of the fault.
    pub(crate) during: Latency,
    /// Latency after the fault.
    pub(crate) after: Latency,
    /// Results of the requests.
    pub(crate) account: Account,
    /// Share of requests of the victim before the fault.
    pub(crate) share_before: Option<f64>,
    /// Share of requests of the victim during the fault, transition included.
    pub(crate) share_fault: Option<f64>,
    /// Share of requests of the victim during the fault, without the transition.
    pub(crate) share_during: Option<f64>,
    /// Seconds until the victim got only trial requests.
    pub(crate) out_s: Option<f64>,
    /// Seconds until the victim's last request before recovery.
    pub(crate) last_s: Option<f64>,
    /// Seconds from recovery, or from joining, until the victim had its share again.
    pub(crate) back_s: Option<f64>,
    /// Number of retries.
    pub(crate) retries: Option<u64>,
    /// Load of the machine.
    pub(crate) conditions: Conditions,
}

/// Returns the phases of a cell with `seconds` of measured load: a quarter before the fault, two
/// fifths with the fault, the rest after it.
pub(crate) fn timeline(seconds: u16) -> Timeline {
    let part = |share: f64| Duration::from_secs_f64(f64::from(seconds) * share);
    let fault = part(0.4);
    // A short run still needs some time of the fault in which everything has settled.
    let transition = TRANSITION.min(fault / 2);
    Timeline {
        warm_up: WARM_UP,
        before: part(0.25),
        transition,
        during: fault - transition,
        after: part(0.35),
    }
}

/// Returns the load of a run as long as `timeline`.
pub(crate) fn workload(bench: &Bench<'_>, timeline: &Timeline) -> Workload {
    Workload {
        seed: bench.seed,
        rate_per_s: bench.rate_per_s,
        length: timeline.end_at(),
        prefixes: PREFIXES,
        prefix_bytes: PREFIX_BYTES,
    }
}

/// Runs one cell.
///
/// # Errors
/// Returns an error if the run could not be carried out.
pub(crate) async fn run(
    bench: &Bench<'_>,
    policy: &PolicyChoice,
    fault: Fault,
    timeline: &Timeline,
) -> anyhow::Result<Cell> {
    // A replica that joins is the last one, which is not in the config at first.
    let victim = if fault == Fault::Added { REPLICAS - 1 } else { VICTIM };
    let spec = RunSpec {
        policy,
        replicas: REPLICAS,
        members: first_members(fault, victim, REPLICAS),
        health: bench.health.clone(),
        workload: workload(bench, timeline),
        steps: single(fault, victim, timeline),
    };
    let record = bench.run(&spec).await?;
    Ok(cell(&record, fault, victim, timeline))
}

fn cell(record: &RunRecord, fault: Fault, victim: u16, timeline: &Timeline) -> Cell {
    let latency =
        |phase: Range<Duration>| Latency::of(&record.observations, &phase, Failed::LeftOut);
    let traffic = &record.traffic;
    let (fault_at, settled_at) = (timeline.fault_at(), timeline.settled_at());
    let (recovery_at, end_at) = (timeline.recovery_at(), timeline.end_at());
    let in_fault = fault_at..recovery_at;
    let share_before = traffic.share(victim, &(timeline.warm_up..fault_at));
    // The due share: the share before, or an equal one for a replica that was not there.
    let due = match fault {
        Fault::Added => 1.0 / f64::from(REPLICAS),
        _ => share_before.unwrap_or_default(),
    };
    let tolerated = due * fault.tolerated_part();
    // Only faults that should take the victim out have times of that.
    let out = traffic.out_after(victim, &in_fault, tolerated).filter(|_| fault.takes_out());
    let last = traffic.last(victim, &in_fault).filter(|_| fault.takes_out());
    // A replica that joins has no recovery: its fault is that it is new.
    let back_from = if fault == Fault::Added { fault_at } else { recovery_at };
    let back = traffic.back_after(victim, &(back_from..end_at), due);
    let is_back_told = fault.takes_out() || matches!(fault, Fault::Added | Fault::Flapping);
    Cell {
        before: latency(timeline.warm_up..fault_at),
        transition: latency(fault_at..settled_at),
        during: latency(settled_at..recovery_at),
        after: latency(recovery_at..end_at),
        account: record.account.clone(),
        share_before,
        share_fault: traffic.share(victim, &in_fault),
        share_during: traffic.share(victim, &(settled_at..recovery_at)),
        out_s: out.map(|out| out.as_secs_f64()),
        last_s: last.map(|last| last.saturating_sub(fault_at).as_secs_f64()),
        back_s: back.filter(|_| is_back_told).map(|back| back.as_secs_f64()),
        retries: record.retries,
        conditions: record.conditions.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_fill_the_time() {
        for seconds in [8, 20, 60] {
            let timeline = timeline(seconds);
            let measured = timeline.end_at() - timeline.warm_up;
            assert!(measured.abs_diff(Duration::from_secs(seconds.into())).as_millis() <= 1);
            assert!(timeline.during >= timeline.transition / 2, "{timeline:?}");
        }
        assert_eq!(timeline(20).transition, TRANSITION);
    }
}
