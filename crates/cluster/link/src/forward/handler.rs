//! Handler of the datagrams and requests that peers send.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http_body::Body;

use super::body::ForwardBody;
use super::head::ForwardHead;
use super::word::Refused;
use crate::identity::Identity;

/// Any error. Its text is logged; the peer only learns that something failed.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Body of a reply to a peer.
pub type BoxBody = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;
/// Future that works on an accepted request. Dropped when the peer gives the request up.
pub type Serving = Pin<Box<dyn Future<Output = Result<http::Response<BoxBody>, BoxError>> + Send>>;
/// Future that accepts or refuses a request. Dropped when the peer gives the request up.
pub type Deciding = Pin<Box<dyn Future<Output = Result<Serving, Refused>> + Send>>;

/// Handler of a node for datagrams and requests from its peers. The link's own tasks call it, so it
/// must not block. `from` has been verified.
pub trait Handler: Send + Sync + 'static {
    /// Takes a datagram. It may be one that its sender sent twice, never one that an attacker
    /// recorded and sent again.
    fn datagram(&self, from: &Identity, datagram: Bytes);

    /// Takes a request and decides on it. A body that waits is sent only after the request is
    /// accepted; the reply may then take as long as it needs.
    fn forwarded(&self, from: &Identity, head: ForwardHead, body: ForwardBody) -> Deciding;
}
