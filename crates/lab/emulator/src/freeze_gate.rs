//! Gate that holds back all bytes of a frozen replica.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Gate of one replica, shared by its connections. While it is shut, nothing is read or written, as
/// by a process whose event loop is blocked; the kernel goes on accepting connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreezeGate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    is_shut: AtomicBool,
    /// Tasks that wait for the gate to open.
    waiting: Mutex<Vec<Waker>>,
}

impl FreezeGate {
    /// Shuts or opens the gate.
    pub(crate) fn shut(&self, is_shut: bool) {
        self.0.is_shut.store(is_shut, Ordering::Release);
        if !is_shut {
            self.waiting().drain(..).for_each(Waker::wake);
        }
    }

    /// Ready once the gate is open.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.0.is_shut.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        // It may have opened before the waker was in its place.
        match self.0.is_shut.load(Ordering::Acquire) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
