//! Reports about replicas for operators.

use serde::Serialize;
use spillway_types::{ModelName, ModelStanding, PoolName, ReplicaName};

use crate::change_reason::ChangeReason;
use crate::verdict::{Verdict, Vote, Votes};

/// State of a replica in one word. If several hold, the one that operators must know first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// The replica has never answered, or its checks have not yet shown that it is ready.
    Starting,
    /// The replica is given warm-up prompts.
    WarmingUp,
    /// The replica serves with a growing share.
    Ramping,
    /// The replica serves with its full share.
    Serving,
    /// The replica serves with a small share, to see if it works again.
    Trial,
    /// The replica is kept in reserve.
    Standby,
    /// This node leaves the replica out for a while.
    Ejected,
    /// Independent signals agree that the replica is down.
    Down,
    /// The replica asked for a pause.
    Busy,
    /// The replica finishes its requests and gets no new ones.
    Draining,
    /// The replica has no requests left and gets none.
    Drained,
}

/// Report about one replica, a row of an operators' table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberReport {
    /// Name of the replica.
    pub name: ReplicaName,
    /// URL of the replica; empty until the caller fills in this field and the next.
    pub url: String,
    /// Models of the replica.
    pub models: Vec<ModelName>,
    /// Pool of the replica.
    pub pool: PoolName,
    /// Present state.
    pub state: MemberState,
    /// Reason of the present state, as in logs and metrics.
    pub why: ChangeReason,
    /// Reason of the present state in words; `None` for a replica that serves as usual.
    pub reason: Option<String>,
    /// Present admission of requests, as [`spillway_types::Admission::as_str`].
    pub admission: &'static str,
    /// Share of its weight that counts, in permille.
    pub ramp_permille: u16,
    /// Share of prompt tokens that recent replies had from its cache, 0 to 1; `None` if unknown.
    pub cached_share: Option<f32>,
    /// Verdict that follows from the votes.
    pub verdict: Verdict,
    /// Votes of this node, one for each kind of signal.
    pub votes: Votes,
    /// True if these votes speak against the replica. This node reports that to the region's other
    /// nodes, so their votes are not counted here.
    pub is_against: bool,
    /// True if the replica should be ejected, but enough of its pool are.
    pub is_spared: bool,
    /// Ejections that are not forgotten yet.
    pub ejections: u32,
    /// Faults in a row until now.
    pub faults_in_a_row: u32,
    /// Rest of the pause that the replica asked for, in milliseconds.
    pub busy_for_ms: Option<u64>,
    /// In-flight requests of this node at the replica, at the last tick.
    pub in_flight: u32,
    /// Concurrency limit that was learned for the replica, for all nodes of the region together;
    /// `None` if the config sets one. The caller fills it in.
    pub concurrency_limit: Option<u32>,
    /// Server software of the replica; `None` while unknown. The caller fills in this field and the
    /// next.
    pub kind: Option<&'static str>,
    /// True if the software was recognised by its own pages, not set in the config.
    pub is_kind_recognised: bool,
    /// Models that the replica says it serves; `None` before it has said so. The caller fills in
    /// this field and the next.
    pub models_told: Option<Vec<ModelName>>,
    /// Models that the replica should serve and says it does not have.
    pub models_denied: Vec<ModelName>,
    /// Status with which the replica refuses to show its models; `None` if it does not. The caller
    /// fills it in.
    pub models_status: Option<u16>,
    /// Time without a byte while requests were in flight, in milliseconds, at the last tick.
    pub silent_for_ms: Option<u64>,
    /// Age of the newest load report, in milliseconds.
    pub report_age_ms: Option<u64>,
    /// Average time to first token of streams that went well, in milliseconds.
    pub latency_ms: Option<f32>,
    /// 99th percentile of that time, in milliseconds.
    pub p99_ms: Option<f32>,
    /// Median of that average of others that serve one of its models, if this replica is much slower;
    /// `None` if it is not. [`crate::compare_first_tokens`] fills it in.
    pub slower_than_ms: Option<f32>,
    /// Requests that wait at the replica, by its report.
    pub queued: Option<f32>,
    /// Results of the checks.
    pub checks: Vec<CheckReport>,
    /// Circuit breakers of the models that clients asked for.
    pub breakers: Vec<CircuitBreakerReport>,
    /// The newest faults of requests, newest first.
    pub faults: Vec<FaultReport>,
}

/// Results of one kind of check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Kind of check, as [`crate::Check::as_str`].
    pub check: &'static str,
    /// Vote of the check.
    pub vote: Vote,
    /// Age of the newest result, in milliseconds.
    pub age_ms: Option<u64>,
    /// Newest fault, as [`crate::CheckError::as_str`].
    pub last_fault: Option<&'static str>,
    /// Age of that fault, in milliseconds.
    pub last_fault_age_ms: Option<u64>,
}

/// State of the circuit breaker of one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CircuitBreakerReport {
    /// Name of the model.
    pub model: ModelName,
    /// State: `closed`, `open` or `trial`.
    pub state: &'static str,
    /// Requests within the breaker's window, while it is closed.
    pub requests: u32,
    /// Faults among those requests.
    pub faults: u32,
}

/// Fault of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultReport {
    /// Name of the fault, as [`spillway_types::SignFault::as_str`].
    pub fault: &'static str,
    /// Age of the fault, in milliseconds.
    pub age_ms: u64,
}

/// Returns the name of a breaker's state.
pub(crate) fn breaker_state(standing: Option<ModelStanding>) -> &'static str {
    match standing {
        None => "closed",
        Some(ModelStanding::Open) => "open",
        Some(ModelStanding::Trial) => "trial",
    }
}

impl MemberState {
    /// Returns the state's name in metrics and logs.
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
