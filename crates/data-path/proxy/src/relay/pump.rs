//! Continues a reply while its client does not take it.
//!
//! The HTTP library asks a reply's body for more only while the client's socket or window has room.
//! The task that polls the library polls the pump after it: so nothing is spawned, both are woken
//! alike, and a client that keeps up costs one read of a flag.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use spillway_front::client::ReplyPump;

use crate::relay::relay_body::{Relay, RelayError};

/// Relay with two owners: the HTTP library, which asks for what the client takes, and the pump. One
/// task has both, so locking it never blocks.
type Shared = Mutex<Relay>;

/// Handle on the current reply of a connection or of an HTTP/2 stream.
#[derive(Debug, Default)]
pub(crate) struct Pump {
    /// True after a piece was handed over, until the library asks for the next.
    ///
    /// Relaxed accesses suffice, since one task reads and writes it.
    is_owed: AtomicBool,
    /// Current reply; empty between replies.
    relay: Mutex<Weak<Shared>>,
}

/// Relay as the HTTP library has it. Dropping it ends the relay, even if the pump still refers to
/// it.
#[derive(Debug)]
pub(crate) struct PumpedRelay {
    relay: Arc<Shared>,
    /// The pump; `None` for replies to other nodes, which read ahead themselves.
    pump: Option<Arc<Pump>>,
    /// State after the last poll, so that a query takes no lock.
    has_ended: bool,
}

impl ReplyPump for Pump {
    fn poll(&self, cx: &mut Context<'_>, patience: Option<Duration>) -> Poll<()> {
        if !self.is_owed.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let relay = locked(&self.relay).upgrade();
        relay.map_or(Poll::Pending, |relay| locked(&relay).poll_behind(cx, patience))
    }
}

impl PumpedRelay {
    pub(crate) fn new(relay: Relay, pump: Option<&Arc<Pump>>) -> Self {
        let has_ended = relay.has_ended();
        let relay = Arc::new(Mutex::new(relay));
        if let Some(pump) = pump {
            *locked(&pump.relay) = Arc::downgrade(&relay);
        }
        Self { relay, pump: pump.cloned(), has_ended }
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let mut relay = locked(&self.relay);
        let polled = relay.poll_frame(cx);
        self.has_ended = relay.has_ended();
        if let Some(pump) = &self.pump {
            let is_piece = matches!(polled, Poll::Ready(Some(Ok(_))));
            pump.is_owed.store(is_piece, Ordering::Relaxed);
        }
        polled
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        locked(&self.relay).size_hint()
    }
}

impl Drop for PumpedRelay {
    fn drop(&mut self) {
        let Some(pump) = &self.pump else { return };
        let mut known = locked(&pump.relay);
        if std::ptr::eq(known.as_ptr(), Arc::as_ptr(&self.relay)) {
            // Otherwise an idle connection would keep the memory of its last reply.
            *known = Weak::new();
            pump.is_owed.store(false, Ordering::Relaxed);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
