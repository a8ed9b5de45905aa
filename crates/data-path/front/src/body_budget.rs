//! Memory limit of buffered request bodies.

use std::sync::Arc;

use spillway_transport::Pressure;

use crate::client::BodyHolder;
use crate::front_door::FrontDoor;

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
pub struct BodyReservation {
    door: Arc<FrontDoor>,
    bytes: u64,
    holder: Option<BodyHolder>,
}

/// Reasons why there is no memory for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// All memory for bodies is taken.
    All,
    /// The client's other bodies hold as much as one client may.
    Client,
}

impl BodyReservation {
    /// Returns an empty reservation for a body of `holder`; `None` for a sender that represents
    /// many clients.
    pub fn new(door: &Arc<FrontDoor>, holder: Option<BodyHolder>) -> Self {
        Self { door: Arc::clone(door), bytes: 0, holder }
    }

    /// Sets the reservation to `bytes` in all. A reservation never shrinks before it is dropped.
    ///
    /// # Errors
    /// Returns an error if all bodies together exceed the limit, or if the other bodies of the same
    /// client hold too large a part. A client's only body is bound by the total alone.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), NoRoom> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        // Counted even if it is refused below: dropping the reservation takes all of it back.
        self.bytes = bytes;
        let (held, own) = self.door.hold_body(self.holder, more);
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
    pub fn check(&self) -> Result<(), NoRoom> {
        let is_full = self.door.memory().pressure() == Pressure::Full;
        let held = || self.door.body_bytes();
        if is_full && !self.is_short() && held() > self.all_bytes_max() {
            return Err(NoRoom::All);
        }
        Ok(())
    }

    fn is_short(&self) -> bool {
        self.bytes <= SHORT_BODY_BYTES
    }

    fn all_bytes_max(&self) -> u64 {
        let set = self.door.limits().body_bytes_total_max;
        self.door.memory().bodies_bytes_max().min(set)
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.door.release_body(self.holder, self.bytes);
    }
}
