//! Reasons why a request is refused that might have been served at another time.

use serde::Serialize;
use spillway_types::reasons;

reasons! {
    /// Reason why a request is shed, for the client, logs and metrics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ShedReason {
        /// The queue is full, and no other region shows room.
        QueueFull = "queue_full",
            "overloaded" "all replicas are busy and the queue is full";
        /// The queue was full, and a more urgent request, or one of a tenant with less in the queue,
        /// took the place.
        PushedOut = "pushed_out",
            "overloaded" "the queue is full, and another request took this one's place";
        /// The request waited as long as it may, or was certain to wait longer.
        Waited = "waited",
            "overloaded" "no replica has a free slot within the time that the request may wait";
        /// No replica is left to ask, here or in a reachable region.
        NobodyInReach = "nobody_in_reach",
            "no_replica" "no replica that could serve the request is reachable";
        /// The first token would come later than the route's objective in every region.
        Slo = "slo",
            "overloaded" "the first token would come later than this route allows";
        /// The deadline has passed, or would pass before the request is served.
        Late = "late",
            "deadline_exceeded" "the deadline would pass before a replica has a free slot";
        /// This region has no room for a request that another region forwarded.
        GuestWithoutRoom = "guest_without_room",
            "overloaded" "this region has no room for requests from other regions";
        /// All replicas are overloaded, at their limit or in a pause that they asked for.
        ReplicaBusy = "replica_busy",
            "overloaded" "all replicas are overloaded";
        /// Too few replicas are healthy, and more urgent requests need them.
        Degraded = "degraded",
            "overloaded" "too few replicas are healthy to serve requests of this class";
        /// A rate limit on requests is used up.
        RequestRate = "request_rate",
            "rate_limited" "the rate limit on requests is used up";
        /// A rate limit on tokens is used up.
        TokenRate = "token_rate",
            "rate_limited" "the rate limit on tokens is used up";
        /// A limit on concurrent requests is used up.
        Concurrency = "concurrency",
            "rate_limited" "the limit on concurrent requests is used up";
        /// The budget of the tenant is spent.
        Budget = "budget",
            "budget_spent" "the budget is spent";
        /// The node's memory for requests, or the client's share of it, is used up.
        Memory = "memory",
            "overloaded" "this node has no memory left for requests";
    }
}

impl ShedReason {
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
