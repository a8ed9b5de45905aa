//! HTTP client of one server, over a kept connection or a new one.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::connect::HttpStream;
use super::{BODY_BYTES_MAX, HttpProtocol, HttpServer, RequestError, connect, h2};

/// User agent of these requests in the logs of servers.
const AGENT: HeaderValue = HeaderValue::from_static("spillway-monitor");
/// Longest head of a reply, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

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
}

/// HTTP client of one server.
#[derive(Debug)]
pub(crate) struct HttpClient {
    server: HttpServer,
    kept: Option<Connection>,
}

/// HTTP/1.1 connection. It has no task: the request that uses it drives it, and a dropped request
/// closes it, which tells the server to stop the work.
#[derive(Debug)]
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
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
        let authority = self.server.authority();
        let scheme = if self.server.tls.is_some() { "https" } else { "http" };
        let uri = match self.server.protocol {
            HttpProtocol::Http1 => path.parse(),
            HttpProtocol::Http2 => format!("{scheme}://{authority}{path}").parse::<Uri>(),
        };
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = uri.map_err(|_| RequestError::BadRequest)?;
        *request.method_mut() = method;
        // An absolute URI could name another server.
        if !path.starts_with('/') {
            return Err(RequestError::BadRequest);
        }
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
            Err(_) => Err(RequestError::TimedOut),
        }
    }

    async fn exchange(
        &mut self,
        request: Request<Bytes>,
        reuse: Reuse,
    ) -> Result<HttpReply, RequestError> {
        if self.server.protocol == HttpProtocol::Http2 {
            return h2::exchange(connect(&self.server).await?, request).await;
        }
        if reuse == Reuse::Kept
            && let Some(kept) = self.kept.take()
        {
            match self.exchange_on(kept, request.clone(), reuse).await {
                // The server closed the kept connection meanwhile, which proves nothing about the
                // server.
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
    async fn open(stream: HttpStream) -> Result<Self, RequestError> {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (sender, driver) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|_| RequestError::Broken)?;
        Ok(Self { sender, driver: Box::pin(driver), is_over: false })
    }

    async fn exchange(&mut self, request: Request<Bytes>) -> Result<HttpReply, RequestError> {
        let reply = self.sender.send_request(request.map(Full::new));
        let mut exchange = pin!(async {
            let (head, body) = reply.await.map_err(|error| broken(&error))?.into_parts();
            let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    RequestError::TooLarge
                } else {
                    broken(&*error)
                }
            })?;
            let trailers = body.trailers().cloned().unwrap_or_default();
            let body = body.to_bytes();
            Ok(HttpReply { status: head.status, headers: head.headers, body, trailers })
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
