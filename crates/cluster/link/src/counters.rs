//! Counters of a link since its start.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one link; each only grows.
#[derive(Debug, Default)]
pub(crate) struct LinkCounters {
    pub(crate) datagrams_sent: AtomicU64,
    pub(crate) datagrams_received: AtomicU64,
    pub(crate) datagrams_unsent: AtomicU64,
    pub(crate) forwarded: AtomicU64,
    pub(crate) forward_failed: AtomicU64,
    pub(crate) forward_refused: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) given_up: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) malformed: AtomicU64,
    pub(crate) strangers: AtomicU64,
    pub(crate) reloads: AtomicU64,
    pub(crate) reloads_failed: AtomicU64,
}

/// Adds one to a counter.
pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl LinkCounters {
    /// Returns the values at this moment.
    pub(crate) fn totals(&self) -> Totals {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            datagrams_sent: of(&self.datagrams_sent),
            datagrams_received: of(&self.datagrams_received),
            datagrams_unsent: of(&self.datagrams_unsent),
            forwarded: of(&self.forwarded),
            forward_failed: of(&self.forward_failed),
            forward_refused: of(&self.forward_refused),
            received: of(&self.received),
            refused: of(&self.refused),
            given_up: of(&self.given_up),
            failed: of(&self.failed),
            malformed: of(&self.malformed),
            strangers: of(&self.strangers),
            reloads: of(&self.reloads),
            reloads_failed: of(&self.reloads_failed),
        }
    }
}

/// Values of a link's counters since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Datagrams handed to a control connection.
    pub datagrams_sent: u64,
    /// Datagrams that came and were handed to the handler.
    pub datagrams_received: u64,
    /// Datagrams that were not sent, because no connection was there or they were too long for one.
    pub datagrams_unsent: u64,
    /// Requests that this node forwarded, with any result.
    pub forwarded: u64,
    /// Requests among `forwarded` that failed before a reply or a refusal came.
    pub forward_failed: u64,
    /// Requests among `forwarded` that the peer refused.
    pub forward_refused: u64,
    /// Requests that peers forwarded to this node.
    pub received: u64,
    /// Requests among `received` that this node refused.
    pub refused: u64,
    /// Requests among `received` that the peer gave up, or that were lost with the peer.
    pub given_up: u64,
    /// Requests among `received` whose handler or reply body failed.
    pub failed: u64,
    /// Requests among `received` without a valid head.
    pub malformed: u64,
    /// Join connections that were accepted: from strangers, or from members that ask for their
    /// state.
    pub strangers: u64,
    /// Number of times that changed certificates were taken into use.
    pub reloads: u64,
    /// Number of times that changed certificates could not be used.
    pub reloads_failed: u64,
}
