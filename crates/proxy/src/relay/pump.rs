//! Goes on with a reply whose client does not take it.
//!
//! The HTTP library asks a reply's body for more only while the client's socket or window has room.
//! Whoever polls the library polls the pump behind it, in the same task: so nothing is spawned, both
//! are woken alike, and a client that keeps up costs a look at a flag.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::relay::relay_body::{Relay, RelayError};

/// A relay in two hands: the library's, which asks for what the client takes, and the pump's. Locked by
/// the one task that has both, so nobody ever waits for it.
type Shared = Mutex<Relay>;

/// Where the reply under way on a connection, or on a stream of HTTP/2, is reached.
#[derive(Debug, Default)]
pub(crate) struct Pump {
    /// A piece was handed over, and the library has not asked for the next.
    ///
    /// Relaxed, since one task reads and writes it.
    is_owed: AtomicBool,
    /// Empty between replies.
    relay: Mutex<Weak<Shared>>,
}

/// A relay as the HTTP library has it. Dropping it ends the relay, whatever the pump still knows.
#[derive(Debug)]
pub(crate) struct PumpedRelay {
    relay: Arc<Shared>,
    /// `None` where nobody polls one: replies to other nodes, which read ahead themselves.
    pump: Option<Arc<Pump>>,
    /// As of the last look, so that asking costs no lock.
    has_ended: bool,
}

impl Pump {
    /// To be called each time that whoever serves the client was polled, by the same task. Ready once
    /// the client has taken nothing for `patience`, if it has a limit here.
    pub(crate) fn poll(&self, cx: &mut Context<'_>, patience: Option<Duration>) -> Poll<()> {
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
            // Or an idle connection would keep its last reply's memory.
            *known = Weak::new();
            pump.is_owed.store(false, Ordering::Relaxed);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
