use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::UsageWish;
use crate::read_facts;

fn chat(more: Value) -> Bytes {
    let mut body = json!({
        "model": "m", "stream": true,
        "messages": [{"role": "system", "content": "]}"}, {"role": "user", "content": "hi"}],
    });
    merge(&mut body, more);
    body.to_string().into()
}

fn text(more: Value) -> Bytes {
    let mut body =
        json!({ "model": "m", "stream": true, "prompt": "Once \"upon\"", "max_tokens": 9 });
    merge(&mut body, more);
    body.to_string().into()
}

fn merge(body: &mut Value, more: Value) {
    let (Value::Object(body), Value::Object(more)) = (body, more) else { panic!("objects") };
    body.extend(more);
}

#[track_caller]
fn check_chat(more: Value, expected: Result<(), Unfit>) {
    let read = Terms::read(&chat(more.clone()), CompletionApi::Chat);
    assert_eq!(read.map(|_| ()), expected, "{more}");
}

#[track_caller]
fn check_text(more: Value, expected: Result<(), Unfit>) {
    let read = Terms::read(&text(more.clone()), CompletionApi::Text);
    assert_eq!(read.map(|_| ()), expected, "{more}");
}

fn parsed(segments: &crate::Segments) -> Value {
    let bytes: Vec<u8> = segments.iter().flat_map(|slice| slice.to_vec()).collect();
    serde_json::from_slice(&bytes).expect("JSON")
}

#[test]
fn what_can_be_continued_exactly_is() {
    check_chat(json!({}), Ok(()));
    check_chat(json!({"n": 1, "tools": [], "tool_choice": "none", "logprobs": false}), Ok(()));
    check_chat(json!({"n": null, "response_format": {"type": "text"}, "stop": "END"}), Ok(()));
    check_chat(json!({"seed": 7, "temperature": 0, "logit_bias": {"5": 1}}), Ok(()));
    check_chat(json!({"seed": 7, "temperature": 0.0, "top_p": 0.5}), Ok(()));
    check_chat(json!({"presence_penalty": 0, "frequency_penalty": 0.0}), Ok(()));
    check_chat(json!({"add_generation_prompt": true, "continue_final_message": false}), Ok(()));
    let image = json!({"type": "image_url", "image_url": {"url": "data:,"}});
    check_chat(json!({"messages": [{"role": "user", "content": [image]}]}), Ok(()));
    check_text(json!({}), Ok(()));
    check_text(json!({"prompt": "", "best_of": 1, "echo": false, "suffix": null}), Ok(()));
}

#[test]
fn what_cannot_be_exact_is_refused_and_why() {
    check_chat(json!({"n": 2}), Err(Unfit::SeveralAnswers));
    check_chat(json!({"use_beam_search": true}), Err(Unfit::SeveralAnswers));
    check_chat(json!({"tools": [{"type": "function"}]}), Err(Unfit::Tools));
    check_chat(json!({"functions": [{}]}), Err(Unfit::Tools));
    check_chat(json!({"response_format": {"type": "json_object"}}), Err(Unfit::Structured));
    check_chat(json!({"guided_regex": "a+"}), Err(Unfit::Structured));
    check_chat(json!({"structured_outputs": {"choice": ["a"]}}), Err(Unfit::Structured));
    check_chat(json!({"ebnf": "root ::= a"}), Err(Unfit::Structured));
    check_chat(json!({"logprobs": true}), Err(Unfit::Logprobs));
    check_chat(json!({"seed": 7}), Err(Unfit::Seed));
    check_chat(json!({"seed": 7, "temperature": 0.7}), Err(Unfit::Seed));
    check_chat(json!({"presence_penalty": 0.5}), Err(Unfit::Penalties));
    check_chat(json!({"continue_final_message": true}), Err(Unfit::Prefilled));
    check_chat(json!({"add_generation_prompt": false}), Err(Unfit::Prefilled));
    check_chat(json!({"audio": {"voice": "x"}}), Err(Unfit::Media));
    check_chat(json!({"max_tokens": "many"}), Err(Unfit::Unreadable));
    check_chat(json!({"messages": []}), Err(Unfit::Unreadable));
    check_text(json!({"best_of": 3}), Err(Unfit::SeveralAnswers));
    check_text(json!({"logprobs": 1}), Err(Unfit::Logprobs));
    check_text(json!({"echo": true}), Err(Unfit::Echo));
    check_text(json!({"suffix": "."}), Err(Unfit::Suffix));
    check_text(json!({"prompt": [1, 2, 3]}), Err(Unfit::TokenPrompt));
    check_text(json!({"prompt": ["a"]}), Err(Unfit::TokenPrompt));
    check_text(json!({"max_tokens": null}), Err(Unfit::NoLimit));
    assert_eq!(Terms::read(b"[]", CompletionApi::Chat), Err(Unfit::Unreadable));
    assert_eq!(
        Terms::read(b"{\"messages\":[{}],\"N\":2}", CompletionApi::Chat),
        Err(Unfit::Unreadable)
    );
}

