//! Why a request is turned away that might have been served at another time.

use serde::Serialize;

/// Why a request is shed: for the client, logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShedReason {
    /// The queue takes no more, and no other region shows room.
    QueueFull,
    /// It waited, and a more urgent one took its place in a full queue.
    PushedOut,
    /// It waited as long as the queue lets requests wait.
    Waited,
    /// No replica is in reach, here or elsewhere.
    NobodyInReach,
    /// Its first token would come later, wherever it went, than the route's objective says.
    Slo,
    /// Its deadline would pass, or has passed, before its turn.
    Late,
    /// It came from another region, which can look further, and there is no room.
    GuestWithoutRoom,
    /// All replicas asked to be left alone for a while.
    ReplicaBusy,
    /// Too few replicas are healthy, and what they can do is for more urgent requests.
    Degraded,
    /// A limit on requests per second.
    RequestRate,
    /// A limit on tokens per minute.
    TokenRate,
    /// A limit on requests at the same time.
    Concurrency,
    /// Too many connections.
    Connections,
    /// Too much memory is in use.
    Memory,
    /// The node is about to end.
    Draining,
}

impl ShedReason {
    /// All of them, e.g. for the labels of a metric.
    pub const ALL: [Self; 15] = [
        Self::QueueFull,
        Self::PushedOut,
        Self::Waited,
        Self::NobodyInReach,
        Self::Slo,
        Self::Late,
        Self::GuestWithoutRoom,
        Self::ReplicaBusy,
        Self::Degraded,
        Self::RequestRate,
        Self::TokenRate,
        Self::Concurrency,
        Self::Connections,
        Self::Memory,
        Self::Draining,
    ];

    /// The name used in headers, logs and metric labels, e.g. `queue_full`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::PushedOut => "pushed_out",
            Self::Waited => "waited",
            Self::NobodyInReach => "nobody_in_reach",
            Self::Slo => "slo",
            Self::Late => "late",
            Self::GuestWithoutRoom => "guest_without_room",
            Self::ReplicaBusy => "replica_busy",
            Self::Degraded => "degraded",
            Self::RequestRate => "request_rate",
            Self::TokenRate => "token_rate",
            Self::Concurrency => "concurrency",
            Self::Connections => "connections",
            Self::Memory => "memory",
            Self::Draining => "draining",
        }
    }

    /// Whether the client has used up what it may have, which is answered 429. All others are no fault
    /// of the client, and answered 503.
    #[must_use]
    pub fn is_limit(self) -> bool {
        matches!(self, Self::RequestRate | Self::TokenRate | Self::Concurrency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_those_that_serde_writes() {
        let mut names: Vec<&str> = ShedReason::ALL.iter().map(|reason| reason.name()).collect();
        for (reason, name) in ShedReason::ALL.iter().zip(&names) {
            assert_eq!(serde_json::to_value(reason).unwrap(), *name);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ShedReason::ALL.len());
    }

    #[test]
    fn only_limits_of_the_client_are_answered_as_such() {
        let limits: Vec<_> = ShedReason::ALL.into_iter().filter(|one| one.is_limit()).collect();
        assert_eq!(
            limits,
            [ShedReason::RequestRate, ShedReason::TokenRate, ShedReason::Concurrency]
        );
    }
}
