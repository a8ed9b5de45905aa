//! Circuit breaker of another region: requests report results, a judge of regions opens and shuts
//! the breaker.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::remote::RemoteError;

/// Number of passes that lets every request through.
const OPEN: u32 = u32::MAX;

/// Circuit breaker of another region, shared by all workers. An open breaker lets requests through.
#[derive(Debug)]
pub struct SharedRegionCircuitBreaker {
    /// Requests that may still pass: none, a few probes, or [`OPEN`] for all.
    passes: AtomicU32,
    goods: AtomicU64,
    faults: AtomicU64,
}

impl Default for SharedRegionCircuitBreaker {
    fn default() -> Self {
        Self { passes: AtomicU32::new(OPEN), goods: AtomicU64::new(0), faults: AtomicU64::new(0) }
    }
}

impl SharedRegionCircuitBreaker {
    /// Lets all requests through from now on.
    pub fn open(&self) {
        self.passes.store(OPEN, Ordering::Relaxed);
    }

    /// Lets this number of requests through and no more; 0 shuts the breaker.
    pub fn allow(&self, requests: u32) {
        // `OPEN` itself would let all requests through.
        self.passes.store(requests.min(OPEN - 1), Ordering::Relaxed);
    }

    /// Returns true if a request may pass.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.passes.load(Ordering::Relaxed) > 0
    }

    /// Returns two totals since start: requests that the region answered, and requests that failed
    /// in transit or there.
    #[must_use]
    pub fn tally(&self) -> (u64, u64) {
        (self.goods.load(Ordering::Relaxed), self.faults.load(Ordering::Relaxed))
    }

    /// Takes a pass for one request; returns `false` if there is none.
    pub fn pass(&self) -> bool {
        let one_less = |passes: u32| match passes {
            OPEN => Some(OPEN),
            passes => passes.checked_sub(1),
        };
        self.passes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    /// Counts a request that the region answered.
    pub fn answered(&self) {
        self.goods.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that the region failed to serve.
    pub fn faulted(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was not answered, by its failure. A refusal because the region is busy
    /// or not allowed counts as an answer; the end of the client's time and faults of this node do
    /// not count.
    pub fn failed(&self, failure: &RemoteError) {
        match failure {
            RemoteError::Refused { why, .. } if why.is_well() => self.answered(),
            RemoteError::Refused { .. } | RemoteError::Unsent(_) | RemoteError::Broken(_) => {
                self.faulted();
            }
            // A missing connection and a silent region are noticed and handled elsewhere.
            RemoteError::NotConnected
            | RemoteError::Lost
            | RemoteError::Leaving
            | RemoteError::DeadlinePassed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::RefusedFor;

    #[test]
    fn a_few_go_through_and_then_none() {
        let breaker = SharedRegionCircuitBreaker::default();
        assert!((0..100).all(|_| breaker.pass()));
        breaker.allow(2);
        assert!(breaker.is_open());
        assert_eq!([(); 3].map(|()| breaker.pass()), [true, true, false]);
        assert!(!breaker.is_open());
        breaker.open();
        assert!(breaker.pass() && breaker.is_open());
        breaker.allow(u32::MAX);
        assert!(breaker.pass() && breaker.passes.load(Ordering::Relaxed) == OPEN - 2, "not all");
    }

    #[test]
    fn a_busy_region_answers_and_one_that_can_t_serve_does_not() {
        let breaker = SharedRegionCircuitBreaker::default();
        let refused = |why| RemoteError::Refused { text: "", wait: None, why };
        for (failure, expected) in [
            (refused(RefusedFor::Load), (1, 0)),
            (refused(RefusedFor::Residency), (2, 0)),
            (RemoteError::Leaving, (2, 0)),
            (RemoteError::DeadlinePassed, (2, 0)),
            (refused(RefusedFor::Other), (2, 1)),
            (RemoteError::NotConnected, (2, 1)),
            (RemoteError::Unsent("gone".into()), (2, 2)),
            (RemoteError::Broken("gone".into()), (2, 3)),
        ] {
            breaker.failed(&failure);
            assert_eq!(breaker.tally(), expected, "{failure}");
        }
    }
}
