//! A stream as a client sees it.

use std::net::SocketAddr;

use http::Request;
use serde_json::{Value, json};
use spillway_node::Node;
use spillway_tests::{Client, ClientBody, Page, Setup, full, post};

/// Content of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stream {
    pub(crate) text: String,
    /// Each combination of id, time and model that occurred.
    pub(crate) heads: Vec<String>,
    pub(crate) roles: usize,
    pub(crate) finishes: Vec<String>,
    pub(crate) usages: Vec<Value>,
    pub(crate) dones: usize,
    pub(crate) errors: Vec<String>,
    pub(crate) events: usize,
}

impl Stream {
    /// Reads whole events.
    #[track_caller]
    pub(crate) fn read(body: &str) -> Self {
        let mut stream = Self::default();
        assert!(body.is_empty() || body.ends_with("\n\n"), "half an event: {body}");
        for data in body.split("\n\n").filter_map(|event| event.strip_prefix("data: ")) {
            if data == "[DONE]" {
                stream.dones += 1;
                continue;
            }
            stream.events += 1;
            stream.take(&serde_json::from_str(data).expect(data));
        }
        stream
    }

    fn take(&mut self, chunk: &Value) {
        if let Some(error) = chunk.get("error") {
            self.errors.push(error["code"].as_str().unwrap_or_default().to_owned());
            return;
        }
        let head = format!("{} {} {}", chunk["id"], chunk["created"], chunk["model"]);
        if !self.heads.contains(&head) {
            self.heads.push(head);
        }
        for choice in chunk["choices"].as_array().into_iter().flatten() {
            let delta = &choice["delta"];
            let text = delta["content"].as_str().or_else(|| choice["text"].as_str());
            self.text.push_str(text.unwrap_or_default());
            self.roles += usize::from(delta["role"].is_string());
            self.finishes.extend(choice["finish_reason"].as_str().map(str::to_owned));
        }
        self.usages.extend(chunk.get("usage").filter(|usage| usage.is_object()).cloned());
    }
}

/// One of the two APIs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Api {
    Chat,
    Text,
}

impl Api {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Text => "/v1/completions",
        }
    }

    /// A request for a stream, with more fields.
    pub(crate) fn request(self, more: &Value) -> Request<ClientBody> {
        let mut body = match self {
            Self::Chat => {
                json!({"messages": [{"role": "user", "content": "What is a dam, in short?"}]})
            }
            Self::Text => json!({"prompt": "Once upon a time"}),
        };
        let fields = body.as_object_mut().expect("an object");
        fields.insert("model".to_owned(), "tiny".into());
        fields.insert("stream".to_owned(), true.into());
        fields.insert("max_tokens".to_owned(), 12.into());
        fields.extend(more.as_object().expect("an object").clone());
        let mut request = post(self.path(), "");
        *request.body_mut() = full(body.to_string());
        request
    }
}

/// A node that continues streams and takes turns between its replicas.
pub(crate) fn continuing(more: &str) -> Setup {
    Setup::new()
        .with(|config| config.gateway.retry.budget_min_per_second = 1000)
        .set("health.eject_after = 1000000")
        .with_health(|health| health.breaker.requests_min = 1000000)
        .table(format!(
            "[[route]]\nname = \"all\"\npolicy = \"round_robin\"\ncontinue_streams = true\n{more}\n"
        ))
}

/// Reads one stream, whole or broken off.
pub(crate) async fn fetch(address: SocketAddr, api: Api, more: &Value) -> Stream {
    let reply = Client::once(address, api.request(more)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Stream::read(reply.text())
}

/// Streams whose replica broke off, by result and reason.
pub(crate) fn counted(node: &Node, result: &str, reason: &str) -> f64 {
    let labels = [("result", result), ("reason", reason)];
    Page::of(node).sum("spillway_stream_continuations_total", &labels)
}
