//! An HTTP client on one connection.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Frame, Incoming};
use spillway_harness::Connection;
pub use spillway_harness::{ClientBody, full};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::wait::within;

/// One connection, HTTP/1.1 or HTTP/2.
#[derive(Debug)]
pub struct Client(Connection);

/// A whole reply.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
    /// Trailers, where there were any.
    pub trailers: Option<HeaderMap>,
}

impl Client {
    /// Opens an HTTP/1.1 connection.
    ///
    /// # Panics
    /// If it is refused.
    pub async fn http1(address: SocketAddr) -> Self {
        Self(Connection::http1(connect(address).await).await.expect("a handshake"))
    }

    /// Opens an HTTP/2 connection with prior knowledge.
    ///
    /// # Panics
    /// If it is refused.
    pub async fn http2(address: SocketAddr) -> Self {
        Self(Connection::http2(connect(address).await, None).await.expect("a handshake"))
    }

    /// Opens an HTTP/2 connection with a window of `bytes` for each stream: a reply that is not
    /// read stops there.
    ///
    /// # Panics
    /// If it is refused.
    pub async fn http2_with_window(address: SocketAddr, bytes: u32) -> Self {
        Self(Connection::http2(connect(address).await, Some(bytes)).await.expect("a handshake"))
    }

    /// Sends a request and waits for the head of its reply.
    ///
    /// # Errors
    /// If the connection or stream breaks before.
    ///
    /// # Panics
    /// If it takes too long.
    pub async fn send(
        &mut self,
        request: Request<ClientBody>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        within("the connection", self.0.ready()).await?;
        let sent = within("a reply", self.0.send(request)).await;
        sent.map_err(|error| error.into_error())
    }

    /// Sends a request and collects its reply.
    ///
    /// # Panics
    /// If the reply does not come, or breaks off.
    pub async fn fetch(&mut self, request: Request<ClientBody>) -> Reply {
        let response = self.send(request).await.expect("a reply");
        Reply::collect(response).await.expect("a whole reply")
    }

    /// Sends a request on a connection of its own and collects the reply.
    ///
    /// # Panics
    /// If the reply does not come, or breaks off.
    pub async fn once(address: SocketAddr, request: Request<ClientBody>) -> Reply {
        Self::http1(address).await.fetch(request).await
    }

    /// Returns true if the connection takes another request.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.is_open()
    }

    /// Closes the socket, even under a request.
    pub fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Streams that are still being read keep their connection: only an idle one ends here.
        if self.0.is_idle() {
            self.0.abort();
        }
    }
}

impl Reply {
    /// Reads a reply to its end.
    ///
    /// # Errors
    /// If it breaks off.
    ///
    /// # Panics
    /// If it takes too long.
    pub async fn collect(response: Response<Incoming>) -> Result<Self, hyper::Error> {
        let (head, body) = response.into_parts();
        let collected = within("the reply's body", body.collect()).await?;
        Ok(Self {
            status: head.status.as_u16(),
            headers: head.headers,
            trailers: collected.trailers().cloned(),
            body: collected.to_bytes(),
        })
    }

    /// Returns the body as text.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// Returns the body as JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// Returns the gateway's own error code; `None` for an answer of a replica.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.header("x-spillway-code")
    }

    /// Returns a header as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the events of a stream, each with the empty line after it.
    #[must_use]
    pub fn events(&self) -> Vec<&str> {
        self.text().split_inclusive("\n\n").collect()
    }

    /// Returns name and data of each server-sent event; the name is empty where the event has none.
    #[must_use]
    pub fn named_events(&self) -> Vec<(String, String)> {
        self.text().split_terminator("\n\n").map(parse_event).collect()
    }
}

fn parse_event(event: &str) -> (String, String) {
    let field = |name: &str| {
        let line = event.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim_start().to_owned()
    };
    (field("event:"), field("data:"))
}

/// Makes a GET request.
///
/// # Panics
/// If `path` is none.
#[must_use]
pub fn get(path: &str) -> Request<ClientBody> {
    let body = Empty::new().boxed();
    Request::builder().uri(path).body(body).expect("a request")
}

/// Makes a POST request with JSON.
///
/// # Panics
/// If `path` is none.
#[must_use]
pub fn post(path: &str, json: impl Into<Bytes>) -> Request<ClientBody> {
    message(Method::POST, path, "application/json", full(json))
}

/// Makes a chat request; `fields` are further JSON members, each with a comma before it.
#[must_use]
pub fn chat(model: &str, fields: &str) -> Request<ClientBody> {
    let messages = r#"[{"role":"user","content":"Say something nice."}]"#;
    let body = format!(r#"{{"model":"{model}","messages":{messages}{fields}}}"#);
    post("/v1/chat/completions", body)
}

/// Makes a request with a body.
///
/// # Panics
/// If `path` is none.
#[must_use]
pub fn message(
    method: Method,
    path: &str,
    content_type: &str,
    body: ClientBody,
) -> Request<ClientBody> {
    let builder = Request::builder().method(method).uri(path);
    builder.header(header::CONTENT_TYPE, content_type).body(body).expect("a request")
}

/// Makes a body whose pieces the test sends; without a length, so chunked on HTTP/1.1. The body ends when
/// the sender is dropped.
#[must_use]
pub fn streamed() -> (mpsc::Sender<Bytes>, ClientBody) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, Pieces(receiver).boxed())
}

struct Pieces(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("connects")
}
