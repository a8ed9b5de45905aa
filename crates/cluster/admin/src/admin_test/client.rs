//! Test client of the admin API.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use spillway_testkit::{full, within};
use tokio::time::timeout;

use super::openapi_test::check_answer;

/// Client of one node, with headers that all its requests have.
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

/// An answer whose body is streamed.
pub(super) struct Stream {
    pub(super) response: Response<Incoming>,
    text: String,
    _connection: spillway_testkit::Client,
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

    /// Returns the client with one more header.
    pub(super) fn with(&self, name: &'static str, value: impl AsRef<str>) -> Self {
        let mut client = self.clone();
        client.headers.insert(name, value.as_ref().parse().unwrap());
        client
    }

    /// Returns the client with a token.
    pub(super) fn token(&self, token: &str) -> Self {
        self.with("authorization", format!("Bearer {token}"))
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &Value::Null).await
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, body).await
    }

    pub(super) async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, body).await
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
        // In every test, each answer must match the OpenAPI document.
        check_answer(&method, path, head.status, &body);
        Answer { status: head.status, headers: head.headers, body }
    }

    pub(super) async fn raw(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> (http::response::Parts, Bytes) {
        let stream = self.open(method, path, body).await;
        let (head, body) = stream.response.into_parts();
        (head, within("an answer", body.collect()).await.unwrap().to_bytes())
    }

    /// Starts reading a streamed answer.
    pub(super) async fn open(&self, method: Method, path: &str, body: Bytes) -> Stream {
        let mut connection = spillway_testkit::Client::http1(self.address).await;
        let mut request = Request::builder().method(method).uri(path).body(full(body)).unwrap();
        request.headers_mut().extend(self.headers.clone());
        let response = connection.send(request).await.unwrap();
        Stream { response, text: String::new(), _connection: connection }
    }
}

impl Stream {
    /// Returns the next event; `None` at the end.
    pub(super) async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (parse(event), rest.to_owned());
                self.text = rest;
                return Some(event);
            }
            let frame = within("an event", self.response.body_mut().frame()).await?.unwrap();
            self.text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    }

    /// Returns the next event of that kind.
    pub(super) async fn event_of(&mut self, kind: &str) -> Event {
        loop {
            let event = self.event().await.expect("another event");
            if event.kind == kind {
                return event;
            }
        }
    }

    /// Returns true if no event comes for that long.
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
    /// Returns the body of a success.
    pub(super) fn done(self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.body
    }

    /// Returns the code of an error; cause and remedy must be there.
    #[track_caller]
    pub(super) fn refused(&self, status: u16) -> &str {
        assert_eq!(self.status, status, "{self:?}");
        let error = &self.body["error"];
        assert!(error["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{self:?}");
        assert!(error["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{self:?}");
        error["code"].as_str().unwrap()
    }
}
