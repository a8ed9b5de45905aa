//! Counters that requests keep, for metrics and for the decisions of the node.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use spillway_view::{AffinityMoves, Continuations, CountryCounts};

/// Counters that requests keep.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests of other nodes that are served now.
    pub guests: AtomicU32,
    /// Requests that are served now, guests included.
    pub requests: AtomicU64,
    /// Requests of clients that were refused because only regions that may not serve them could.
    pub residency_refused: AtomicU64,
    /// Requests that were about to be sent to a region that may not serve them.
    pub residency_sent: AtomicU64,
    /// Guests that may not be served here.
    pub residency_received: AtomicU64,
    /// Retries that the budget has refused.
    pub retries_refused: AtomicU64,
    /// Requests that were given up after a second engine had died with them.
    pub engines_died: AtomicU64,
    /// Requests of clients that were replied to.
    pub served: AtomicU64,
    /// Requests of clients that were rejected for lack of room.
    pub without_room: AtomicU64,
    /// Requests by country of the client.
    pub countries: CountryCounts,
    /// Moves of sessions and conversations.
    pub affinity_moves: AffinityMoves,
    /// Streams whose replica broke off.
    pub continuations: Continuations,
}

impl Counters {
    /// Returns how many requests of other nodes are served here now.
    #[must_use]
    pub fn guests(&self) -> u32 {
        self.guests.load(Ordering::Relaxed)
    }

    /// Returns how many requests of clients and guests are under way.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns totals since start of streams whose replica broke off, on routes that continue them:
    /// result, reason, and number.
    #[must_use]
    pub fn continuations(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.continuations.totals()
    }

    /// Returns totals since start of sessions and conversations that moved: what was kept until
    /// then, the new place, and number.
    #[must_use]
    pub fn affinity_moves(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.affinity_moves.totals()
    }

    /// Returns totals since start of clients' requests: replied to, and shed for lack of room.
    /// Requests refused for their content, or by a limit of their client, are neither.
    #[must_use]
    pub fn served_and_shed(&self) -> (u64, u64) {
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (total(&self.served), total(&self.without_room))
    }

    /// Returns how many requests were given up after two engines had died with them, since start.
    #[must_use]
    pub fn engines_died(&self) -> u64 {
        self.engines_died.load(Ordering::Relaxed)
    }

    /// Returns how many retries the budget has refused since start.
    #[must_use]
    pub fn retries_refused(&self) -> u64 {
        self.retries_refused.load(Ordering::Relaxed)
    }

    /// Returns totals since start of requests that were not served because of their residency, by
    /// the place that found it: `entry` refuses a client whose request no region may serve.
    /// `sending` and `receiving` are second looks, which find nothing unless a first one was wrong
    /// or regions' rules just changed.
    #[must_use]
    pub fn residency(&self) -> Vec<(&'static str, u64)> {
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("entry", total(&self.residency_refused)),
            ("sending", total(&self.residency_sent)),
            ("receiving", total(&self.residency_received)),
        ]
    }

    /// Returns requests since start by country of the client; empty without a location database.
    #[must_use]
    pub fn client_countries(&self) -> Vec<(String, u64)> {
        self.countries.totals()
    }
}
