//! HTTP/2 streams of a client's connection, each with the pump of its reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use crate::relay::Pump;
use crate::worker::Worker;

/// Executor of the tasks that hyper spawns for one connection.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    worker: Arc<Worker>,
    /// Pump of the request accepted last, until its stream is spawned. hyper does both at once, one
    /// request after the other, so there is never a second.
    coming: Arc<Mutex<Option<Arc<Pump>>>>,
}

pin_project_lite::pin_project! {
    /// A stream that ends when its reply is sent, or its client has taken nothing for too long.
    struct Stream<F> {
        #[pin]
        future: F,
        pump: Arc<Pump>,
        worker: Arc<Worker>,
    }
}

impl Streams {
    pub(crate) fn new(worker: &Arc<Worker>) -> Self {
        Self { worker: Arc::clone(worker), coming: Arc::default() }
    }

    /// Returns a pump for the request that is accepted now.
    pub(crate) fn pump(&self) -> Arc<Pump> {
        let pump = Arc::<Pump>::default();
        *self.coming.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&pump));
        pump
    }
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        let pump = self.coming.lock().unwrap_or_else(PoisonError::into_inner).take();
        let tracker = &self.worker.gateway.tracker;
        match pump {
            Some(pump) => {
                tracker.spawn(Stream { future, pump, worker: Arc::clone(&self.worker) });
            }
            None => {
                tracker.spawn(future);
            }
        }
    }
}

impl<F: Future> Future for Stream<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let stream = self.project();
        if stream.future.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let gateway = &stream.worker.gateway;
        let ended = stream.pump.poll(cx, Some(gateway.limits().stall_timeout));
        if ended.is_ready() {
            // Dropping the sending future resets the stream.
            gateway.counters.streams_stalled.fetch_add(1, Ordering::Relaxed);
        }
        ended
    }
}
