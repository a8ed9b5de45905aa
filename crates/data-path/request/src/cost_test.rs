use serde_json::{Value, json};
use spillway_protocol::{read_facts, read_v2};

use super::*;

fn tokens(path: &str, body: &Value) -> Result<u64, GatewayError> {
    let body = body.to_string();
    let facts = read_facts(body.as_bytes()).unwrap();
    let prompt = Prompt { bytes: 40, ..Prompt::default() };
    let cost = Cost::of_json(path, &facts, body.as_bytes(), &prompt);
    cost.check().map(|()| cost.tokens(|| 1_000))
}

fn messages(extra: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "hello"}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

#[test]
fn the_largest_of_all_that_an_engine_could_make_of_it_is_charged() {
    let chat = |extra| tokens("/v1/chat/completions", &messages(extra)).unwrap();
    assert_eq!(chat(json!({})), 1_010);
    assert_eq!(chat(json!({"max_tokens": 900, "max_output_tokens": 1})), 910);
    assert_eq!(chat(json!({"max_output_tokens": 900, "max_completion_tokens": 1})), 910);
    assert_eq!(chat(json!({"max_tokens": 900, "n": 4, "best_of": 8})), 7_210);
    assert_eq!(chat(json!({"n": 3})), 3_010);
    let four = json!({"prompt": ["a", "b", "c", "d"], "max_tokens": 100, "n": 2});
    assert!((800..820).contains(&tokens("/v1/completions", &four).unwrap()));
    assert_eq!(chat(json!({"max_tokens": "900", "n": 2.0})), 1_810);
    for unclear in [json!({"max_tokens": -1}), json!({"max_tokens": "all"}), json!({"n": []})] {
        assert!(tokens("/v1/chat/completions", &messages(unclear)).is_err());
    }
}

#[test]
fn what_generates_nothing_costs_what_it_reads() {
    let text = "x".repeat(400);
    for (path, body) in [
        ("/v1/embeddings", json!({"input": [text, text]})),
        ("/v1/rerank", json!({"query": "q", "documents": [text, text]})),
        ("/v1/score", json!({"text_1": "q", "text_2": [text, text]})),
        ("/tokenize", json!({"model": "m", "words": [text, text]})),
        ("/v1/responses/input_tokens", json!({"input": [text, text], "max_output_tokens": 9})),
        ("/v1/messages/count_tokens", json!({"prompt": [text, text]})),
    ] {
        let tokens = tokens(path, &body).unwrap();
        assert!((200..230).contains(&tokens), "{path}: {tokens}");
    }
}

#[test]
fn a_batch_of_chats_costs_an_answer_to_each() {
    let chat = json!([{"role": "user", "content": "x".repeat(400)}]);
    let batch = json!({"messages": [chat, chat, chat], "max_tokens": 1_000});
    let charged = tokens("/v1/chat/completions/batch", &batch).unwrap();
    assert!((3_300..3_350).contains(&charged), "{charged}");
    assert_eq!(tokens("/invocations", &json!({"prompt": "x"})).unwrap(), 1_010);
}

#[test]
fn what_is_made_of_text_costs_an_answer() {
    let text = "x".repeat(400);
    for path in ["/v1/audio/speech", "/v1/audio/speech/", "/v1/images/generations"] {
        let tokens = tokens(path, &json!({"model": "m", "input": text})).unwrap();
        assert_eq!(tokens, 1_010, "{path}");
    }
}

