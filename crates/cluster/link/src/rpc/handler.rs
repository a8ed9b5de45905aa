//! Handler of the streams that peers open.

use std::future::Future;
use std::pin::Pin;

use super::{StreamReceiver, StreamSender};
use crate::identity::Identity;

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
