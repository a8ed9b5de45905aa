//! HTTP connection, over which requests are sent one after the other or, with HTTP/2, together.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use crate::task::spawn;

/// Largest headers or trailers of a reply over HTTP/2 in bytes. By default, hyper drops trailers that
/// do not fit into 16 KiB.
const FIELDS_BYTES_MAX: u32 = 1 << 20;

/// Body of a request.
pub type ClientBody = BoxBody<Bytes, Infallible>;

/// Open connection. The connection closes when it is dropped and no reply is still being read.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    peer: HeaderValue,
    driver: AbortHandle,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<ClientBody>),
    Http2(http2::SendRequest<ClientBody>),
}

/// Returns a body in one piece.
#[must_use]
pub fn full(bytes: impl Into<Bytes>) -> ClientBody {
    Full::new(bytes.into()).boxed()
}

impl Connection {
    /// Makes an HTTP/1.1 connection of `stream`.
    ///
    /// # Errors
    /// Returns an error if the stream is broken.
    pub async fn http1(stream: TcpStream) -> anyhow::Result<Self> {
        let peer = prepare(&stream)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The request reports the error of the connection, too.
        let driver = spawn(async { drop(connection.await) }).abort_handle();
        Ok(Self { sender: Sender::Http1(sender), peer, driver })
    }

    /// Makes an HTTP/2 connection of `stream`, by prior knowledge. A reply that is not read stops
    /// after `window` bytes; `None` for the library's default.
    ///
    /// # Errors
    /// Returns an error if the stream is broken.
    pub async fn http2(stream: TcpStream, window: Option<u32>) -> anyhow::Result<Self> {
        let peer = prepare(&stream)?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_header_list_size(FIELDS_BYTES_MAX).initial_stream_window_size(window);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let driver = spawn(async { drop(connection.await) }).abort_handle();
        Ok(Self { sender: Sender::Http2(sender), peer, driver })
    }

    /// Returns another handle to an HTTP/2 connection, for requests at the same time; `None` for
    /// HTTP/1.1.
    #[must_use]
    pub fn shared(&self) -> Option<Self> {
        match &self.sender {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => Some(Self {
                sender: Sender::Http2(sender.clone()),
                peer: self.peer.clone(),
                driver: self.driver.clone(),
            }),
        }
    }

    /// Waits until the connection takes a request.
    ///
    /// # Errors
    /// Returns an error if the connection has ended.
    pub async fn ready(&mut self) -> hyper::Result<()> {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await,
            Sender::Http2(sender) => sender.ready().await,
        }
    }

    /// Sends a request, whose URI has only a path, and waits for the head of its reply. Call
    /// [`Self::ready`] before.
    ///
    /// # Errors
    /// Returns the request with the error if nothing of the request was sent.
    pub async fn send(
        &mut self,
        mut request: Request<ClientBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<ClientBody>>> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                request.headers_mut().entry(header::HOST).or_insert_with(|| self.peer.clone());
                sender.try_send_request(request).await
            }
            Sender::Http2(sender) => {
                let mut parts = request.uri().clone().into_parts();
                parts.scheme = Some(Scheme::HTTP);
                parts.authority = self.peer.as_bytes().try_into().ok();
                // A path and an address always make a URI.
                *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
                sender.try_send_request(request).await
            }
        }
    }

    /// Returns true if the connection takes another request.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => !sender.is_closed(),
            Sender::Http2(sender) => !sender.is_closed(),
        }
    }

    /// Returns true for an HTTP/1.1 connection that no request uses.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(&self.sender, Sender::Http1(sender) if sender.is_ready())
    }

    /// Closes the socket, even under a request.
    pub fn abort(&self) {
        self.driver.abort();
    }
}

/// Makes the stream send small pieces at once. Returns the peer's address.
fn prepare(stream: &TcpStream) -> anyhow::Result<HeaderValue> {
    stream.set_nodelay(true)?;
    let peer: SocketAddr = stream.peer_addr()?;
    Ok(HeaderValue::try_from(peer.to_string())?)
}
