//! Streams of peers, handed to the node's handler.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{StreamReceiver, StreamSender};
use crate::identity::Identity;
use crate::peer::LiveConnection;
use crate::shared::LinkShared;

/// Future that serves one stream; dropped when the link ends.
pub type Served = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Handler of streams that are not forwarded requests. The link's own tasks call it, so it must not
/// block. `from` has been verified.
pub trait StreamHandler: Send + Sync + 'static {
    /// Serves a stream of both directions that a peer has opened on its control connection.
    fn control(&self, from: Identity, streams: (StreamSender, StreamReceiver)) -> Served;

    /// Receives large content that a peer sends on its data connection.
    fn bulk(&self, from: Identity, receiver: StreamReceiver) -> Served;
}

/// Server of the streams of one connection.
pub(crate) struct Serving<'a> {
    pub(crate) shared: &'a Arc<LinkShared>,
    pub(crate) from: &'a Identity,
    pub(crate) live: &'a LiveConnection,
}

impl Serving<'_> {
    /// Serves a new stream of both directions. Without a handler both halves are dropped, which
    /// tells the peer that the stream is refused.
    pub(crate) fn control(&self, send: quinn::SendStream, receive: quinn::RecvStream) {
        let streams = (StreamSender::new(send), StreamReceiver::new(receive));
        if let Some(handler) = self.handler() {
            self.spawn(handler.control(self.from.clone(), streams));
        }
    }

    /// Serves a new stream of one direction.
    pub(crate) fn bulk(&self, receive: quinn::RecvStream) {
        let receiver = StreamReceiver::new(receive);
        if let Some(handler) = self.handler() {
            self.spawn(handler.bulk(self.from.clone(), receiver));
        }
    }

    fn handler(&self) -> Option<Arc<dyn StreamHandler>> {
        self.shared.streams.load_full().map(|handler| Arc::clone(&*handler))
    }

    /// Runs `served` until it ends, the connection ends or the link ends: a handler that waits for
    /// something other than the stream must not outlive it.
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
