//! Messages of a reply that are made while it is sent.

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Output of a stream.
#[derive(Debug)]
pub(crate) enum StreamPiece {
    /// Message in its frame.
    Message(Bytes),
    /// Trailers that end the stream.
    End(HeaderMap),
}

/// Replies of a stream as they are made. Dropping the value stops their generation.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) receiver: mpsc::Receiver<StreamPiece>,
    pub(crate) task: AbortHandle,
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.task.abort();
    }
}
