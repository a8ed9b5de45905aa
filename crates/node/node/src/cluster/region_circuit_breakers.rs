//! Circuit breakers of other regions: which regions get requests, by the outcomes of earlier ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use spillway_health::{RegionCircuitBreaker, RegionPass, RegionTally};
use spillway_types::RegionName;
use spillway_view::SharedRegionCircuitBreaker;

/// Circuit breaker of each other region that requests could be sent to.
#[derive(Debug)]
pub(super) struct RegionCircuitBreakers {
    regions: BTreeMap<RegionName, Tracked>,
    dice: fastrand::Rng,
}

#[derive(Debug)]
struct Tracked {
    circuit: Arc<SharedRegionCircuitBreaker>,
    breaker: RegionCircuitBreaker,
    /// Time since which operators give the region a weight above 0; `None` while they don't.
    allowed_since: Option<Instant>,
    /// True if operators allowed the region when this node first saw it: then it did not return.
    was_always_allowed: bool,
}

impl RegionCircuitBreakers {
    pub(super) fn new(dice: fastrand::Rng) -> Self {
        Self { regions: BTreeMap::new(), dice }
    }

    /// Updates a region's breaker by the outcomes of its requests. `weight_permille` is the weight
    /// that operators give the region. Returns its breaker, and since when it may have its share again
    /// after operators or the breaker took it away.
    pub(super) fn look(
        &mut self,
        region: &RegionName,
        weight_permille: u16,
        now: Instant,
    ) -> (Arc<SharedRegionCircuitBreaker>, Option<Instant>) {
        let is_allowed = weight_permille > 0;
        let tracked = self.regions.entry(region.clone()).or_insert_with(|| Tracked {
            circuit: Arc::default(),
            breaker: RegionCircuitBreaker::new(now),
            allowed_since: is_allowed.then_some(now),
            was_always_allowed: is_allowed,
        });
        if !is_allowed {
            tracked.allowed_since = None;
            tracked.was_always_allowed = false;
        } else if tracked.allowed_since.is_none() {
            tracked.allowed_since = Some(now);
        }
        let (goods, faults) = tracked.circuit.tally();
        let pass = tracked.breaker.update(now, RegionTally { goods, faults }, &mut self.dice);
        match pass {
            Some(RegionPass::All) => tracked.circuit.open(),
            Some(RegionPass::None) => tracked.circuit.allow(0),
            Some(RegionPass::Few(requests)) => tracked.circuit.allow(requests),
            None => {}
        }
        if let Some(pass) = pass {
            tracing::info!(%region, ?pass, goods, faults, "the circuit breaker of a region changed");
        }
        let allowed = tracked.allowed_since.filter(|_| !tracked.was_always_allowed);
        // The ramp begins when the last of both stopped holding the region back.
        let since = allowed.into_iter().chain(tracked.breaker.closed_at()).max();
        (Arc::clone(&tracked.circuit), since)
    }

    /// Forgets regions that no longer exist.
    pub(super) fn keep(&mut self, is_known: impl Fn(&RegionName) -> bool) {
        self.regions.retain(|region, _| is_known(region));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_evacuated_region_comes_back_like_one_that_was_silent() {
        let (start, region) = (Instant::now(), RegionName::from("us"));
        let after = |s| start + Duration::from_secs(s);
        let mut breakers = RegionCircuitBreakers::new(fastrand::Rng::with_seed(1));
        let mut since = |weight, s| breakers.look(&region, weight, after(s)).1;
        assert_eq!(since(1_000, 0), None);
        assert_eq!(since(500, 1), None, "another share is no return");
        assert_eq!(since(0, 2), None);
        assert_eq!(since(1_000, 60), Some(after(60)));
        assert_eq!(since(1_000, 61), Some(after(60)));
    }

    #[test]
    fn a_region_that_never_had_anything_begins_with_little() {
        let (start, region) = (Instant::now(), RegionName::from("us"));
        let mut breakers = RegionCircuitBreakers::new(fastrand::Rng::with_seed(1));
        assert_eq!(breakers.look(&region, 0, start).1, None);
        assert_eq!(breakers.look(&region, 1, start).1, Some(start));
    }

    #[test]
    fn a_region_that_is_forgotten_begins_anew() {
        let (start, region) = (Instant::now(), RegionName::from("us"));
        let mut breakers = RegionCircuitBreakers::new(fastrand::Rng::with_seed(1));
        breakers.look(&region, 0, start);
        let (breaker, _) = breakers.look(&region, 1_000, start);
        breakers.keep(|known| *known == region);
        assert!(Arc::ptr_eq(&breaker, &breakers.look(&region, 1_000, start).0));
        breakers.keep(|_| false);
        let (anew, since) = breakers.look(&region, 1_000, start);
        assert!(!Arc::ptr_eq(&breaker, &anew));
        assert_eq!(since, None);
    }
}
