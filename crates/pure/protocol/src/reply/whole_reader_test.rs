use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Finish, ReplyApi, ReplyError, ReplyFacts, ReplyVerdict, Usage, WholeReader};

const ALL: [ReplyApi; 9] = [
    ReplyApi::Chat,
    ReplyApi::Completions,
    ReplyApi::Responses,
    ReplyApi::StoredResponse,
    ReplyApi::Messages,
    ReplyApi::Embeddings,
    ReplyApi::Rerank,
    ReplyApi::KServeV2,
    ReplyApi::Other,
];

/// Returns the facts of a reply that arrives in these pieces.
fn facts_of<'p>(api: ReplyApi, pieces: impl IntoIterator<Item = &'p [u8]>) -> ReplyFacts {
    let mut reader = WholeReader::new(api);
    pieces.into_iter().for_each(|piece| reader.push(piece));
    reader.finish();
    reader.facts().clone()
}

/// Returns the facts of a reply, which must be the same wherever it is cut.
#[track_caller]
fn facts(api: ReplyApi, reply: &str) -> ReplyFacts {
    let bytes = reply.as_bytes();
    let whole = facts_of(api, [bytes]);
    for cut in 0..bytes.len() {
        let (head, tail) = bytes.split_at(cut);
        assert_eq!(facts_of(api, [head, tail]), whole, "{api:?} cut at {cut}: {reply}");
    }
    assert_eq!(facts_of(api, bytes.chunks(1)), whole, "{api:?} byte by byte: {reply}");
    whole
}

#[track_caller]
fn check_usage(api: ReplyApi, reply: &Value, expected: Option<(u64, u64, Option<u64>)>) {
    let usage = facts(api, &reply.to_string()).usage;
    let counts = usage.map(|u| (u.prompt_tokens, u.completion_tokens, u.cached_tokens));
    assert_eq!(counts, expected, "{api:?} {reply}");
}

#[track_caller]
fn check_verdict(api: ReplyApi, reply: &Value, expected: ReplyVerdict<'_>) {
    let facts = facts(api, &reply.to_string());
    assert!(facts.is_done, "{reply}");
    assert_eq!(facts.verdict(api, true), expected, "{api:?} {reply}");
}

fn chat(message: Value, reason: Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}})
}

#[test]
fn a_chat_has_its_facts() {
    let reply = chat(json!({"role": "assistant", "content": "hi"}), json!("stop"));
    let expected = ReplyFacts {
        id: Some("chatcmpl-1".into()),
        model: Some("m".into()),
        usage: Some(Usage { prompt_tokens: 5, completion_tokens: 2, cached_tokens: None }),
        finish: Some(Finish::Normal),
        error: None,
        has_content: true,
        is_done: true,
        is_whole: true,
        is_unreadable: false,
    };
    assert_eq!(facts(ReplyApi::Chat, &reply.to_string()), expected);
    assert_eq!(facts(ReplyApi::Other, &reply.to_string()), expected);
    let spaced = serde_json::to_string_pretty(&reply).unwrap();
    assert_eq!(facts(ReplyApi::Chat, &format!(" \r\n{spaced}\n")), expected);
}

