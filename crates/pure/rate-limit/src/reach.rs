//! Time until units that other nodes don't need arrive at this one.

use std::sync::atomic::{AtomicU64, Ordering};

/// Time until another node has learned of a need from the log, and this node of the units that the
/// other one gives up. One task sets it, and requests read it.
#[derive(Debug, Default)]
pub(crate) struct ReachWait {
    from_ns: AtomicU64,
    takes_ns: AtomicU64,
}

impl ReachWait {
    /// Sets when this node can ask for units, and how long it takes from then.
    pub(crate) fn set(&self, from_ns: u64, takes_ns: u64) {
        self.from_ns.store(from_ns, Ordering::Relaxed);
        self.takes_ns.store(takes_ns, Ordering::Relaxed);
    }

    /// Returns the nanoseconds until units arrive that a request needs at `now_ns`.
    pub(crate) fn wait_ns(&self, now_ns: u64) -> u64 {
        let from_ns = self.from_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
        from_ns.saturating_add(self.takes_ns.load(Ordering::Relaxed))
    }
}
