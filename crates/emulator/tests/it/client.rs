//! A small HTTP client over hyper that shows every event and every end of a connection.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use spillway_emulator::{Config, Emulator, EngineConfig, Profile, ReplicaHandle, ReplicaStats};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Longest that anything in these tests may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An emulator whose replies take milliseconds.
pub(crate) async fn fast(replicas: u16) -> Emulator {
    start(replicas, 0.01).await
}

/// An emulator that needs 54 ms a token, so that a stream is still running when a test looks.
pub(crate) async fn slow(replicas: u16) -> Emulator {
    start(replicas, 1.0).await
}

async fn start(replicas: u16, time_scale: f64) -> Emulator {
    let engine = EngineConfig::from_profile(Profile::L4);
    let models = vec!["tiny".to_owned(), "small".to_owned()];
    Emulator::start(Config { replicas, models, engine, time_scale, ..Config::default() })
        .await
        .unwrap()
}

/// A reply, read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The body as server-sent events: (name, data).
    pub(crate) fn events(&self) -> Vec<(String, String)> {
        let text = std::str::from_utf8(&self.body).unwrap();
        text.split_terminator("\n\n").map(parse_event).collect()
    }
}

fn parse_event(event: &str) -> (String, String) {
    let field = |name: &str| {
        let line = event.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or("").trim_start().to_owned()
    };
    (field("event:"), field("data:"))
}

/// One connection and the task that drives it.
pub(crate) struct Connection {
    sender: Sender,
    /// Dropping it closes the socket.
    pub(crate) task: JoinSet<Result<(), hyper::Error>>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(crate) async fn open(replica: &ReplicaHandle) -> Self {
        let stream = TcpStream::connect(replica.address()).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let mut task = JoinSet::new();
        task.spawn(connection);
        Self { sender: Sender::Http1(sender), task }
    }

    pub(crate) async fn open_h2(replica: &ReplicaHandle) -> Self {
        let stream = TcpStream::connect(replica.address()).await.unwrap();
        let io = TokioIo::new(stream);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        let mut task = JoinSet::new();
        task.spawn(connection);
        Self { sender: Sender::Http2(sender), task }
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        let response = async {
            match &mut self.sender {
                Sender::Http1(sender) => sender.send_request(request).await,
                Sender::Http2(sender) => sender.send_request(request).await,
            }
        };
        tokio::time::timeout(PATIENCE, response).await.expect("no response head in time")
    }

    pub(crate) async fn post(
        &mut self,
        path: &str,
        body: &Value,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.send(request("POST", path, &[], body.to_string())).await
    }
}

pub(crate) fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(format!("http://emulator{path}"));
    request = request.header("host", "emulator");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body.into())).unwrap()
}

/// Reads a response to its end.
pub(crate) async fn read(response: Response<Incoming>) -> Result<Reply, hyper::Error> {
    let (head, body) = response.into_parts();
    let body = tokio::time::timeout(PATIENCE, body.collect()).await.expect("no end in time")?;
    Ok(Reply { status: head.status, headers: head.headers, body: body.to_bytes() })
}

/// The next event of a stream that sends each event in a frame of its own or several in one;
/// `None` at its end.
pub(crate) async fn next_frame(
    response: &mut Response<Incoming>,
) -> Option<Result<Bytes, hyper::Error>> {
    let frame = tokio::time::timeout(PATIENCE, response.frame()).await.expect("no event in time");
    frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()))
}

/// Sends one request on a connection of its own.
pub(crate) async fn call(
    replica: &ReplicaHandle,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Reply {
    let mut connection = Connection::open(replica).await;
    let response = connection.send(request(method, path, headers, body)).await.unwrap();
    read(response).await.unwrap()
}

pub(crate) async fn get(replica: &ReplicaHandle, path: &str) -> Reply {
    call(replica, "GET", path, &[], "").await
}

pub(crate) async fn post(replica: &ReplicaHandle, path: &str, body: &Value) -> Reply {
    call(replica, "POST", path, &[], body.to_string()).await
}

/// A chat request for so many tokens exactly.
pub(crate) fn chat(text: &str, tokens: u32, stream: bool) -> Value {
    json!({
        "model": "tiny",
        "messages": [{ "role": "user", "content": text }],
        "max_tokens": tokens,
        "ignore_eos": true,
        "stream": stream,
    })
}

/// The content that a stream of chat chunks adds up to.
pub(crate) fn chat_text(events: &[(String, String)]) -> String {
    let chunks = events.iter().filter(|(_, data)| data != "[DONE]");
    let content = chunks.map(|(_, data)| {
        let chunk: Value = serde_json::from_str(data).unwrap();
        chunk["choices"][0]["delta"]["content"].as_str().unwrap_or("").to_owned()
    });
    content.collect()
}

/// Waits until the replica's account satisfies `condition`.
pub(crate) async fn until(
    replica: &ReplicaHandle,
    condition: impl Fn(&ReplicaStats) -> bool,
) -> ReplicaStats {
    let waited = tokio::time::timeout(PATIENCE, async {
        loop {
            let stats = replica.stats();
            if condition(&stats) {
                return stats;
            }
            // wait: the pause between two looks at the condition.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("it never came to pass: {:?}", replica.stats()))
}