#[test]
fn facts_are_known_as_soon_as_they_have_passed() {
    let mut reader = WholeReader::new(ReplyApi::Responses);
    reader.push(br#"{"id":"resp_1","status":"completed","usage":{"input_tokens":5,"output_tok"#);
    assert_eq!(reader.facts().id.as_deref(), Some("resp_1"));
    assert_eq!(reader.facts().usage, None);
    reader.push(br#"ens":2},"metadata":{"#);
    assert_eq!(reader.facts().usage.map(|usage| usage.completion_tokens), Some(2));
    assert!(!reader.facts().is_done);
    reader.finish();
    assert_eq!(reader.facts().finish, None, "the end is missing");
    assert!(!reader.facts().is_done);
}

#[test]
fn usage_is_read_under_the_names_of_all_apis() {
    let openai = json!({"usage": {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 3}}});
    for api in ALL {
        check_usage(api, &openai, Some((5, 4, Some(3))));
    }
    let response = json!({"usage": {"input_tokens": 5, "output_tokens": 4,
        "input_tokens_details": {"cached_tokens": 2}, "output_tokens_details": {"a": 1}}});
    check_usage(ReplyApi::Responses, &response, Some((5, 4, Some(2))));
    let message = json!({"usage": {"input_tokens": 5, "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 100, "output_tokens": 4}});
    check_usage(ReplyApi::Messages, &message, Some((115, 4, Some(100))));
    check_usage(ReplyApi::Embeddings, &json!({"usage": {"total_tokens": 9}}), Some((9, 0, None)));
    check_usage(ReplyApi::Chat, &json!({"usage": null}), None);
    check_usage(ReplyApi::Chat, &json!({"usage": {}}), None);
    check_usage(ReplyApi::Chat, &json!({"usage": [{"prompt_tokens": 1}]}), None);
    check_usage(ReplyApi::Chat, &json!({"usage": "{\"prompt_tokens\":1}"}), None);
}

#[test]
fn what_a_reply_repeats_of_its_request_is_no_usage() {
    let forged = json!({"prompt_tokens": 0, "completion_tokens": 0, "input_tokens": 0});
    let echo = json!({"usage": forged, "id": "resp_x", "error": {"message": "x"}, "status": "failed",
        "finish_reason": "abort", "response": {"usage": forged, "id": "resp_x"}});
    let usage = r#""usage":{"input_tokens":5,"output_tokens":2}"#;
    for api in ALL {
        for name in
            ["metadata", "tools", "text", "instructions", "parameters", "input", "output", "x"]
        {
            for echo in [echo.to_string(), format!("[{echo}]"), format!("[[{echo}],{echo}]")] {
                let echoed = format!(r#""{name}":{echo}"#);
                for reply in [
                    format!(r#"{{"id":"a",{usage},{echoed}}}"#),
                    format!(r#"{{"id":"a",{echoed},{usage}}}"#),
                    format!(r#"{{{echoed},"id":"a",{usage},{echoed}}}"#),
                ] {
                    let facts = facts_of(api, [reply.as_bytes()]);
                    let usage =
                        facts.usage.map(|usage| (usage.prompt_tokens, usage.completion_tokens));
                    assert_eq!(usage, Some((5, 2)), "{api:?} {reply}");
                    assert_eq!(facts.id.as_deref(), Some("a"), "{reply}");
                    assert_eq!((facts.error, facts.is_done), (None, true), "{api:?} {reply}");
                    assert_ne!(facts.finish, Some(Finish::Aborted), "{reply}");
                }
            }
        }
    }
}

#[test]
fn of_members_that_are_given_twice_the_last_complete_one_counts() {
    let check = |reply: &str, tokens: u64| {
        let usage = facts(ReplyApi::Chat, reply).usage.map(|usage| usage.prompt_tokens);
        assert_eq!(usage, Some(tokens), "{reply}");
    };
    check(r#"{"usage":{"prompt_tokens":9},"usage":{"prompt_tokens":1}}"#, 1);
    check(r#"{"usage":{"prompt_tokens":9},"usage":null}"#, 9);
    check(r#"{"usage":{"prompt_tokens":9},"usage":{}}"#, 9);
    check(r#"{"usage":{"prompt_tokens":9},"usage":{"prompt_tokens":1"#, 9);
    check(r#"{"usage":{"prompt_tokens":9},"us\u0061ge":{"prompt_tokens":1}}"#, 9);
    let twice = facts(ReplyApi::Chat, r#"{"id":"a","id":"b","model":"x","model":null}"#);
    assert_eq!((twice.id.as_deref(), twice.model.as_deref()), (Some("b"), Some("x")));
}

#[test]
fn the_end_of_a_chat_or_completion_is_given_by_its_choices() {
    let said = || json!({"role": "assistant", "content": "a"});
    let check = |reason: Value, expected: ReplyVerdict<'_>| {
        check_verdict(ReplyApi::Chat, &chat(said(), reason.clone()), expected);
        let text = json!({"choices": [{"text": "a", "finish_reason": reason}]});
        check_verdict(ReplyApi::Completions, &text, expected);
    };
    check(json!("stop"), ReplyVerdict::Complete);
    check(json!("a new word"), ReplyVerdict::Complete);
    check(json!("abort"), ReplyVerdict::Aborted);
    check(json!({"type": "abort", "message": "x", "status_code": null}), ReplyVerdict::Aborted);
    check(json!({"type": "stop", "matched": 2}), ReplyVerdict::Complete);
    check(json!({"type": "length", "length": "x".repeat(300)}), ReplyVerdict::Complete);
    check(json!("error"), ReplyVerdict::Failed(&ReplyError::default()));
    check(Value::Null, ReplyVerdict::Unfinished);
    let several = |reasons: [&str; 3]| json!({"choices": reasons.map(|reason| json!({"text": "a", "finish_reason": reason}))});
    check_verdict(ReplyApi::Completions, &several(["stop"; 3]), ReplyVerdict::Complete);
    for at in 0..3 {
        let mut reasons = ["length"; 3];
        reasons[at] = "abort";
        check_verdict(ReplyApi::Completions, &several(reasons), ReplyVerdict::Aborted);
    }
}

#[test]
fn a_whole_reply_without_any_reason_ends_with_its_json() {
    check_verdict(
        ReplyApi::Chat,
        &json!({"choices": [{"message": {"content": "a"}}]}),
        ReplyVerdict::Complete,
    );
    check_verdict(
        ReplyApi::Chat,
        &json!({"choices": [{"message": {"content": ""}}]}),
        ReplyVerdict::Empty,
    );
    check_verdict(ReplyApi::Chat, &json!({"choices": []}), ReplyVerdict::Empty);
    check_verdict(ReplyApi::Chat, &json!({}), ReplyVerdict::Empty);
    let cut = facts(ReplyApi::Chat, r#"{"choices":[{"message":{"content":"a"}}"#);
    assert_eq!(cut.verdict(ReplyApi::Chat, true), ReplyVerdict::Unfinished);
}

#[test]
fn the_end_of_a_response_is_given_by_its_status() {
    let response = |status: &str, error: Value| {
        json!({"id": "resp_1", "object": "response", "status": status, "error": error,
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "a"}]}]})
    };
    let check = |status: &str, expected: ReplyVerdict<'_>| {
        check_verdict(ReplyApi::Responses, &response(status, Value::Null), expected);
    };
    check("completed", ReplyVerdict::Complete);
    check("incomplete", ReplyVerdict::Complete);
    check("cancelled", ReplyVerdict::Aborted);
    check("failed", ReplyVerdict::Failed(&ReplyError::default()));
    // The reply to a request in the background.
    check("queued", ReplyVerdict::Complete);
    check("in_progress", ReplyVerdict::Complete);
    let error = ReplyError {
        code: Some("server_error".into()),
        message: "Generation aborted".into(),
        ..ReplyError::default()
    };
    let failed =
        response("failed", json!({"code": "server_error", "message": "Generation aborted"}));
    check_verdict(ReplyApi::Responses, &failed, ReplyVerdict::Failed(&error));
    for status in ["failed", "cancelled", "queued"] {
        let stored = response(status, Value::Null);
        check_verdict(ReplyApi::StoredResponse, &stored, ReplyVerdict::Complete);
    }
    // In other APIs the word has another meaning.
    let batch = json!({"id": "batch_1", "status": "failed"});
    check_verdict(ReplyApi::Other, &batch, ReplyVerdict::Complete);
}

#[test]
fn the_end_of_a_message_is_given_by_its_reason() {
    let message = |content: Value, reason: Value| {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": content, "stop_reason": reason,
            "usage": {"input_tokens": 5, "output_tokens": 2}})
    };
    let text = || json!([{"type": "text", "text": "a"}]);
    let tool = json!([{"type": "tool_use", "id": "t", "name": "f", "input": {}}]);
    let empty = json!([{"type": "text", "text": ""}]);
    let check = |content: Value, reason: Value, expected: ReplyVerdict<'_>| {
        check_verdict(ReplyApi::Messages, &message(content, reason), expected);
    };
    check(text(), json!("end_turn"), ReplyVerdict::Complete);
    check(tool, json!("tool_use"), ReplyVerdict::Complete);
    check(empty.clone(), json!("end_turn"), ReplyVerdict::Complete);
    // vLLM, for a request that was aborted.
    check(text(), Value::Null, ReplyVerdict::Unfinished);
    check(empty, Value::Null, ReplyVerdict::Empty);
    check(json!([]), Value::Null, ReplyVerdict::Empty);
    let facts = facts(ReplyApi::Messages, &message(text(), json!("end_turn")).to_string());
    assert_eq!((facts.id.as_deref(), facts.model.as_deref()), (Some("msg_1"), Some("m")));
}

#[test]
fn generated_content_of_any_kind_counts() {
    let check = |api: ReplyApi, reply: Value, expected: bool| {
        assert_eq!(facts(api, &reply.to_string()).has_content, expected, "{api:?} {reply}");
    };
    let of = |member: &str, value: Value| json!({"choices": [{"message": {"role": "assistant", "content": null, member: value}}]});
    for (member, value) in [
        ("content", json!("a")),
        ("content", json!([{"type": "text"}])),
        ("tool_calls", json!([{"id": "x"}])),
        ("reasoning_content", json!("a")),
        ("reasoning", json!("a")),
        ("refusal", json!("a")),
        ("audio", json!({"data": ""})),
        ("images", json!([1])),
    ] {
        check(ReplyApi::Chat, of(member, value), true);
    }
    for value in [json!(""), json!(null), json!([]), json!({}), json!(5), json!(false)] {
        check(ReplyApi::Chat, of("content", value), false);
    }
    check(ReplyApi::Completions, json!({"choices": [{"text": "", "token_ids": [1]}]}), true);
    check(ReplyApi::Completions, json!({"choices": [{"text": "", "token_ids": []}]}), false);
    check(ReplyApi::Completions, json!({"choices": [{"text": "", "logprobs": {"a": 1}}]}), false);
    check(ReplyApi::Responses, json!({"output": [{}]}), true);
    check(ReplyApi::Responses, json!({"output": [ ]}), false);
    check(ReplyApi::Embeddings, json!({"data": [{"embedding": [0.5]}]}), true);
    check(ReplyApi::Embeddings, json!([[0.5]]), true);
    check(ReplyApi::Embeddings, json!({"data": []}), false);
    check(ReplyApi::Rerank, json!({"results": [{"index": 0, "relevance_score": 0.5}]}), true);
    check(ReplyApi::Rerank, json!([{"index": 0, "score": 0.5}]), true);
    check(ReplyApi::Rerank, json!([]), false);
    check(ReplyApi::KServeV2, json!({"outputs": [{"name": "a", "data": [1]}]}), true);
    check(ReplyApi::KServeV2, json!({"text_output": "a"}), true);
}

#[test]
fn an_error_is_read_in_every_form() {
    let check = |reply: Value, status: Option<u16>, message: &str| {
        for api in ALL {
            let error = facts(api, &reply.to_string()).error.unwrap_or_else(|| panic!("{reply}"));
            assert_eq!((error.status, &*error.message), (status, message), "{api:?} {reply}");
        }
    };
    check(json!({"error": {"message": "m", "code": 500}}), Some(500), "m");
    check(json!({"error": "m"}), None, "m");
    check(json!({"error": {}}), None, "");
    check(json!({"type": "error", "error": {"type": "api_error", "message": "m"}}), None, "m");
    check(json!({"object": "error", "message": "m", "code": 503}), Some(503), "m");
    check(json!({"message": "m", "code": 503, "object": "error"}), Some(503), "m");
    for reply in [
        json!({"error": null}),
        json!({"error": []}),
        json!({"error": false}),
        json!({"message": "m", "code": 5}),
        json!({"errors": {"message": "m"}}),
    ] {
        assert_eq!(facts(ReplyApi::Chat, &reply.to_string()).error, None, "{reply}");
    }
}

#[test]
fn a_value_that_is_too_long_is_left_out() {
    let long = "x".repeat(257);
    let reply = json!({"id": long, "model": long[..256], "usage": {"prompt_tokens": 1}});
    let facts = facts_of(ReplyApi::Chat, [reply.to_string().as_bytes()]);
    assert_eq!((facts.id, facts.model.as_deref()), (None, Some(&long[..256])));
    let reply = json!({"usage": {"prompt_tokens": 1, "x": "x".repeat(100_000), "y": [{}, {}]}});
    let usage = facts_of(ReplyApi::Chat, [reply.to_string().as_bytes()]).usage;
    assert_eq!(usage.map(|usage| usage.prompt_tokens), Some(1));
}

#[test]
fn a_reply_that_is_no_json_is_unreadable() {
    for reply in [
        "text",
        "5",
        "null",
        "<html>",
        "\u{feff}{}",
        "{\"a\" 1}",
        "{,}",
        "{\"a\":}",
        "}",
        "{]",
        "\u{1f}\u{8b}",
    ] {
        let facts = facts(ReplyApi::Chat, reply);
        assert!(facts.is_unreadable && !facts.is_done, "{reply}");
        assert_eq!(facts.verdict(ReplyApi::Chat, true), ReplyVerdict::Complete, "{reply}");
    }
    for reply in ["", " ", "{", "{\"a\":[1,"] {
        let facts = facts(ReplyApi::Chat, reply);
        assert!(!facts.is_unreadable && !facts.is_done, "{reply}");
        assert_eq!(facts.verdict(ReplyApi::Chat, true), ReplyVerdict::Empty, "{reply}");
    }
    for reply in ["\"text\"", "[]", "[5]"] {
        assert!(facts(ReplyApi::Chat, reply).is_done, "{reply}");
    }
}

#[test]
fn what_stands_behind_the_json_is_ignored() {
    let tensors = b"{\"outputs\":[{}]}\x00\x01{\"error\":\"x\"}";
    let facts = facts_of(ReplyApi::KServeV2, tensors.chunks(5));
    assert!(facts.is_done && facts.has_content && facts.error.is_none());
}

// === properties ===

/// Generates JSON with members of all names that mean something, at any depth.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<u32>().prop_map(Value::from),
        (-1e3..1e3).prop_map(Value::from),
        "[a-z\"\\\\{}\\[\\]:, \u{e9}\n]{0,9}".prop_map(Value::from),
        Just(json!({"prompt_tokens": 7})),
        Just(json!("abort")),
    ];
    let name = prop::sample::select(vec![
        "usage",
        "id",
        "model",
        "choices",
        "message",
        "delta",
        "content",
        "response",
        "error",
        "status",
        "finish_reason",
        "prompt_tokens",
        "data",
        "type",
        "a",
        "metadata",
    ]);
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..6).prop_map(|members| {
                members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            }),
        ]
    })
}

