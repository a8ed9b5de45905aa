//! Engines with manners of their own, byte by byte.

use http::{HeaderValue, Request};
use serde_json::{Value, json};
use spillway_tests::{Client, ClientBody, Message, Scripted, Setup, Wire};

use crate::stream::{Api, Stream, continuing};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

fn event(id: &str, choice: Value) -> String {
    let chunk = json!({"id": id, "created": 1, "model": "tiny", "choices": [choice]});
    format!("data: {chunk}\n\n")
}

fn delta(id: &str, delta: Value, finish: Option<&str>) -> String {
    event(id, json!({"index": 0, "delta": delta, "finish_reason": finish}))
}

/// Sends a request through a node over two replicas, has the first break off after `begin`, and
/// answers for the second with `rest`. Returns the client's stream, and the request that each
/// replica got.
async fn exchange(api: Api, more: Value, replies: (String, String)) -> (Stream, Value, Value) {
    exchange_by(continuing(""), api.request(&more), replies).await
}

/// Does the same as [`exchange`], with a node of another config.
async fn exchange_by(
    setup: Setup,
    request: Request<ClientBody>,
    (begin, rest): (String, String),
) -> (Stream, Value, Value) {
    let replicas = [Scripted::start().await, Scripted::start().await];
    let kind = "kind = \"vllm\"\nmetrics = { scrape = false }";
    let node = replicas
        .iter()
        .enumerate()
        .fold(setup, |setup, (index, replica)| {
            let url = format!("http://{}", replica.address);
            setup.replica_with(&format!("r{index}"), &url, kind)
        })
        .start()
        .await;
    let [one, two] = &replicas;
    let served = async {
        let (mut wire, first, other): (Wire, Message, &Scripted) = tokio::select! {
            (wire, message) = one.request() => (wire, message, two),
            (wire, message) = two.request() => (wire, message, one),
        };
        wire.send(format!("{HEAD}{begin}")).await;
        wire.finish().await;
        let (mut wire, second) = other.request().await;
        wire.send(format!("{HEAD}{rest}")).await;
        wire.finish().await;
        (first, second)
    };
    let client = Client::once(node.addresses()[0], request);
    let (reply, (first, second)) = tokio::join!(client, served);
    let parsed = |message: Message| serde_json::from_str(&message.text()).expect("JSON");
    (Stream::read(reply.text()), parsed(first), parsed(second))
}

#[tokio::test]
async fn half_an_event_is_nobody_s_and_white_space_waits() {
    let begin = [
        delta("a", json!({"role": "assistant", "content": ""}), None),
        delta("a", json!({"content": "One"}), None),
        delta("a", json!({"content": " two\n"}), None),
        "data: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"thr".to_owned(),
    ];
    let rest = [
        delta("b", json!({"role": "assistant", "content": " two"}), None),
        delta("b", json!({"content": "\nthree"}), Some("stop")),
        "data: [DONE]\n\n".to_owned(),
    ];
    let (stream, first, second) =
        exchange(Api::Chat, json!({}), (begin.concat(), rest.concat())).await;
    assert_eq!(stream.text, "One two\nthree");
    assert_eq!((stream.roles, stream.dones, stream.heads.len()), (1, 1, 1));
    assert_eq!(stream.finishes, ["stop"]);
    assert_eq!(first["stream_options"]["continuous_usage_stats"], true);
    assert_eq!(first["max_tokens"], 12);
    // Trailing white space was not passed on yet, so it is left to be generated again.
    assert_eq!(second["messages"][1], json!({"role": "assistant", "content": "One"}));
    assert_eq!(second["continue_final_message"], true);
    assert_eq!(second["add_generation_prompt"], false);
    assert_eq!(second["max_tokens"], 11);
}

#[tokio::test]
async fn a_replica_that_is_cut_before_its_first_event_is_asked_for_nothing_more_than_before() {
    let rest = [
        delta("b", json!({"role": "assistant", "content": "All"}), Some("stop")),
        "data: [DONE]\n\n".to_owned(),
    ];
    for more in [json!({}), json!({"tools": [{"type": "function"}]})] {
        let (stream, first, second) =
            exchange(Api::Chat, more, (": wait\n\n".to_owned(), rest.concat())).await;
        assert_eq!((stream.text.as_str(), stream.dones), ("All", 1));
        assert_eq!(first, second);
    }
}

#[tokio::test]
async fn a_longer_prompt_continues_a_text() {
    let text = |id, text, finish: Option<&str>| {
        event(id, json!({"index": 0, "text": text, "finish_reason": finish}))
    };
    let begin = [text("a", " \"there\"\n", None), text("a", " was ", None)].concat();
    let rest = [text("b", "a dam", Some("length")), "data: [DONE]\n\n".to_owned()].concat();
    let (stream, _, second) = exchange(Api::Text, json!({"min_tokens": 5}), (begin, rest)).await;
    assert_eq!(stream.text, " \"there\"\n was a dam");
    assert_eq!(second["prompt"], "Once upon a time \"there\"\n was ");
    assert_eq!((&second["max_tokens"], &second["min_tokens"]), (&json!(10), &json!(3)));
    assert_eq!((stream.finishes, stream.heads.len()), (vec!["length".to_owned()], 1));
}

#[tokio::test]
async fn an_engine_that_says_it_died_is_gone_on_from() {
    let error = json!({"error": {"message": "EngineCore died", "code": 500}});
    let begin = [
        delta("a", json!({"role": "assistant", "content": "One"}), None),
        format!("data: {error}\n\ndata: [DONE]\n\n"),
    ];
    let rest = [
        delta("b", json!({"role": "assistant", "content": ""}), None),
        delta("b", json!({"content": " two"}), Some("stop")),
        "data: [DONE]\n\n".to_owned(),
    ];
    let (stream, _, second) = exchange(Api::Chat, json!({}), (begin.concat(), rest.concat())).await;
    assert_eq!((stream.text.as_str(), stream.errors.len(), stream.dones), ("One two", 0, 1));
    assert_eq!(second["messages"][1]["content"], "One");
}

#[tokio::test]
async fn who_goes_on_gets_the_salt_of_an_isolated_tenant_too() {
    let trust = "auth = \"headers\"\ntrusted_proxies = [\"127.0.0.1/32\"]";
    let isolated = "[[tenant]]\nname = \"acme\"\nisolate_prompts = true\n";
    let setup = continuing("").listener(trust).table(isolated);
    let begin = delta("a", json!({"role": "assistant", "content": "One two"}), None);
    let rest =
        [delta("b", json!({"content": " three"}), Some("stop")), "data: [DONE]\n\n".to_owned()];
    let mut request = Api::Chat.request(&json!({"cache_salt": "mine"}));
    request.headers_mut().insert("x-spillway-tenant", HeaderValue::from_static("acme"));
    let (stream, first, second) = exchange_by(setup, request, (begin, rest.concat())).await;
    assert_eq!(stream.text, "One two three");
    assert_eq!(second["continue_final_message"], true);
    assert_eq!(first["cache_salt"].as_str().map(str::len), Some(64), "{first}");
    assert_eq!(second["cache_salt"], first["cache_salt"]);
}
