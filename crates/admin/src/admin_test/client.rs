//! A client of the admin API.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::openapi_test::check_answer;
use super::world::PATIENCE;

/// A client of one node, with headers that all its requests have.
#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    headers: HeaderMap,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

/// An answer that goes on.
pub(super) struct Stream {
    pub(super) response: Response<Incoming>,
    text: String,
    _connection: AbortOnDropHandle<hyper::Result<()>>,
}

/// A server-sent event.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) id: u64,
    pub(super) kind: String,
    pub(super) data: Value,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, headers: HeaderMap::new() }
    }

    /// The same client with one more header.
    pub(super) fn with(&self, name: &'static str, value: impl AsRef<str>) -> Self {
        let mut client = self.clone();
        client.headers.insert(name, value.as_ref().parse().unwrap());
        client
    }

    /// The same client with a token.
    pub(super) fn token(&self, token: &str) -> Self {
        self.with("authorization", format!("Bearer {token}"))
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &Value::Null).await
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, body).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, body).await
    }

    pub(super) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &Value::Null).await
    }

    pub(super) async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (head, bytes) = self.raw(method.clone(), path, body.into()).await;
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        // Whatever a test is about, each answer is as the document says.
        check_answer(&method, path, head.status, &body);
        Answer { status: head.status, headers: head.headers, body }
    }

    pub(super) async fn raw(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> (http::response::Parts, Bytes) {
        let asked = async {
            let stream = self.open(method, path, body).await;
            let (head, body) = stream.response.into_parts();
            (head, body.collect().await.unwrap().to_bytes())
        };
        timeout(PATIENCE, asked).await.expect("an answer in time")
    }

    /// Begins to read an answer.
    pub(super) async fn open(&self, method: Method, path: &str, body: Bytes) -> Stream {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = handshake(TokioIo::new(tcp)).await.unwrap();
        let connection = AbortOnDropHandle::new(TaskTracker::new().spawn(connection));
        let mut request = Request::builder().method(method).uri(path);
        if !self.headers.contains_key(header::HOST) {
            request = request.header(header::HOST, self.address.to_string());
        }
        let mut request = request.body(Full::new(body)).unwrap();
        request.headers_mut().extend(self.headers.clone());
        let response = timeout(PATIENCE, sender.send_request(request)).await;
        let response = response.expect("an answer in time").unwrap();
        Stream { response, text: String::new(), _connection: connection }
    }
}

impl Stream {
    /// The next event; none at the end.
    pub(super) async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (parse(event), rest.to_owned());
                self.text = rest;
                return Some(event);
            }
            let frame = timeout(PATIENCE, self.response.body_mut().frame()).await;
            let frame = frame.expect("an event in time")?.unwrap();
            self.text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    }

    /// The next event of that kind.
    pub(super) async fn event_of(&mut self, kind: &str) -> Event {
        loop {
            let event = self.event().await.expect("another event");
            if event.kind == kind {
                return event;
            }
        }
    }

    /// Whether it comes to nothing for so long.
    pub(super) async fn is_silent_for(&mut self, duration: Duration) -> bool {
        timeout(duration, self.event()).await.is_err()
    }
}

fn parse(text: &str) -> Event {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {text}"))
    };
    Event {
        id: field("id: ").parse().unwrap(),
        kind: field("event: ").to_owned(),
        data: serde_json::from_str(field("data: ")).unwrap(),
    }
}

impl Answer {
    /// The body of an answer that says that it was done.
    pub(super) fn done(self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.body
    }

    /// The code of an answer that says that it was not done; it has to say why and what to do.
    pub(super) fn refused(&self, status: u16) -> &str {
        assert_eq!(self.status, status, "{self:?}");
        let error = &self.body["error"];
        assert!(error["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{self:?}");
        assert!(error["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{self:?}");
        error["code"].as_str().unwrap()
    }
}
