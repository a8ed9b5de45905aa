//! Last known answer of a source, and the effect of a new one.

use std::time::Duration;

use tokio::time::Instant;

use super::DiscoveredEndpoint;

/// Result of a look-up.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DiscoveryAnswer {
    /// Endpoints, and the time for which they are valid.
    Endpoints(Vec<DiscoveredEndpoint>, Duration),
    /// The server knows that there are no endpoints.
    Empty,
    /// The look-up failed, for this reason.
    Failed(String),
}

/// Grace of a set that becomes empty: it is emptied only when every answer was empty for so long.
/// Covers a deployment that removes the old replicas before the new ones come, and a file that is
/// empty while it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmptyGrace {
    grace: Duration,
    /// Time since which every answer has been empty.
    since: Option<Instant>,
}

impl EmptyGrace {
    /// Makes a grace of this length.
    #[must_use]
    pub fn new(grace: Duration) -> Self {
        Self { grace, since: None }
    }

    /// Notes an answer that lists replicas, which ends the grace.
    pub fn note_some(&mut self) {
        self.since = None;
    }

    /// Notes an empty answer. Returns the time at which a set that has replicas is emptied.
    pub fn note_empty(&mut self, now: Instant) -> Instant {
        *self.since.get_or_insert(now) + self.grace
    }
}

/// Last known set of endpoints.
#[derive(Debug)]
pub(super) struct Known {
    endpoints: Option<Vec<DiscoveredEndpoint>>,
    grace: EmptyGrace,
}

impl Known {
    /// Makes an unknown set. A known set is emptied only after empty answers for `empty_grace`.
    pub(super) fn new(empty_grace: Duration) -> Self {
        Self { endpoints: None, grace: EmptyGrace::new(empty_grace) }
    }

    /// Takes an answer in. Returns the new set if the answer changed it.
    pub(super) fn note(
        &mut self,
        answer: DiscoveryAnswer,
        now: Instant,
    ) -> Option<Vec<DiscoveredEndpoint>> {
        let next = match answer {
            // A failure proves neither that there are endpoints nor that there are none.
            DiscoveryAnswer::Failed(_) => return None,
            DiscoveryAnswer::Empty => {
                let emptied_at = self.grace.note_empty(now);
                let has_some = self.endpoints.as_ref().is_some_and(|known| !known.is_empty());
                if has_some && now < emptied_at {
                    return None;
                }
                Vec::new()
            }
            DiscoveryAnswer::Endpoints(endpoints, _) => {
                self.grace.note_some();
                self.normal(endpoints)
            }
        };
        if self.endpoints.as_ref() == Some(&next) {
            return None;
        }
        self.endpoints = Some(next.clone());
        Some(next)
    }

    /// Sorts the endpoints, removes repetitions, and fills in the last known address where the
    /// answer has none.
    fn normal(&self, mut endpoints: Vec<DiscoveredEndpoint>) -> Vec<DiscoveredEndpoint> {
        let known = self.endpoints.as_deref().unwrap_or_default();
        for endpoint in endpoints.iter_mut().filter(|endpoint| endpoint.address.is_none()) {
            let same =
                |old: &&DiscoveredEndpoint| old.host == endpoint.host && old.port == endpoint.port;
            endpoint.address = known.iter().find(same).and_then(|old| old.address);
        }
        endpoints.sort();
        endpoints.dedup();
        endpoints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    fn endpoint(host: &str, address: Option<&str>) -> DiscoveredEndpoint {
        let address = address.map(|address| address.parse().unwrap());
        DiscoveredEndpoint { host: host.to_owned(), address, port: 1, weight: 1 }
    }

    fn some(endpoints: &[DiscoveredEndpoint]) -> DiscoveryAnswer {
        DiscoveryAnswer::Endpoints(endpoints.to_vec(), Duration::ZERO)
    }

    fn failed() -> DiscoveryAnswer {
        DiscoveryAnswer::Failed("x".to_owned())
    }

    #[test]
    fn only_changes_are_told_whatever_the_order() {
        let (a, b) = (endpoint("a", None), endpoint("b", None));
        let mut known = Known::new(GRACE);
        let now = Instant::now();
        let both = vec![a.clone(), b.clone()];
        assert_eq!(known.note(some(&[b.clone(), a.clone(), b.clone()]), now), Some(both));
        assert_eq!(known.note(some(&[a.clone(), b]), now), None);
        assert_eq!(known.note(some(std::slice::from_ref(&a)), now), Some(vec![a]));
    }

    #[test]
    fn failures_change_nothing_however_long_they_last() {
        let a = endpoint("a", None);
        let mut known = Known::new(GRACE);
        let now = Instant::now();
        assert_eq!(known.note(failed(), now), None);
        known.note(some(&[a]), now);
        assert_eq!(known.note(failed(), now + 10 * GRACE), None);
    }

    #[test]
    fn a_set_is_emptied_only_by_empty_answers_that_outlast_the_grace() {
        let a = endpoint("a", None);
        let mut known = Known::new(GRACE);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        known.note(some(std::slice::from_ref(&a)), at(0));
        assert_eq!(known.note(DiscoveryAnswer::Empty, at(10)), None);
        assert_eq!(known.note(failed(), at(45)), None, "a failure confirms nothing");
        assert_eq!(known.note(some(&[a]), at(46)), None);
        assert_eq!(known.note(DiscoveryAnswer::Empty, at(50)), None, "the grace starts anew");
        assert_eq!(known.note(DiscoveryAnswer::Empty, at(79)), None);
        assert_eq!(known.note(DiscoveryAnswer::Empty, at(80)), Some(vec![]));
        assert_eq!(known.note(DiscoveryAnswer::Empty, at(90)), None);
    }

    #[test]
    fn an_empty_first_answer_is_told_at_once() {
        let mut known = Known::new(GRACE);
        assert_eq!(known.note(DiscoveryAnswer::Empty, Instant::now()), Some(vec![]));
    }

    #[test]
    fn an_address_that_could_not_be_had_again_stays() {
        let mut known = Known::new(GRACE);
        let now = Instant::now();
        let with = endpoint("a", Some("10.0.0.1"));
        assert_eq!(known.note(some(&[endpoint("a", None)]), now), Some(vec![endpoint("a", None)]));
        assert_eq!(known.note(some(std::slice::from_ref(&with)), now), Some(vec![with.clone()]));
        assert_eq!(known.note(some(&[endpoint("a", None)]), now), None);
        let moved = endpoint("a", Some("10.0.0.2"));
        assert_eq!(known.note(some(std::slice::from_ref(&moved)), now), Some(vec![moved]));
    }
}
