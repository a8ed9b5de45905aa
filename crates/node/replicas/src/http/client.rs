//! HTTP client of one server, over a kept connection or a new one.

use std::borrow::Cow;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use spillway_resolver::ConnectionAddress;
use tokio::time::timeout;

use super::connect::{HttpStream, late};
use super::reply_body::ReplyBody;
use super::{BODY_BYTES_MAX, HttpProtocol, HttpServer, RequestError, connect, h2};
use crate::read_room::ReadHold;

/// User agent of these requests in the logs of servers.
const AGENT: HeaderValue = HeaderValue::from_static("spillway-monitor");
/// Longest head of a reply, in bytes. Each connection may have a buffer of this length.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most header lines of a reply.
const HEADERS_MAX: usize = 1_024;

/// Choice of the connection for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// A new connection, which also shows that the server accepts connections.
    Fresh,
    /// The connection of the last request, if it is still open. Only for requests that may be sent
    /// twice, because the server may close the connection at that moment.
    Kept,
}

/// Whole reply of a server.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
    /// Room of the body.
    pub(super) _hold: ReadHold,
}

/// HTTP client of one server.
#[derive(Debug)]
pub(crate) struct HttpClient {
    server: HttpServer,
    kept: Option<Connection>,
}

/// HTTP/1.1 connection. It has no task: the request that uses it drives it, and a dropped request
/// closes it, which makes the server stop the work.
#[derive(Debug)]
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    address: ConnectionAddress,
    driver: Pin<Box<http1::Connection<TokioIo<HttpStream>, Full<Bytes>>>>,
    /// True if the driver has ended and must not be polled again.
    is_over: bool,
}

impl HttpClient {
    pub(crate) fn new(server: HttpServer) -> Self {
        Self { server, kept: None }
    }

    /// Makes a request to this server.
    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<(HeaderValue, Bytes)>,
    ) -> Result<Request<Bytes>, RequestError> {
        // An absolute URI could name another server.
        if !path.starts_with('/') {
            return Err(RequestError::BadRequest);
        }
        let path =
            self.server.base.as_ref().map_or(Cow::Borrowed(path), |base| base.join(path).into());
        let authority = self.server.authority();
        let scheme = if self.server.tls.is_some() { "https" } else { "http" };
        let uri = match self.server.protocol {
            HttpProtocol::Http1 => path.parse(),
            HttpProtocol::Http2 => format!("{scheme}://{authority}{path}").parse::<Uri>(),
        };
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = uri.map_err(|_| RequestError::BadRequest)?;
        *request.method_mut() = method;
        let headers = request.headers_mut();
        // HTTP/2 has the authority in the URI.
        if self.server.protocol == HttpProtocol::Http1 {
            headers.insert(HOST, authority.parse().map_err(|_| RequestError::BadRequest)?);
        }
        headers.insert(USER_AGENT, AGENT);
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        // Configured headers replace those above.
        for (name, value) in &self.server.headers {
            headers.insert(name, value.clone());
        }
        if let Some((content_type, body)) = body {
            headers.insert(CONTENT_TYPE, content_type);
            *request.body_mut() = body;
        }
        Ok(request)
    }

    /// Sends `request` and returns the reply within `bound`, connecting included.
    ///
    /// # Errors
    /// Returns the reason if there is no whole reply. A reply of any status is no error.
    pub(crate) async fn send(
        &mut self,
        request: Request<Bytes>,
        reuse: Reuse,
        bound: Duration,
    ) -> Result<HttpReply, RequestError> {
        match timeout(bound, Box::pin(self.exchange(request, reuse))).await {
            Ok(result) => result,
            Err(_) => Err(late(&self.server.resolver, &self.server.host)),
        }
    }

    async fn exchange(
        &mut self,
        request: Request<Bytes>,
        reuse: Reuse,
    ) -> Result<HttpReply, RequestError> {
        if self.server.protocol == HttpProtocol::Http2 {
            return h2::exchange(connect(&self.server).await?.0, request).await;
        }
        if reuse == Reuse::Kept
            && let Some(kept) = self.kept.take()
            // Another server may have the name now.
            && kept.address.is_current()
        {
            match self.exchange_on(kept, request.clone(), reuse).await {
                // The server closed the kept connection while it was idle, which proves nothing
                // about the server.
                Err(RequestError::Broken) => {}
                result => return result,
            }
        }
        let connection = Connection::open(connect(&self.server).await?).await?;
        self.exchange_on(connection, request, reuse).await
    }

    async fn exchange_on(
        &mut self,
        mut connection: Connection,
        request: Request<Bytes>,
        reuse: Reuse,
    ) -> Result<HttpReply, RequestError> {
        let reply = connection.exchange(request).await?;
        if reuse == Reuse::Kept && !connection.is_over {
            self.kept = Some(connection);
        }
        Ok(reply)
    }
}

impl Connection {
    async fn open(
        (stream, address): (HttpStream, ConnectionAddress),
    ) -> Result<Self, RequestError> {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
        let (sender, driver) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|_| RequestError::Broken)?;
        Ok(Self { sender, address, driver: Box::pin(driver), is_over: false })
    }

    async fn exchange(&mut self, request: Request<Bytes>) -> Result<HttpReply, RequestError> {
        let reply = self.sender.send_request(request.map(Full::new));
        let mut exchange = pin!(async {
            let (head, mut body) = reply.await.map_err(|error| broken(&error))?.into_parts();
            if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
                return Err(RequestError::TooLarge);
            }
            let (mut whole, mut trailers) = (ReplyBody::default(), HeaderMap::new());
            while let Some(frame) = body.frame().await {
                match frame.map_err(|error| broken(&error))?.into_data() {
                    Ok(piece) => whole.push(&piece)?,
                    Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
                }
            }
            let (body, _hold) = whole.finish();
            Ok(HttpReply { status: head.status, headers: head.headers, body, trailers, _hold })
        });
        // The exchange makes progress only while the connection is driven.
        tokio::select! {
            biased;
            outcome = exchange.as_mut() => return outcome,
            _ = self.driver.as_mut() => self.is_over = true,
        }
        // Data that arrived before the connection ended must still be read.
        exchange.await
    }
}

fn broken(error: &(impl std::fmt::Display + ?Sized)) -> RequestError {
    tracing::debug!(%error, "the connection broke");
    RequestError::Broken
}

#[cfg(test)]
#[path = "client_test.rs"]
mod client_test;
