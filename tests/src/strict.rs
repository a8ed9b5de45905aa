//! A model server with a strict schema: it refuses requests with stream options that it does not
//! know.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use spillway_testkit::spawn;
use tokio::task::JoinHandle;

use crate::scripted::Scripted;
use crate::wire::Wire;

/// A server that answers with a short stream, or refuses a request. Ends when dropped.
#[derive(Debug)]
pub struct StrictServer {
    /// Address of the server.
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Members of `stream_options` that are known; without any, `stream_options` is not.
    known: Vec<&'static str>,
    /// Text of a refusal for every request, whatever its options.
    refusal: Option<String>,
    delay: Duration,
    bodies: Vec<Value>,
}

impl StrictServer {
    /// Starts a server that knows these members of `stream_options`.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn start(known: &[&'static str]) -> Self {
        let server = Scripted::start().await;
        let address = server.address;
        let state = Arc::new(Mutex::new(State { known: known.to_vec(), ..State::default() }));
        let shared = Arc::clone(&state);
        let task = spawn(async move {
            // Ends with this task, and its connections with it.
            let mut connections = tokio::task::JoinSet::new();
            loop {
                connections.spawn(answer(server.accept().await, Arc::clone(&shared)));
            }
        });
        Self { address, state, task }
    }

    /// Changes the known members of `stream_options`.
    pub fn know(&self, known: &[&'static str]) {
        lock(&self.state).known = known.to_vec();
    }

    /// Refuses every request with this text from now on.
    pub fn refuse_all(&self, text: &str) {
        lock(&self.state).refusal = Some(text.to_owned());
    }

    /// Waits so long before each reply from now on.
    pub fn wait(&self, delay: Duration) {
        lock(&self.state).delay = delay;
    }

    /// Returns the bodies of all requests so far.
    #[must_use]
    pub fn bodies(&self) -> Vec<Value> {
        lock(&self.state).bodies.clone()
    }

    /// Returns `stream_options` of all requests so far; null where there were none.
    #[must_use]
    pub fn options(&self) -> Vec<Value> {
        self.bodies().iter().map(|body| body["stream_options"].clone()).collect()
    }
}

impl Drop for StrictServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut wire: Wire, state: Arc<Mutex<State>>) {
    while wire.has_more().await {
        let message = wire.message().await;
        let body: Value = serde_json::from_slice(&message.body).unwrap_or_default();
        let (reply, delay) = {
            let mut state = lock(&state);
            let reply = state.reply(&body);
            state.bodies.push(body);
            (reply, state.delay)
        };
        // wait: the time that the test has chosen for the reply
        tokio::time::sleep(delay).await;
        if wire.try_send(reply).await.is_err() {
            return;
        }
    }
}

impl State {
    fn reply(&self, body: &Value) -> String {
        let options = body["stream_options"].as_object();
        let unknown = options.and_then(|options| {
            options.keys().find(|name| !self.known.contains(&name.as_str())).cloned()
        });
        let refused = match (options, unknown) {
            _ if self.refusal.is_some() => self.refusal.clone(),
            (Some(_), _) if self.known.is_empty() => Some("stream_options".to_owned()),
            (_, Some(name)) => Some(format!("stream_options.{name}")),
            _ => None,
        };
        match refused {
            Some(name) => refusal(&name),
            None => stream(body),
        }
    }
}

/// Servers use either of two statuses for this.
fn refusal(name: &str) -> String {
    let status = if name.contains('.') { "422 Unprocessable" } else { "400 Bad Request" };
    let text = json!({"error": {"message": format!("Extra inputs are not permitted: {name}")}});
    reply(status, "application/json", &text.to_string())
}

fn stream(body: &Value) -> String {
    let choice = |text: &str, finish: Option<&str>| {
        let mut choice = json!({"index": 0, "finish_reason": finish});
        match body["messages"].is_array() {
            true => choice["delta"] = json!({"content": text}),
            false => choice["text"] = text.into(),
        }
        json!({"id": "s", "created": 1, "model": "tiny", "choices": [choice]})
    };
    let usage = json!({"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8});
    let mut events = vec![choice("hello", None), choice("", Some("stop"))];
    if body["stream_options"]["include_usage"] == true {
        // As vLLM does, whose fingerprint is in the last event alone.
        events.push(json!({
            "id": "s", "created": 1, "model": "tiny", "choices": [], "usage": usage,
            "system_fingerprint": "vllm-0.32.0",
        }));
    }
    let text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    reply("200 OK", "text/event-stream", &format!("{text}data: [DONE]\n\n"))
}

fn reply(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
