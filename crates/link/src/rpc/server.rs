//! Hands the streams of peers to whoever serves them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{StreamReceiver, StreamSender};
use crate::identity::Identity;
use crate::peer::Live;
use crate::shared::Shared;

/// The serving of one stream; dropped when the link ends.
pub type Served = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a node does with streams that are no forwarded requests. Called from the link's own tasks,
/// so it must not block; whom `from` names has been verified.
pub trait StreamHandler: Send + Sync + 'static {
    /// A peer has opened a stream of both directions on its control connection.
    fn control(&self, from: Identity, streams: (StreamSender, StreamReceiver)) -> Served;

    /// A peer sends something large on its data connection.
    fn bulk(&self, from: Identity, receiver: StreamReceiver) -> Served;
}

/// Serves the streams of one connection.
pub(crate) struct Serving<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) from: &'a Identity,
    pub(crate) live: &'a Live,
}

impl Serving<'_> {
    /// A stream of both directions has come. Without a handler both halves are dropped, which
    /// tells the peer that nobody wants it.
    pub(crate) fn control(&self, (send, receive): (quinn::SendStream, quinn::RecvStream)) {
        let streams = (StreamSender::new(send), StreamReceiver::new(receive));
        if let Some(handler) = self.handler() {
            self.spawn(handler.control(self.from.clone(), streams));
        }
    }

    /// A stream of one direction has come.
    pub(crate) fn bulk(&self, receive: quinn::RecvStream) {
        let receiver = StreamReceiver::new(receive);
        if let Some(handler) = self.handler() {
            self.spawn(handler.bulk(self.from.clone(), receiver));
        }
    }

    fn handler(&self) -> Option<Arc<dyn StreamHandler>> {
        self.shared.streams.load_full().map(|handler| Arc::clone(&*handler))
    }

    /// Serves until that ends, the connection does, or the link does: whoever waits for something
    /// else than the stream must not outlive it.
    fn spawn(&self, served: Served) {
        let (stop, connection) = (self.shared.stop.clone(), self.live.connection.clone());
        let task = async move {
            tokio::select! {
                () = served => {}
                () = stop.cancelled() => {}
                _ = connection.closed() => {}
            }
        };
        self.shared.tracker.spawn_on(task, &self.shared.runtime);
    }
}
