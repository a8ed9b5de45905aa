//! Reasons why a request is refused that might have been served at another time.

use serde::Serialize;

/// Reason why a request is shed, for the client, logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShedReason {
    /// The queue is full, and no other region shows room.
    QueueFull,
    /// A more urgent request took the place of this one in a full queue.
    PushedOut,
    /// The request waited as long as the queue allows.
    Waited,
    /// No replica is in reach, here or in another region.
    NobodyInReach,
    /// The first token would come later than the route's objective in every region.
    Slo,
    /// The deadline would pass, or has passed, before the request's turn.
    Late,
    /// There is no room for a request from another region, which can look further.
    GuestWithoutRoom,
    /// All replicas asked to be left alone for a while.
    ReplicaBusy,
    /// Too few replicas are healthy, and more urgent requests need them.
    Degraded,
    /// A rate limit on requests per second.
    RequestRate,
    /// A rate limit on tokens per minute.
    TokenRate,
    /// A limit on requests at the same time.
    Concurrency,
    /// A budget of money for a day or a month.
    Budget,
    /// Too many connections are open.
    Connections,
    /// Too much memory is in use.
    Memory,
    /// The node is about to stop.
    Draining,
}

impl ShedReason {
    /// All reasons, e.g. for the labels of a metric.
    pub const ALL: [Self; 16] = [
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
        Self::Budget,
        Self::Connections,
        Self::Memory,
        Self::Draining,
    ];

    /// Returns the name used in headers, logs and metric labels, e.g. `queue_full`.
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
            Self::Budget => "budget",
            Self::Connections => "connections",
            Self::Memory => "memory",
            Self::Draining => "draining",
        }
    }

    /// Returns true if the reason of that name is a lack of room, which other regions may have.
    /// False for a limit of the client, a deadline of its own choice, or a replica that is down.
    #[must_use]
    pub fn is_lack_of_room(name: &str) -> bool {
        let reasons = [
            Self::QueueFull,
            Self::PushedOut,
            Self::Waited,
            Self::Slo,
            Self::ReplicaBusy,
            Self::Degraded,
            Self::Memory,
        ];
        reasons.iter().any(|reason| reason.name() == name)
    }

    /// Returns true if the client has used up a limit, which is answered with 429. For all other
    /// reasons the client is not at fault, and the answer is 503.
    #[must_use]
    pub fn is_limit(self) -> bool {
        matches!(self, Self::RequestRate | Self::TokenRate | Self::Concurrency | Self::Budget)
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
            [
                ShedReason::RequestRate,
                ShedReason::TokenRate,
                ShedReason::Concurrency,
                ShedReason::Budget
            ]
        );
    }
}
