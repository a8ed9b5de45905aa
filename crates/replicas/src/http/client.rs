//! Requests to one server, over a kept connection or a fresh one.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::connect::Stream;
use super::{BODY_BYTES_MAX, Failure, HttpProtocol, Server, connect, h2};

/// How servers see these requests in their logs.
const AGENT: HeaderValue = HeaderValue::from_static("spillway-monitor");
/// Heads of replies that are read, bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Whether a request may use the connection of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// A connection of its own: it also shows that the server accepts connections.
    Fresh,
    /// The connection of the last request, where it is still open. Only for requests that may be
    /// sent twice, as the server may close it just then.
    Kept,
}

/// A whole reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

/// Asks one server.
#[derive(Debug)]
pub(crate) struct Client {
    server: Server,
    kept: Option<Connection>,
}

/// An HTTP/1.1 connection. It has no task: the request that uses it drives it, and dropping the
/// request closes it, which a server takes as the end of the work for it.
#[derive(Debug)]
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Pin<Box<http1::Connection<TokioIo<Stream>, Full<Bytes>>>>,
    /// The driver has ended and must not be polled again.
    is_over: bool,
}

impl Client {
    pub(crate) fn new(server: Server) -> Self {
        Self { server, kept: None }
    }

    /// A request to this server.
    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<(HeaderValue, Bytes)>,
    ) -> Result<Request<Bytes>, Failure> {
        let authority = self.server.authority();
        let scheme = if self.server.tls.is_some() { "https" } else { "http" };
        let uri = match self.server.protocol {
            HttpProtocol::Http1 => path.parse(),
            HttpProtocol::Http2 => format!("{scheme}://{authority}{path}").parse::<Uri>(),
        };
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = uri.map_err(|_| Failure::BadRequest)?;
        *request.method_mut() = method;
        if !path.starts_with('/') {
            return Err(Failure::BadRequest);
        }
        let headers = request.headers_mut();
        if self.server.protocol == HttpProtocol::Http1 {
            headers.insert(HOST, authority.parse().map_err(|_| Failure::BadRequest)?);
        }
        headers.insert(USER_AGENT, AGENT);
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        for (name, value) in &self.server.headers {
            headers.insert(name, value.clone());
        }
        if let Some((content_type, body)) = body {
            headers.insert(CONTENT_TYPE, content_type);
            *request.body_mut() = body;
        }
        Ok(request)
    }

    /// The reply to `request`, within `bound` from here, connecting included.
    ///
    /// # Errors
    /// Whatever went wrong. A reply of any status is no error.
    pub(crate) async fn send(
        &mut self,
        request: Request<Bytes>,
        reuse: Reuse,
        bound: Duration,
    ) -> Result<Reply, Failure> {
        match timeout(bound, Box::pin(self.exchange(request, reuse))).await {
            Ok(result) => result,
            Err(_) => Err(Failure::TimedOut),
        }
    }

    async fn exchange(&mut self, request: Request<Bytes>, reuse: Reuse) -> Result<Reply, Failure> {
        if self.server.protocol == HttpProtocol::Http2 {
            return h2::exchange(connect(&self.server).await?, request).await;
        }
        if reuse == Reuse::Kept
            && let Some(kept) = self.kept.take()
        {
            match self.exchange_on(kept, request.clone(), reuse).await {
                // The server closed it meanwhile: that says nothing about the server.
                Err(Failure::Broken) => {}
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
    ) -> Result<Reply, Failure> {
        let reply = connection.exchange(request).await?;
        if reuse == Reuse::Kept && !connection.is_over {
            self.kept = Some(connection);
        }
        Ok(reply)
    }
}

impl Connection {
    async fn open(stream: Stream) -> Result<Self, Failure> {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let (sender, driver) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|_| Failure::Broken)?;
        Ok(Self { sender, driver: Box::pin(driver), is_over: false })
    }

    async fn exchange(&mut self, request: Request<Bytes>) -> Result<Reply, Failure> {
        let reply = self.sender.send_request(request.map(Full::new));
        let mut exchange = pin!(async {
            let (head, body) = reply.await.map_err(|error| broken(&error))?.into_parts();
            let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() { Failure::TooLarge } else { broken(&*error) }
            })?;
            let trailers = body.trailers().cloned().unwrap_or_default();
            let body = body.to_bytes();
            Ok(Reply { status: head.status, headers: head.headers, body, trailers })
        });
        // The exchange moves only while the connection is driven.
        tokio::select! {
            biased;
            outcome = exchange.as_mut() => return outcome,
            _ = self.driver.as_mut() => self.is_over = true,
        }
        // What the connection brought before it ended is still to be taken.
        exchange.await
    }
}

fn broken(error: &(impl std::fmt::Display + ?Sized)) -> Failure {
    tracing::debug!(%error, "the connection broke");
    Failure::Broken
}

#[cfg(test)]
#[path = "client_test.rs"]
mod client_test;
