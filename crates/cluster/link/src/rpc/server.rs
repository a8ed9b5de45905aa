//! Streams of peers, handed to the node's handler.

use std::sync::Arc;

use super::handler::{Served, StreamHandler};
use super::{StreamReceiver, StreamSender};
use crate::identity::Identity;
use crate::peer::LiveConnection;
use crate::shared::LinkShared;

/// Server of the streams of one connection.
pub(crate) struct Serving<'a> {
    pub(crate) shared: &'a Arc<LinkShared>,
    pub(crate) from: &'a Identity,
    pub(crate) live: &'a LiveConnection,
}

impl Serving<'_> {
    /// Serves a new stream of both directions. Without a handler both halves are dropped, which
    /// shows the peer that the stream is refused.
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
