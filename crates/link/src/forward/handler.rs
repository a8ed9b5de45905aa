//! What a node does with what its peers send.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http_body::Body;

use super::body::ForwardBody;
use super::head::ForwardHead;
use super::word::Refused;
use crate::identity::Identity;

/// Any error; its text is logged, the peer learns only that something failed.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of a reply to a peer.
pub type BoxBody = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;
/// Works on an accepted request. Dropped when the peer gives the request up.
pub type Serving = Pin<Box<dyn Future<Output = Result<http::Response<BoxBody>, BoxError>> + Send>>;
/// Decides about a request. Dropped when the peer gives the request up.
pub type Deciding = Pin<Box<dyn Future<Output = Result<Serving, Refused>> + Send>>;

/// What a node does with what its peers send. Called from the link's own tasks, so it must not
/// block; whom `from` names has been verified.
pub trait Handler: Send + Sync + 'static {
    /// A datagram has come. It may be a repetition of an older one that its sender repeated, never
    /// one that somebody else recorded.
    fn datagram(&self, from: &Identity, datagram: Bytes);

    /// A request has come. The peer waits for the decision before it sends a body that waits;
    /// when that is positive, the reply may take as long as it needs.
    fn forwarded(&self, from: &Identity, head: ForwardHead, body: ForwardBody) -> Deciding;
}
