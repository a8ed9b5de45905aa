//! HTTP/2 streams of a client's connection, each with the pump of its reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use spillway_transport::coarse_clock;

use crate::client::serve::ReplyPump;
use crate::front_door::FrontDoor;

/// Executor of the tasks that hyper spawns for one connection.
#[derive(Debug)]
pub(super) struct Streams<P> {
    door: Arc<FrontDoor>,
    /// Pump of the request accepted last, until its stream is spawned. hyper does both at once, one
    /// request after the other, so there is never a second.
    coming: Arc<Mutex<Option<Arc<P>>>>,
}

pin_project_lite::pin_project! {
    /// A stream that ends when its reply is sent, or its client has taken nothing for too long.
    struct Stream<F, P> {
        #[pin]
        future: F,
        pump: Arc<P>,
        door: Arc<FrontDoor>,
    }
}

impl<P> Clone for Streams<P> {
    fn clone(&self) -> Self {
        Self { door: Arc::clone(&self.door), coming: Arc::clone(&self.coming) }
    }
}

impl<P: ReplyPump> Streams<P> {
    pub(super) fn new(door: &Arc<FrontDoor>) -> Self {
        Self { door: Arc::clone(door), coming: Arc::default() }
    }

    /// Returns a pump for the request that is accepted now.
    pub(super) fn pump(&self) -> Arc<P> {
        let pump = Arc::<P>::default();
        *self.coming.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&pump));
        pump
    }
}

impl<F, P: ReplyPump> hyper::rt::Executor<F> for Streams<P>
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        let pump = self.coming.lock().unwrap_or_else(PoisonError::into_inner).take();
        let tracker = self.door.tracker();
        match pump {
            Some(pump) => {
                tracker.spawn(Stream { future, pump, door: Arc::clone(&self.door) });
            }
            // A task that the library needs for itself serves no request.
            None => {
                tracker.spawn(future);
            }
        }
    }
}

impl<F: Future, P: ReplyPump> Future for Stream<F, P> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let stream = self.project();
        if coarse_clock::once(|| stream.future.poll(cx)).is_ready() {
            return Poll::Ready(());
        }
        let ended = stream.pump.poll(cx, Some(stream.door.limits().stall_timeout_ms.duration()));
        if ended.is_ready() {
            // Dropping the sending future resets the stream.
            stream.door.closed_stream();
        }
        ended
    }
}
