//! Causes of failures that the gateway records and no client is sent: one table of code and meaning,
//! beside that of errors.

use spillway_types::{reasons, sentence};

use super::ErrorKind;

reasons! {
    /// Cause for which a request, or one try of it, failed without an error of the gateway's own.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum FailureCause {
        /// A replica, here or in another region, replied with its own error, which was forwarded.
        ReplicaError = "replica_error";
        /// The node closed the client's connection, or its HTTP/2 stream, because the client read
        /// nothing of its reply for too long, or sent more resets or control frames than a legitimate
        /// client.
        ConnectionClosed = "connection_closed";
        /// The node stopped before the request had ended.
        NodeStopped = "node_stopped";
        /// The replica or its region was drained, and the stream moved to another one.
        Drained = "drained";
        /// There was no connection to the region.
        RegionUnreachable = "region_unreachable";
        /// The region's circuit breaker was open.
        RegionCircuitOpen = "region_circuit_open";
        /// The region's node was about to stop.
        RegionLeaving = "region_leaving";
        /// The region had no capacity for the request.
        RegionFull = "region_full";
        /// The region accepted the request, but none of its replicas could serve it.
        RegionFailed = "region_failed";
        /// The region fell silent while its reply was waited for.
        RegionLost = "region_lost";
        /// The connection to the region broke before its reply, or the reply was not in time.
        RegionBroken = "region_broken";
    }
}

impl FailureCause {
    /// Returns the code in records.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.name()
    }
}

/// Returns the code of a failure that another process named, as this release knows it; `None` for a
/// code that is not known.
#[must_use]
pub fn known_code(code: &str) -> Option<&'static str> {
    codes().find(|known| *known == code)
}

/// Returns what the code of a failure means, without a full stop; `None` for a code that is not known.
#[must_use]
pub fn code_meaning(code: &str) -> Option<&'static str> {
    meanings().find(|(known, _)| *known == code).map(|(_, meaning)| meaning)
}

/// Returns all codes that a record can have.
pub fn codes() -> impl Iterator<Item = &'static str> {
    meanings().map(|(code, _)| code)
}

fn meanings() -> impl Iterator<Item = (&'static str, &'static str)> {
    let errors = ErrorKind::ALL.iter().map(|kind| (kind.code(), sentence(kind.meaning())));
    errors.chain(FailureCause::ALL.map(|cause| (cause.name(), cause.text())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_failures_have_one_code_and_each_says_what_it_means() {
        let all: Vec<&str> = codes().collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        for code in all {
            assert_eq!(known_code(code), Some(code));
            let meaning = code_meaning(code).expect("a meaning");
            assert!(!meaning.is_empty() && !meaning.ends_with('.'), "{code}: {meaning}");
        }
        assert_eq!((known_code("full_moon"), code_meaning("full_moon")), (None, None));
    }
}
