//! State of a group of replicas that outlives the view.

use std::sync::atomic::{AtomicU64, Ordering};

use spillway_route::SloProbes;

use crate::hedging::FirstByte;
use crate::tenants::Tenants;

/// State of a group that survives a change of its replicas.
#[derive(Debug, Default)]
pub struct GroupMemory {
    tickets: AtomicU64,
    /// Percentile of times to first byte, for hedging.
    pub first_byte: FirstByte,
    /// Slots that tenants hold.
    pub tenants: Tenants,
    /// Probes of requests for which a late reply is predicted.
    pub slo_probes: SloProbes,
}

impl GroupMemory {
    /// Returns the memory of a new group, whose tickets begin at `first_turn`.
    pub fn new(first_turn: u64) -> Self {
        Self { tickets: AtomicU64::new(first_turn), ..Self::default() }
    }

    /// Takes the number of the next decision.
    pub fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of the next decision, without making one.
    pub fn next_ticket(&self) -> u64 {
        self.tickets.load(Ordering::Relaxed)
    }
}
