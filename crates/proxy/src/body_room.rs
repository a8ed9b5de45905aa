//! Counts the memory that buffered request bodies hold, and refuses more than there is room for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::client::BodyHolder;
use crate::gateway::Gateway;
use crate::memory::Pressure;

/// Bodies up to this length, as most are, find room where longer ones find none.
const SHORT_BODY_BYTES: u64 = 64 << 10;
/// This part of the room for bodies is reserved for short ones.
const SHORT_BODIES_PART: u64 = 8;
/// A client whose other bodies hold more than this part gets no room for another one, so that a single
/// client leaves most of the room to all others.
const CLIENT_BODIES_PART: u64 = 4;

/// Memory of one buffered body: one count that grows with the buffer. Given back when dropped.
#[derive(Debug)]
pub(crate) struct BodyReservation {
    gateway: Arc<Gateway>,
    bytes: u64,
    holder: Option<BodyHolder>,
}

/// Why there is no room for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// All of it is taken.
    All,
    /// Its client has as much as it may.
    Client,
}

impl BodyReservation {
    /// A reservation of nothing yet, for a body of `holder`; `None` for a sender that stands for many.
    pub(crate) fn new(gateway: &Arc<Gateway>, holder: Option<BodyHolder>) -> Self {
        Self { gateway: Arc::clone(gateway), bytes: 0, holder }
    }

    /// Counts `bytes` as held by the body in all. It never shrinks before it is dropped.
    ///
    /// # Errors
    /// If all bodies together hold more than they may, or the other bodies of its holder have a large
    /// part already. A single body per client is only bound by the total.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), NoRoom> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        self.bytes = bytes;
        let held = self.gateway.counters.body_bytes.fetch_add(more, Ordering::Relaxed) + more;
        let own = self.holder.map_or(0, |holder| self.gateway.bodies().add(holder, more));
        let all = self.all_bytes_max();
        let kept = if self.is_short() { 0 } else { all / SHORT_BODIES_PART };
        if held > all - kept {
            return Err(NoRoom::All);
        }
        if own.saturating_sub(bytes) > all / CLIENT_BODIES_PART {
            return Err(NoRoom::Client);
        }
        Ok(())
    }

    /// Checks that the body may go on arriving: when memory is full, long ones are stopped until those
    /// that are left fit.
    ///
    /// # Errors
    /// If it is to be stopped.
    pub(crate) fn check(&self) -> Result<(), NoRoom> {
        let is_full = self.gateway.memory().pressure() == Pressure::Full;
        let held = || self.gateway.counters.body_bytes();
        if is_full && !self.is_short() && held() > self.all_bytes_max() {
            return Err(NoRoom::All);
        }
        Ok(())
    }

    fn is_short(&self) -> bool {
        self.bytes <= SHORT_BODY_BYTES
    }

    fn all_bytes_max(&self) -> u64 {
        let set = self.gateway.config.limits.body_bytes_total_max;
        self.gateway.memory().bodies_bytes_max().min(set)
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.gateway.counters.body_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(holder) = self.holder {
            self.gateway.bodies().give_back(holder, self.bytes);
        }
    }
}
