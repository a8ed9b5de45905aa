//! Memory limit of buffered request bodies.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::client::BodyHolder;
use crate::gateway::Gateway;
use crate::memory::Pressure;

/// Longest body, in bytes, that may use the reserved part of the memory. Most bodies are this
/// short.
const SHORT_BODY_BYTES: u64 = 64 << 10;
/// Part of the memory for bodies that is reserved for short ones, as a divisor.
const SHORT_BODIES_PART: u64 = 8;
/// Part of the memory for bodies that a client's other bodies may hold when it adds one, as a
/// divisor: a single client leaves most of the memory to all others.
const CLIENT_BODIES_PART: u64 = 4;

/// Memory reservation of one buffered body. It grows with the buffer and is released when dropped.
#[derive(Debug)]
pub(crate) struct BodyReservation {
    gateway: Arc<Gateway>,
    bytes: u64,
    holder: Option<BodyHolder>,
}

/// Reasons why there is no memory for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// All memory for bodies is taken.
    All,
    /// The client's other bodies hold as much as one client may.
    Client,
}

impl BodyReservation {
    /// Returns an empty reservation for a body of `holder`; `None` for a sender that stands for
    /// many clients.
    pub(crate) fn new(gateway: &Arc<Gateway>, holder: Option<BodyHolder>) -> Self {
        Self { gateway: Arc::clone(gateway), bytes: 0, holder }
    }

    /// Sets the reservation to `bytes` in all. A reservation never shrinks before it is dropped.
    ///
    /// # Errors
    /// Returns an error if all bodies together exceed the limit, or if the other bodies of the same
    /// client hold too large a part. A client's only body is bound by the total alone.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), NoRoom> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        // Counted even if it is refused below: dropping the reservation takes all of it back.
        self.bytes = bytes;
        let held = self.gateway.counters.body_bytes.fetch_add(more, Ordering::Relaxed) + more;
        let own = self.holder.map_or(0, |holder| self.gateway.bodies().add(holder, more));
        let all = self.all_bytes_max();
        // Short bodies may use the reserved part, too.
        let kept = if self.is_short() { 0 } else { all / SHORT_BODIES_PART };
        if held > all - kept {
            return Err(NoRoom::All);
        }
        // The body itself does not count, so that a client's only body may be large.
        if own.saturating_sub(bytes) > all / CLIENT_BODIES_PART {
            return Err(NoRoom::Client);
        }
        Ok(())
    }

    /// Checks that the body may go on arriving: when memory is full, long bodies are stopped until
    /// the remaining ones fit.
    ///
    /// # Errors
    /// Returns an error if the body must be stopped.
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
