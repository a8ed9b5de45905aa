//! Interface between client connections and the part that answers requests.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::{Buf, Incoming};

use crate::client::connection_facts::ConnectionFacts;
use crate::front_door::FrontDoor;

/// Answer to requests. A clone is made for each connection.
pub trait Serve: Clone + fmt::Debug + Send + Sync + 'static {
    /// Body of replies.
    type ReplyBody: Body<Data: Buf + Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + 'static;
    /// Handle that continues a reply while its client does not take it.
    type Pump: ReplyPump;

    /// Answers one request of `client`. The reply is known to `pump` until it ends.
    fn serve(
        &self,
        client: Arc<ConnectionFacts>,
        pump: Arc<Self::Pump>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Self::ReplyBody>, Infallible>>
    + Send
    + Unpin
    + 'static
    + use<Self>;

    /// Notes a request of `client` whose head was larger than the limit, so that the HTTP library refused
    /// it with 431 and closed the connection.
    fn note_large_head(&self, client: Arc<ConnectionFacts>);
}

/// Door of a node with the part that answers one worker's requests.
#[derive(Clone, Debug)]
pub struct Entrance<S> {
    /// State that all connections share.
    pub door: Arc<FrontDoor>,
    /// Answer to requests.
    pub service: S,
}

/// Handle on the current reply of a connection or of an HTTP/2 stream.
pub trait ReplyPump: Default + fmt::Debug + Send + Sync + 'static {
    /// Continues the reply if the client has taken nothing since the last piece. Call it from the
    /// same task after each poll of the HTTP library. Ready once the client has taken nothing for
    /// `patience`; `None` sets no limit.
    fn poll(&self, cx: &mut Context<'_>, patience: Option<Duration>) -> Poll<()>;
}
