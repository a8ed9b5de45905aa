//! What operators see of a replica.

use serde::Serialize;
use spillway_types::{ModelName, ModelStanding, PoolName, ReplicaName};

use crate::verdict::{Verdict, Vote, Votes};

/// Where a replica is, in one word. Where several hold, the one that operators have to know first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// Its checks have not shown yet that it is ready.
    Starting,
    /// It is given warm-up prompts.
    WarmingUp,
    /// It serves with a growing share.
    Ramping,
    /// It serves with its full share.
    Serving,
    /// It serves with a small share, to see whether it works again.
    Trial,
    /// It is kept in reserve.
    Standby,
    /// This node leaves it out for a while.
    Ejected,
    /// Independent signals agree that it is down.
    Down,
    /// It asked to be left alone for a while.
    Busy,
    /// It finishes what it has.
    Draining,
    /// It has nothing left and gets nothing.
    Drained,
}

/// One line of an operators' table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberReport {
    /// Its name.
    pub name: ReplicaName,
    /// Its pool.
    pub pool: PoolName,
    /// Where it is.
    pub state: MemberState,
    /// What led there.
    pub why: &'static str,
    /// Whether it takes requests, as [`spillway_types::Admission::as_str`].
    pub admission: &'static str,
    /// Share of its weight that counts.
    pub ramp_permille: u16,
    /// Share of prompt tokens that recent replies had from its cache, 0 to 1.
    pub cached_share: Option<f32>,
    /// What follows from the votes.
    pub verdict: Verdict,
    /// What each kind of signal says.
    pub votes: Votes,
    /// Whether these speak against it: what this node tells the region's others, whose word is no
    /// part of it.
    pub is_against: bool,
    /// Whether it should be ejected, and is not since enough of its pool are.
    pub is_spared: bool,
    /// Times that it was left out and that are not forgotten yet.
    pub ejections: u32,
    /// Faults in a row, up to now.
    pub faults_in_a_row: u32,
    /// How much longer it is left alone at its own wish.
    pub busy_for_ms: Option<u64>,
    /// Requests of this node in flight there, at the last tick.
    pub in_flight: u32,
    /// Most requests that the region's nodes together give it, by what was found out; `None` if a
    /// config says it. Whoever looks after that fills it in.
    pub concurrency_limit: Option<u32>,
    /// The software that it runs; `None` while nobody knows. Whoever knows fills this and the next in.
    pub kind: Option<&'static str>,
    /// It was recognised by its own pages, as the config does not say it.
    pub is_kind_recognised: bool,
    /// The models that it says it serves; `None` while it has said nothing. Whoever reads its page fills
    /// this and the next in.
    pub models_told: Option<Vec<ModelName>>,
    /// Models that it should serve, and says it does not have.
    pub models_denied: Vec<ModelName>,
    /// How long it had sent nothing to them, at the last tick.
    pub silent_for_ms: Option<u64>,
    /// Age of its newest load report.
    pub report_age_ms: Option<u64>,
    /// Average time to first byte.
    pub latency_ms: Option<f32>,
    /// 99th percentile of the time to first byte.
    pub p99_ms: Option<f32>,
    /// Requests that wait there, as reported.
    pub queued: Option<f32>,
    /// Its checks.
    pub checks: Vec<CheckReport>,
    /// Models that were asked for.
    pub breakers: Vec<BreakerReport>,
    /// The newest faults of requests, newest first.
    pub faults: Vec<FaultReport>,
}

/// What one kind of check has shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Which kind, as [`crate::Check::as_str`].
    pub check: &'static str,
    /// What it says.
    pub vote: Vote,
    /// Age of its newest result.
    pub age_ms: Option<u64>,
    /// Its newest fault, as [`crate::CheckFault::as_str`].
    pub last_fault: Option<&'static str>,
    /// Age of that fault.
    pub last_fault_age_ms: Option<u64>,
}

/// The breaker of one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BreakerReport {
    /// The model.
    pub model: ModelName,
    /// `closed`, `open` or `trial`.
    pub state: &'static str,
    /// Requests within its window, while closed.
    pub requests: u32,
    /// Faults among them.
    pub faults: u32,
}

/// A fault of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultReport {
    /// Which, as [`spillway_types::Fault::as_str`].
    pub fault: &'static str,
    /// How long ago.
    pub age_ms: u64,
}

/// Name of a breaker's state.
pub(crate) fn breaker_state(standing: Option<ModelStanding>) -> &'static str {
    match standing {
        None => "closed",
        Some(ModelStanding::Open) => "open",
        Some(ModelStanding::Trial) => "trial",
    }
}

impl MemberState {
    /// Name as it stands in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::WarmingUp => "warming_up",
            Self::Ramping => "ramping",
            Self::Serving => "serving",
            Self::Trial => "trial",
            Self::Standby => "standby",
            Self::Ejected => "ejected",
            Self::Down => "down",
            Self::Busy => "busy",
            Self::Draining => "draining",
            Self::Drained => "drained",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_the_same_name_in_logs_and_in_reports() {
        use MemberState::{
            Busy, Down, Drained, Draining, Ejected, Ramping, Serving, Standby, Starting, Trial,
            WarmingUp,
        };
        for state in [
            Starting, WarmingUp, Ramping, Serving, Trial, Standby, Ejected, Down, Busy, Draining,
            Drained,
        ] {
            let json = serde_json::to_string(&state).unwrap();
            assert_eq!(json, format!("\"{}\"", state.as_str()));
        }
    }
}
