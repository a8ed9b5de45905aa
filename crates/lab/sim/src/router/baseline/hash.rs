//! Consistent hashing of sessions, with and without bounded loads.

use super::ring::Ring;
use super::rule::Rule;
use super::view::{Choice, View};

/// Greatest load by the mean load: the usual factor, as in brpc's and Envoy's examples and KubeAI.
const LOAD_FACTOR: f64 = 1.25;

/// Rule that sends each session to its replica on a ring, as Envoy's `ring_hash` does.
#[derive(Debug)]
pub(super) struct SessionHash {
    ring: Ring,
}

impl SessionHash {
    pub(super) fn new(replicas: usize) -> Self {
        Self { ring: Ring::new(replicas) }
    }
}

impl Rule for SessionHash {
    fn choose(&mut self, view: &View<'_>, _rng: &mut fastrand::Rng) -> Choice {
        let is_open = |replica| !view.tried.contains(&replica);
        self.ring.next(view.key(), is_open).map_or(Choice::Stay, Choice::Replica)
    }
}

/// Rule of consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, SODA 2018,
/// arXiv 1608.01350): the first replica on the ring, from the session's point on, that has at most
/// 1.25 times the mean of requests with this one.
#[derive(Debug)]
pub(super) struct BoundedHash {
    ring: Ring,
}

impl BoundedHash {
    pub(super) fn new(replicas: usize) -> Self {
        Self { ring: Ring::new(replicas) }
    }
}

impl Rule for BoundedHash {
    fn choose(&mut self, view: &View<'_>, _rng: &mut fastrand::Rng) -> Choice {
        let all: u32 = view.open().map(|replica| view.load(replica)).sum();
        let mean = f64::from(all + 1) / view.open().count() as f64;
        let bound = (LOAD_FACTOR * mean).ceil();
        let has_room =
            |replica| !view.tried.contains(&replica) && f64::from(view.load(replica) + 1) <= bound;
        let preferred = self.ring.next(view.key(), has_room);
        preferred.or_else(|| view.least_loaded()).map_or(Choice::Stay, Choice::Replica)
    }
}
