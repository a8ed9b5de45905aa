//! Emulators, requests to them and their answers.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use spillway_emulator::{
    Emulator, EmulatorConfig, EngineConfig, Profile, ReplicaHandle, ReplicaStats,
};
use spillway_testkit::{Client, within};
pub(crate) use spillway_testkit::{PATIENCE, Reply};

/// Starts an emulator whose replies take milliseconds.
pub(crate) async fn fast(replicas: u16) -> Emulator {
    start(replicas, 0.01).await
}

/// Starts an emulator that needs 54 ms for a token, so that a stream is still running when a test
/// looks.
pub(crate) async fn slow(replicas: u16) -> Emulator {
    start(replicas, 1.0).await
}

/// Starts replicas ten times as slow: a token takes half a second.
pub(crate) async fn ten_times_slower(replicas: u16) -> Emulator {
    start(replicas, 10.0).await
}

async fn start(replicas: u16, time_scale: f64) -> Emulator {
    let engine = EngineConfig::from_profile(Profile::L4);
    let models = vec!["tiny".to_owned(), "small".to_owned()];
    Emulator::start(EmulatorConfig {
        replicas,
        models,
        engine,
        time_scale,
        ..EmulatorConfig::default()
    })
    .await
    .unwrap()
}

/// One connection; dropping it closes the socket.
pub(crate) struct Connection(pub(crate) Client);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    pub(crate) async fn open(replica: &ReplicaHandle) -> Self {
        Self(Client::http1(replica.address()).await)
    }

    pub(crate) async fn open_h2(replica: &ReplicaHandle) -> Self {
        Self(Client::http2(replica.address()).await)
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.0.send(request.map(BodyExt::boxed)).await
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
    if !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body.into())).unwrap()
}

/// The next event of a stream that sends each event in a frame of its own or several in one;
/// `None` at its end.
pub(crate) async fn next_frame(
    response: &mut Response<Incoming>,
) -> Option<Result<Bytes, hyper::Error>> {
    within("an event", response.frame())
        .await
        .map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()))
}

/// Sends one request on its own connection.
pub(crate) async fn call(
    replica: &ReplicaHandle,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Reply {
    let mut connection = Connection::open(replica).await;
    let response = connection.send(request(method, path, headers, body)).await.unwrap();
    Reply::collect(response).await.unwrap()
}

pub(crate) async fn get(replica: &ReplicaHandle, path: &str) -> Reply {
    call(replica, "GET", path, &[], "").await
}

pub(crate) async fn post(replica: &ReplicaHandle, path: &str, body: &Value) -> Reply {
    call(replica, "POST", path, &[], body.to_string()).await
}

/// Returns a chat request for exactly this number of tokens.
pub(crate) fn chat(text: &str, tokens: u32, stream: bool) -> Value {
    json!({
        "model": "tiny",
        "messages": [{ "role": "user", "content": text }],
        "max_tokens": tokens,
        "ignore_eos": true,
        "stream": stream,
    })
}

/// Joins the content of a stream of chat chunks.
pub(crate) fn chat_text(events: &[(String, String)]) -> String {
    let chunks = events.iter().filter(|(_, data)| data != "[DONE]");
    let content = chunks.map(|(_, data)| {
        let chunk: Value = serde_json::from_str(data).unwrap();
        chunk["choices"][0]["delta"]["content"].as_str().unwrap_or("").to_owned()
    });
    content.collect()
}

/// Waits until the replica's counters satisfy `condition`.
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
