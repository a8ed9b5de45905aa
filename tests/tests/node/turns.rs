//! The next turn of a conversation is known to be cached with the reply before it.

use serde_json::{Value, json};
use spillway_node::Node;
use spillway_tests::{Client, Page, Reply, Scripted, Setup, emulator, eventually, post};

/// Tokens that a reply has at least, and that are more than the prompt's.
const REPLY_TOKENS: u64 = 600;

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// Returns what `path` is asked with this prompt.
fn body(path: &str, prompt: &Value, is_stream: bool) -> Value {
    let field = match path {
        "/v1/responses" => "input",
        "/v1/completions" => "prompt",
        _ => "messages",
    };
    json!({"model": "tiny", field: prompt, "stream": is_stream, "max_tokens": REPLY_TOKENS,
        "min_tokens": REPLY_TOKENS, "ignore_eos": true})
}

/// Returns the text of a reply, as a client would put it together.
fn text(reply: &Reply, is_stream: bool) -> String {
    let of = |value: &Value| {
        let choice = &value["choices"][0];
        let parts = [&choice["delta"]["content"], &choice["message"]["content"], &choice["text"]];
        let said = parts.into_iter().find_map(Value::as_str).map(str::to_owned);
        let is_delta = value["type"] == "response.output_text.delta";
        said.or_else(|| is_delta.then(|| value["delta"].as_str().map(str::to_owned))?)
            .or_else(|| value["output"][0]["content"][0]["text"].as_str().map(str::to_owned))
    };
    if !is_stream {
        return of(&reply.json()).expect("a text");
    }
    let text = reply.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| of(&serde_json::from_str(data).ok()?)).collect()
}

fn expected_tokens(reply: &Reply) -> u64 {
    reply.header("x-spillway-cached-tokens").expect("a number").parse().expect("a number")
}

fn blocks(node: &Node) -> f64 {
    Page::of(node).sum("spillway_prefix_index_blocks", &[])
}

/// Asks for two turns. Returns the tokens that the second was expected to have cached, and those
/// that it had.
async fn second_turn(path: &str, first: Value, next: impl Fn(&str) -> Value) {
    for is_stream in [false, true] {
        let emulator = emulator(3).await;
        let node = Setup::new().set("node.expose_routing = true").emulated(&emulator).start().await;
        let mut client = Client::http1(node.addresses()[0]).await;
        let request = post(path, body(path, &first, is_stream).to_string());
        let reply = client.fetch(request).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let said = text(&reply, is_stream);
        assert!(said.len() > 1_000, "{said}");
        // The prompt has no full block, and the end of the reply does not fill one.
        let written = (said.len() / 256) as f64;
        eventually("the reply is known", || blocks(&node) >= written - 1.0).await;
        let request = post(path, body(path, &next(&said), false).to_string());
        let second = client.fetch(request).await;
        assert_eq!(second.status, 200, "{}", second.text());
        let place = |reply: &Reply| reply.header("x-spillway-replica").expect("one").to_owned();
        assert_eq!(place(&second), place(&reply), "{path}");
        let usage = &second.json()["usage"];
        let details = ["prompt_tokens_details", "input_tokens_details"];
        let cached = details.iter().find_map(|name| usage[name]["cached_tokens"].as_u64());
        let (expected, cached) = (expected_tokens(&second), cached.expect("cached tokens"));
        assert!(cached > REPLY_TOKENS / 2, "{path}: {cached}");
        assert!(expected.abs_diff(cached) <= cached / 4, "{path}: {expected} of {cached}");
        let forgotten = Page::of(&node).sum("spillway_prefix_forgotten_total", &[]);
        assert_eq!(forgotten, 0.0, "{path}: the belief was right");
    }
}

#[tokio::test]
async fn the_reply_of_a_chat_is_known_to_be_cached() {
    let next = |said: &str| json!([user("Hi"), {"role": "assistant", "content": said}, user("Go")]);
    second_turn("/v1/chat/completions", json!([user("Hi")]), next).await;
}

#[tokio::test]
async fn a_completion_is_known_to_be_cached() {
    // The emulated engine has tokens of four bytes, so that only a whole number of them is cached.
    let next = |said: &str| json!(format!("Once upon it{said} And then?"));
    second_turn("/v1/completions", json!("Once upon it"), next).await;
}

#[tokio::test]
async fn a_response_is_known_to_be_cached() {
    let next = |said: &str| json!([user("Hi"), {"role": "assistant", "content": said}, user("Go")]);
    second_turn("/v1/responses", json!("Hi"), next).await;
}

#[tokio::test]
async fn a_reply_that_breaks_off_is_not_taken_to_be_cached() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let event = json!({"choices": [{"index": 0, "delta": {"content": "x".repeat(2_000)}}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    // A second prompt through the same worker shows that all about the first has been learned.
    for (prompt, rest, known) in
        [("a", String::new(), 2.0), ("b", format!("data: {end}\n\n"), 12.0)]
    {
        let body = body("/v1/chat/completions", &json!([user(&prompt.repeat(600))]), true);
        let request = post("/v1/chat/completions", body.to_string());
        let answer = async {
            let (mut wire, _) = replica.request().await;
            wire.send(&format!("{head}data: {event}\n\n{rest}")).await;
        };
        let (reply, ()) = tokio::join!(client.fetch(request), answer);
        assert_eq!(reply.status, 200);
        eventually("it is learned", || blocks(&node) >= known).await;
        assert_eq!(blocks(&node), known, "{prompt}");
    }
}