/// Returns pieces of the bytes, cut anywhere.
fn pieces<'b>(bytes: &'b [u8], cuts: &[prop::sample::Index]) -> Vec<&'b [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn any_api() -> impl Strategy<Value = ReplyApi> {
    prop::sample::select(ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_facts_are_those_of_a_parser(api in any_api(), reply in any_json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&reply) } else { serde_json::to_string(&reply) };
        let facts = facts_of(api, [text.unwrap().as_bytes()]);
        let is_document = !matches!(reply, Value::Null | Value::Number(_));
        prop_assert_eq!((facts.is_done, facts.is_unreadable), (is_document, !is_document), "{}", reply);
        let id = reply.get("id").and_then(Value::as_str);
        prop_assert_eq!(facts.id.as_deref(), id);
        let usage = reply.get("usage").filter(|usage| usage.is_object());
        let tokens = usage.and_then(|usage| usage.get("prompt_tokens")).and_then(Value::as_u64);
        prop_assert_eq!(facts.usage.map(|usage| usage.prompt_tokens), tokens, "{}", reply);
        if reply.get("error").is_some_and(|error| error.is_object() || error.is_string()) {
            prop_assert!(facts.error.is_some(), "{}", reply);
        }
        let reasons = reply.get("choices").and_then(Value::as_array).into_iter().flatten();
        let is_aborted = reasons.filter_map(|choice| choice.get("finish_reason")).any(|it| it == "abort");
        if matches!(api, ReplyApi::Chat | ReplyApi::Completions | ReplyApi::Other) {
            prop_assert_eq!(facts.finish == Some(Finish::Aborted), is_aborted, "{}", reply);
        }
    }

    #[test]
    fn the_cuts_change_nothing(
        api in any_api(), reply in any_json(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let text = reply.to_string();
        let cut = facts_of(api, pieces(text.as_bytes(), &cuts));
        prop_assert_eq!(cut, facts_of(api, [text.as_bytes()]));
    }

    #[test]
    fn no_bytes_make_it_panic_and_the_cuts_change_nothing(
        api in any_api(),
        bytes in prop::collection::vec(prop::sample::select(
            b"{}[]\",:\\ \n0ntfu\xff\xc3\xa9".to_vec()), 0..80),
        prefix in prop::sample::select(vec!["", "{\"usage\":{", "{\"id\":\"", "{\"choices\":[{\"delta\":{"]),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
    ) {
        let bytes = [prefix.as_bytes(), &bytes].concat();
        let cut = facts_of(api, pieces(&bytes, &cuts));
        prop_assert_eq!(&cut, &facts_of(api, [&*bytes]));
        prop_assert!(cut.id.is_none_or(|id| id.len() <= 256));
    }

    #[test]
    fn text_of_a_model_is_no_fact(text in "[\"\\\\:{}a-z_ ]{0,40}") {
        let text = format!(r#"{text}"usage":{{"prompt_tokens":1}},"id":"x","error":"y"{text}"#);
        let reply = json!({"choices": [{"message": {"content": text}}], "a": text});
        let facts = facts_of(ReplyApi::Chat, [reply.to_string().as_bytes()]);
        prop_assert!(facts.usage.is_none() && facts.id.is_none() && facts.error.is_none());
        prop_assert!(facts.has_content);
    }
}

#[test]
fn the_place_of_the_first_choice_is_the_same_for_every_cut() {
    let choice = r#"{"index":0 , "message":{"content":"}]\"{"},"logprobs":{"a":[{}]}}"#;
    for (reply, expected) in [
        (format!(r#"{{"id":"a","choices":[{choice}],"usage":{{}}}}"#), Some(choice)),
        (format!(r#" {{ "choices" : [ {choice} , {{"index":1}} ] }} "#), Some(choice)),
        (r#"{"choices":[]}"#.to_owned(), None),
        (r#"{"choices":[1,{}]}"#.to_owned(), Some("{}")),
        (format!(r#"{{"metadata":{{"choices":[{choice}]}}}}"#), None),
        // It is not complete.
        (format!(r#"{{"choices":[{choice}]"#), None),
    ] {
        for cut in 0..reply.len() {
            let mut reader = WholeReader::new(ReplyApi::Chat);
            reader.push(&reply.as_bytes()[..cut]);
            reader.push(&reply.as_bytes()[cut..]);
            let found = reader.first_choice().map(|place| &reply[place]);
            assert_eq!(found, expected, "cut at {cut}: {reply}");
        }
    }
}