#[test]
fn names_of_reasons_are_unique() {
    let mut names = Unfit::ALL.map(Unfit::name).to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Unfit::ALL.len());
}

#[test]
fn a_chat_goes_on_behind_a_last_message_of_the_assistant() {
    let body = chat(json!({"max_tokens": 20, "max_completion_tokens": 30, "min_tokens": 3}));
    let terms = Terms::read(&body, CompletionApi::Chat).unwrap();
    assert_eq!(terms.tokens_max(), Some(20));
    let behind = parsed(&terms.body_behind(&body, "a \"b\"\n", 5));
    assert_eq!(
        behind,
        json!({
            "model": "m", "stream": true,
            "messages": [
                {"role": "system", "content": "]}"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "a \"b\"\n"},
            ],
            "max_tokens": 15, "max_completion_tokens": 25, "min_tokens": 0,
            "add_generation_prompt": false, "continue_final_message": true,
        })
    );
}

#[test]
fn switches_that_the_client_set_are_turned_and_not_doubled() {
    let body = chat(json!({"add_generation_prompt": true, "continue_final_message": null}));
    let terms = Terms::read(&body, CompletionApi::Chat).unwrap();
    let bytes: Vec<u8> =
        terms.body_behind(&body, "x", 1).iter().flat_map(|slice| slice.to_vec()).collect();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.matches("add_generation_prompt").count(), 1, "{text}");
    let behind: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(behind["add_generation_prompt"], false);
    assert_eq!(behind["continue_final_message"], true);
}

#[test]
fn a_prompt_is_made_longer_by_the_text() {
    let body = text(json!({}));
    let terms = Terms::read(&body, CompletionApi::Text).unwrap();
    let behind = parsed(&terms.body_behind(&body, " a\u{e9}\t\\", 4));
    assert_eq!(behind["prompt"], "Once \"upon\" a\u{e9}\t\\");
    assert_eq!(behind["max_tokens"], 5);
    assert_eq!(behind.as_object().unwrap().len(), 4);
}

#[test]
fn a_stop_sequence_has_begun_if_the_text_ends_with_a_part_of_it() {
    let terms =
        |stop: Value| Terms::read(&chat(json!({ "stop": stop })), CompletionApi::Chat).unwrap();
    let end = terms(json!(["###", "END"]));
    for (text, expected) in [
        ("a", false),
        ("a#", true),
        ("a##", true),
        ("E", true),
        ("EN", true),
        ("ENX", false),
        ("", false),
    ] {
        assert_eq!(end.has_stop_begun(text), expected, "{text}");
    }
    assert!(terms(json!("\u{e9}x")).has_stop_begun("caf\u{e9}"));
    assert!(!terms(json!("")).has_stop_begun("a"));
    assert!(!terms(Value::Null).has_stop_begun("a"));
}

#[test]
fn usage_is_asked_for_in_every_event() {
    let cases = [
        json!({}),
        json!({"stream_options": null}),
        json!({"stream_options": {}}),
        json!({"stream_options": {"include_usage": false}}),
        json!({"stream_options": {"include_usage": true}}),
        json!({"stream_options": {"include_usage": null, "x": 1}}),
        json!({"stream_options": {"continuous_usage_stats": true}}),
        json!({"stream_options": {"x": 1}}),
    ];
    for case in cases {
        let body = chat(case.clone());
        let facts = read_facts(&body).unwrap();
        let asked = parsed(&ask_throughout(&body, &facts, Some("other")));
        assert_eq!(asked["stream_options"]["include_usage"], true, "{case}");
        assert_eq!(asked["stream_options"]["continuous_usage_stats"], true, "{case}");
        assert_eq!(asked["model"], "other", "{case}");
        assert_eq!(asked["messages"].as_array().unwrap().len(), 2, "{case}");
        assert_eq!(asked["stream_options"].get("x"), case["stream_options"].get("x"), "{case}");
    }
}

#[test]
fn what_the_client_asked_for_is_known() {
    let of = |options: Value| {
        let body = chat(json!({ "stream_options": options }));
        UsageTelling::of(&read_facts(&body).unwrap(), &body)
    };
    assert_eq!(of(Value::Null), UsageTelling::Never);
    assert_eq!(of(json!({"continuous_usage_stats": true})), UsageTelling::Never);
    assert_eq!(of(json!({"include_usage": true})), UsageTelling::AtEnd);
    let throughout = json!({"include_usage": true, "continuous_usage_stats": true});
    assert_eq!(of(throughout), UsageTelling::Throughout);
}

#[test]
fn a_stream_gives_the_usage_that_either_of_two_wants() {
    use UsageTelling::{AtEnd, Never, Throughout};
    for (client, wish, expected) in [
        (Never, UsageWish::AsSent, Never),
        (Never, UsageWish::AtEnd, AtEnd),
        (Never, UsageWish::Throughout, Throughout),
        (AtEnd, UsageWish::AsSent, AtEnd),
        (Throughout, UsageWish::AtEnd, Throughout),
    ] {
        assert_eq!(client.and(wish), expected, "{client:?} {wish:?}");
    }
}
