//! Switches that operators, reloads and tasks of the node turn while it runs.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use spillway_types::{AwayReason, Steering};

/// Share of traces that is all of them.
const TRACES_ALL: u64 = 1_000_000;

/// States of a node that is about to end: it finishes its requests, and then breaks off those left.
const LEAVING: usize = 1;
const ENDING: usize = 2;

/// Switches of the node, which a request reads in a moment.
///
/// A reload sets what replies and traces contain, the task that steers clients sets the steering,
/// the follower of the cluster's keys sets whether this node is misled, and the end of the node
/// announces itself here.
#[derive(Debug)]
pub struct Switches {
    /// True if the config that was loaded last exposes routing.
    expose_routing: AtomicBool,
    /// Share of the new traces that are recorded, in parts of [`TRACES_ALL`].
    trace_share: AtomicU64,
    /// Steering of clients as [`Steering::code`].
    steering: AtomicU8,
    /// True while this node receives the cluster's messages but can't follow them.
    is_misled: AtomicBool,
    /// 0, [`LEAVING`] or [`ENDING`].
    leaving: AtomicUsize,
}

impl Switches {
    /// Returns the switches of a node that starts.
    pub(super) fn new(expose_routing: bool) -> Self {
        Self {
            expose_routing: AtomicBool::new(expose_routing),
            trace_share: AtomicU64::new(0),
            // No client is to come before the node is ready.
            steering: AtomicU8::new(Steering::Away(AwayReason::Starting).code()),
            is_misled: AtomicBool::new(false),
            leaving: AtomicUsize::new(0),
        }
    }

    /// Returns true if replies carry `x-spillway-*` headers on their routing.
    pub fn exposes_routing(&self) -> bool {
        self.expose_routing.load(Ordering::Relaxed)
    }

    /// Shows or hides those headers, in replies that begin from now on.
    pub fn set_expose_routing(&self, expose_routing: bool) {
        self.expose_routing.store(expose_routing, Ordering::Relaxed);
    }

    /// Records this share of the traces that begin here from now on, 0 to 1.
    pub fn set_trace_share(&self, share: f64) {
        self.trace_share.store((share * TRACES_ALL as f64) as u64, Ordering::Relaxed);
    }

    /// Draws whether a trace that begins here is recorded.
    pub fn draws_trace(&self, dice: &mut fastrand::Rng) -> bool {
        let share = self.trace_share.load(Ordering::Relaxed);
        share > 0 && dice.u64(..TRACES_ALL) < share
    }

    /// Returns the steering of new clients: to this node or away from it.
    #[must_use]
    pub fn steering(&self) -> Steering {
        if self.is_leaving() {
            // At once, not with the next sample: no client is to come to a node that ends.
            return Steering::Away(AwayReason::Draining);
        }
        Steering::of_code(self.steering.load(Ordering::Relaxed))
    }

    /// Sets the steering of new clients. The caller decides it some times a second.
    pub fn steer(&self, steering: Steering) {
        self.steering.store(steering.code(), Ordering::Relaxed);
    }

    /// Returns true while this node receives the cluster's messages but can't follow them: its
    /// knowledge of keys may be wrong for good.
    #[must_use]
    pub fn is_misled(&self) -> bool {
        self.is_misled.load(Ordering::Relaxed)
    }

    /// Sets whether this node receives the cluster's messages but can't follow them.
    pub fn set_misled(&self, is_misled: bool) {
        self.is_misled.store(is_misled, Ordering::Relaxed);
    }

    /// Reports the node as not ready, and takes no more guests. Clients are served as before.
    pub fn announce_leaving(&self) {
        self.leaving.store(LEAVING, Ordering::Relaxed);
    }

    /// Returns true if [`Switches::announce_leaving`] or [`Switches::announce_end`] was called.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) != 0
    }

    /// Notes that the time of requests is over: those that are left are broken off now.
    pub fn announce_end(&self) {
        self.leaving.store(ENDING, Ordering::Relaxed);
    }

    /// Returns true if [`Switches::announce_end`] was called.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) == ENDING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_leaves_sends_clients_away_whatever_its_steering_is() {
        let switches = Switches::new(false);
        assert_eq!(switches.steering(), Steering::Away(AwayReason::Starting));
        switches.steer(Steering::Send);
        assert_eq!(switches.steering(), Steering::Send);
        switches.announce_leaving();
        assert_eq!(switches.steering(), Steering::Away(AwayReason::Draining));
        assert!(switches.is_leaving() && !switches.is_ending());
        switches.announce_end();
        assert!(switches.is_leaving() && switches.is_ending());
    }

    #[test]
    fn traces_are_recorded_by_their_share() {
        let (switches, mut dice) = (Switches::new(false), fastrand::Rng::with_seed(1));
        let mut drawn = |share| {
            switches.set_trace_share(share);
            (0..1_000).filter(|_| switches.draws_trace(&mut dice)).count()
        };
        assert_eq!(drawn(0.0), 0);
        assert_eq!(drawn(1.0), 1_000);
        let tenth = drawn(0.1);
        assert!((50..200).contains(&tenth), "{tenth}");
    }
}