#[test]
fn bodies_that_are_not_read_cost_their_length_and_an_answer() {
    let head = |method| http::Request::builder().method(method).body(()).unwrap().into_parts().0;
    let post = head("POST");
    let cost = Cost::of_unread(&post, Some(400));
    assert_eq!(cost.tokens(|| 1_000), 1_100);
    let facts = read_v2(br#"{"text_input":"x","parameters":{"max_tokens":9000,"n":2}}"#).unwrap();
    assert_eq!(cost.with_parameters(&facts).tokens(|| 1_000), 18_100);
    let facts = read_v2(br#"{"max_tokens":"9000"}"#).unwrap();
    assert!(cost.with_parameters(&facts).check().is_err());
    assert!(Cost::of_unread(&post, None).check().is_err());
    assert!(Cost::of_stream().check().is_err());
    assert!(Cost::of_compressed(Some(400)).check().is_err());
    assert_eq!(Cost::of_upload(6_400).tokens(|| 1_000), 1_100);
    let cost = Cost::of_unread(&head("GET"), None);
    assert_eq!((cost.check().is_ok(), cost.tokens(|| 1_000)), (true, 0));
}

/// Returns what may be reported for a request: prompt tokens beyond its bytes, and generated
/// tokens.
fn bounds(path: &str, body: &Value, prompt: &Prompt) -> (Option<u64>, u64) {
    let body = body.to_string();
    let facts = read_facts(body.as_bytes()).unwrap();
    let tokens = Cost::of_json(path, &facts, body.as_bytes(), prompt).request_tokens();
    let beyond = tokens.prompt_max - body.len() as u64;
    let is_bounded = tokens.prompt_max < REPORTED_TOKENS_MAX;
    (is_bounded.then_some(beyond), tokens.completion_max)
}

#[test]
fn a_prompt_has_no_more_tokens_than_its_body_has_bytes_and_a_template_adds() {
    let text = Prompt { bytes: 40, ..Prompt::default() };
    let beyond = |path, body: Value| bounds(path, &body, &text).0;
    let chat = "/v1/chat/completions";
    assert_eq!(beyond(chat, messages(json!({}))), Some(4_096));
    assert_eq!(beyond("/team/v1/chat/completions", messages(json!({}))), Some(4_096));
    assert_eq!(beyond("/v1/embeddings", json!({"input": ["a", "b", "c"]})), Some(3 * 4_096));
    let pairs = json!({"query": "q", "documents": ["a", "b"]});
    assert_eq!(beyond("/v1/rerank", pairs), Some(2 * 4_096));
    let function = json!({"input": "x", "tools": [{"type": "function", "name": "f"}]});
    assert_eq!(beyond("/v1/responses", function), Some(4_096));
    let media = Prompt { has_media: true, ..text.clone() };
    assert_eq!(bounds(chat, &messages(json!({})), &media).0, None);
    for (path, body) in [
        ("/v1/responses", json!({"input": "x", "previous_response_id": "resp_1"})),
        ("/v1/responses", json!({"input": "x", "conversation": "conv_1"})),
        ("/v1/responses", json!({"prompt": {"id": "pmpt_1"}})),
        ("/v1/responses", json!({"input": "x", "tools": [{"type": "web_search"}]})),
        ("/team/generate", json!({"text": "x", "image_data": "https://example.org/a.png"})),
    ] {
        assert_eq!(beyond(path, body), None, "{path}");
    }
}

#[test]
fn a_reply_has_no_more_tokens_than_were_asked_for() {
    let text = Prompt::default();
    let most = |path, body: Value| bounds(path, &body, &text).1;
    let chat = "/v1/chat/completions";
    assert_eq!(most(chat, messages(json!({"max_tokens": 9, "n": 3}))), 27);
    let beams = json!({"max_tokens": 9, "n": 1, "best_of": 4, "use_beam_search": true});
    assert_eq!(most(chat, messages(beams)), 36);
    let several = json!({"prompt": ["a", "b"], "max_tokens": 9, "n": 3});
    assert_eq!(most("/v1/completions", several), 54);
    assert_eq!(most(chat, messages(json!({}))), REPORTED_TOKENS_MAX);
    // llama.cpp ignores a number in quotes.
    assert_eq!(most(chat, messages(json!({"max_tokens": "9"}))), REPORTED_TOKENS_MAX);
    let searching = json!({"input": "x", "max_output_tokens": 9, "tools": [{"type": "mcp"}]});
    assert_eq!(most("/v1/responses", searching), REPORTED_TOKENS_MAX);
}

#[test]
fn replies_are_told_apart_by_what_a_model_makes() {
    let kind = |path: &str, body: Value| {
        let body = body.to_string();
        let facts = read_facts(body.as_bytes()).unwrap();
        Cost::of_json(path, &facts, body.as_bytes(), &Prompt::default()).request_tokens().reply
    };
    for (path, expected) in [
        ("/v1/chat/completions", ReplyKind::Text),
        ("/v1/messages", ReplyKind::Text),
        ("/v1/embeddings", ReplyKind::Scores),
        ("/v1/rerank", ReplyKind::Scores),
        ("/team/v1/embeddings", ReplyKind::Scores),
        ("/v1/audio/speech", ReplyKind::Media),
        ("/v1/images/generations/", ReplyKind::Media),
        ("/tokenize", ReplyKind::Count),
        ("/v1/messages/count_tokens", ReplyKind::Count),
        ("/v1/responses/input_tokens", ReplyKind::Count),
    ] {
        assert_eq!(kind(path, json!({"input": "x"})), expected, "{path}");
    }
}
