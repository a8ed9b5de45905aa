//! Usage options of a stream that moves between replicas of several kinds.

use serde_json::{Value, json};
use spillway_tests::{Client, Message, Scripted, StrictServer, Wire};

use crate::stream::{Api, Stream, continuing};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

fn event(id: &str, text: &str, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "text": text, "finish_reason": finish});
    let chunk = json!({"id": id, "created": 1, "model": "tiny", "choices": [choice]});
    format!("data: {chunk}\n\n")
}

fn options(message: &Message) -> Value {
    let body: Value = serde_json::from_str(&message.text()).expect("JSON");
    body["stream_options"].clone()
}

#[tokio::test]
async fn each_replica_of_a_stream_is_asked_for_what_its_kind_reports() {
    let (vllm, other) = (Scripted::start().await, Scripted::start().await);
    let replica = |kind: &str| format!("kind = \"{kind}\"\nmetrics = {{ scrape = false }}");
    let node = continuing("")
        .replica_with("vllm", &format!("http://{}", vllm.address), &replica("vllm"))
        .replica_with("other", &format!("http://{}", other.address), &replica("generic"))
        .start()
        .await;
    let throughout = json!({"include_usage": true, "continuous_usage_stats": true});
    // It is the turn of each to be the first.
    for _ in 0..2 {
        let served = async {
            let (mut wire, first, is_vllm): (Wire, Message, bool) = tokio::select! {
                (wire, message) = vllm.request() => (wire, message, true),
                (wire, message) = other.request() => (wire, message, false),
            };
            wire.send(format!("{HEAD}{}", event("a", " there", None))).await;
            wire.finish().await;
            let (mut wire, second) = if is_vllm { &other } else { &vllm }.request().await;
            wire.send(format!("{HEAD}{}data: [DONE]\n\n", event("b", " was", Some("stop")))).await;
            wire.finish().await;
            if is_vllm { (first, second) } else { (second, first) }
        };
        let client = Client::once(node.addresses()[0], Api::Text.request(&json!({})));
        let (reply, (of_vllm, of_other)) = tokio::join!(client, served);
        let stream = Stream::read(reply.text());
        assert_eq!((stream.text.as_str(), stream.dones), (" there was", 1), "{}", reply.text());
        assert!(stream.usages.is_empty());
        assert_eq!((options(&of_vllm), options(&of_other)), (throughout.clone(), Value::Null));
    }
}

#[tokio::test]
async fn a_replica_that_continues_a_stream_may_refuse_options() {
    let (vllm, strict) = (Scripted::start().await, StrictServer::start(&[]).await);
    let kind = "kind = \"vllm\"\nmetrics = { scrape = false }";
    let node = continuing("")
        .replica_with("vllm", &format!("http://{}", vllm.address), kind)
        .replica_with("strict", &format!("http://{}", strict.address), kind)
        .start()
        .await;
    let mut texts: Vec<String> = Vec::new();
    // A continuation takes a turn, too, so either may be the first several times.
    while !texts.iter().any(|text| text == " therehello") {
        assert!(texts.len() < 4, "the scripted replica is the first at times: {texts:?}");
        let request = Api::Text.request(&json!({}));
        let mut client = std::pin::pin!(Client::once(node.addresses()[0], request));
        let reply = tokio::select! {
            reply = &mut client => reply,
            (mut wire, _) = vllm.request() => {
                wire.send(format!("{HEAD}{}", event("a", " there", None))).await;
                wire.finish().await;
                client.await
            }
        };
        let stream = Stream::read(reply.text());
        assert_eq!((stream.dones, stream.errors.len()), (1, 0), "{}", reply.text());
        texts.push(stream.text);
    }
    let (first, later) = strict
        .options()
        .split_first()
        .map(|(one, more)| (one.clone(), more.to_vec()))
        .expect("a request");
    assert!(first.is_object(), "it was asked for usage once: {first}");
    assert_eq!(later, vec![Value::Null; texts.len()], "and the refusal is remembered");
}
