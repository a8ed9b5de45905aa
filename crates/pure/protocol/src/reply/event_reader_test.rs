use proptest::prelude::*;
use serde_json::{Value, json};

use super::{EventReader, Finish, ReplyApi, ReplyError, ReplyFacts, ReplyVerdict, Usage};

/// Returns an event of this data; of this name, if the name is not empty.
fn event(name: &str, data: &Value) -> String {
    match name {
        "" => format!("data: {data}\n\n"),
        _ => format!("event: {name}\ndata: {data}\n\n"),
    }
}

fn chunk(delta: Value, reason: Value) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
    event("", &json!({"id": "chatcmpl-1", "model": "m", "choices": [choice]}))
}

fn word(text: &str) -> String {
    chunk(json!({"content": text}), Value::Null)
}

fn usage_chunk(prompt: u64, completion: u64) -> String {
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion});
    event("", &json!({"id": "chatcmpl-1", "choices": [], "usage": usage}))
}

const DONE: &str = "data: [DONE]\n\n";

/// Returns the facts of a stream of whole events.
fn whole(api: ReplyApi, events: &[String]) -> ReplyFacts {
    let mut reader = EventReader::new(api);
    for event in events {
        let _reading = reader.read(event.as_bytes());
    }
    reader.facts().clone()
}

/// Returns the facts of a stream, which must be the same for events that come in pieces.
#[track_caller]
fn facts(api: ReplyApi, events: &[String]) -> ReplyFacts {
    let facts = whole(api, events);
    for piece_bytes in [1, 2, 7, 50, 1_000] {
        let mut reader = EventReader::new(api);
        for event in events {
            reader.begin();
            event.as_bytes().chunks(piece_bytes).for_each(|piece| reader.push(piece));
            reader.end();
        }
        assert_eq!(reader.facts(), &facts, "{api:?} in pieces of {piece_bytes}: {events:?}");
    }
    facts
}

#[track_caller]
fn check(api: ReplyApi, events: &[String], expected: ReplyVerdict<'_>) {
    let facts = facts(api, events);
    assert_eq!(facts.verdict(api, true), expected, "{events:?}");
}

fn tokens(facts: &ReplyFacts) -> Option<(u64, u64)> {
    facts.usage.map(|usage| (usage.prompt_tokens, usage.completion_tokens))
}

#[test]
fn a_chat_has_its_facts() {
    let events = [
        ": ping\n\n".to_owned(),
        chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        word("a"),
        word("b"),
        word("c"),
        word("d\n"),
        chunk(json!({}), json!("stop")),
        usage_chunk(5, 4),
        DONE.to_owned(),
    ];
    let expected = ReplyFacts {
        id: Some("chatcmpl-1".into()),
        model: Some("m".into()),
        usage: Some(Usage { prompt_tokens: 5, completion_tokens: 4, cached_tokens: None }),
        finish: Some(Finish::Normal),
        error: None,
        has_content: true,
        is_done: true,
        is_whole: false,
        is_unreadable: false,
    };
    assert_eq!(facts(ReplyApi::Chat, &events), expected);
    assert_eq!(facts(ReplyApi::Other, &events), expected);
    for cut in 3..events.len() {
        let facts = facts(ReplyApi::Chat, &events[..cut]);
        assert_eq!(facts.finish.is_some(), cut > 6, "{cut}");
        assert_eq!(facts.usage.is_some(), cut > 7, "{cut}");
        assert!(facts.has_content && !facts.is_done, "{cut}");
    }
}

#[test]
fn the_end_of_a_chat_is_judged() {
    let stream = |reason: Value| {
        vec![
            word("a"),
            word("b"),
            word("c"),
            chunk(json!({}), reason),
            usage_chunk(1, 3),
            DONE.to_owned(),
        ]
    };
    let chat = ReplyApi::Chat;
    check(chat, &stream(json!("stop")), ReplyVerdict::Complete);
    check(chat, &stream(json!("abort")), ReplyVerdict::Aborted);
    check(chat, &stream(json!("error")), ReplyVerdict::Failed(&ReplyError::default()));
    check(chat, &stream(Value::Null), ReplyVerdict::Unfinished);
    check(chat, &stream(json!("")), ReplyVerdict::Unfinished);
    check(chat, &[DONE.to_owned()], ReplyVerdict::Empty);
    check(chat, &[], ReplyVerdict::Empty);
    let role = chunk(json!({"role": "assistant", "content": ""}), Value::Null);
    check(chat, &[role.clone(), DONE.to_owned()], ReplyVerdict::Empty);
    check(chat, &[role.clone(), chunk(json!({}), json!("abort"))], ReplyVerdict::Aborted);
    let at_once = [role, chunk(json!({"content": ""}), json!("stop"))];
    check(chat, &[&at_once[..], &[usage_chunk(5, 1)]].concat(), ReplyVerdict::Complete);
    check(chat, &[&at_once[..], &[usage_chunk(5, 0)]].concat(), ReplyVerdict::Empty);
    // One of several choices.
    let aborted = [word("a"), chunk(json!({}), json!("stop")), chunk(json!({}), json!("abort"))];
    check(chat, &aborted, ReplyVerdict::Aborted);
}

#[test]
fn a_completion_is_read_like_a_chat() {
    let chunk = |text: &str, reason: Value| {
        event("", &json!({"id": "cmpl-1", "choices": [{"text": text, "finish_reason": reason}]}))
    };
    let stream = |reason: Value| {
        vec![
            chunk("a", Value::Null),
            chunk("b", Value::Null),
            chunk("c", Value::Null),
            chunk("", reason),
        ]
    };
    check(ReplyApi::Completions, &stream(json!("length")), ReplyVerdict::Complete);
    check(ReplyApi::Completions, &stream(json!("abort")), ReplyVerdict::Aborted);
    check(ReplyApi::Completions, &stream(Value::Null), ReplyVerdict::Unfinished);
    check(ReplyApi::Completions, &[chunk("", Value::Null)], ReplyVerdict::Empty);
}

#[test]
fn usage_never_decreases() {
    let with_usage = |text: &str, usage: Value| {
        event("", &json!({"choices": [{"delta": {"content": text}}], "usage": usage}))
    };
    let usage = |completion: u64| json!({"prompt_tokens": 5, "completion_tokens": completion});
    let stream = [
        with_usage("a", usage(1)),
        with_usage("b", Value::Null),
        with_usage("c", usage(3)),
        with_usage("d", usage(2)),
        with_usage("e", json!({})),
    ];
    for (count, expected) in [(1, 1), (2, 1), (3, 3), (4, 3), (5, 3)] {
        assert_eq!(tokens(&facts(ReplyApi::Chat, &stream[..count])), Some((5, expected)));
    }
}

fn message_events() -> Vec<String> {
    let start = json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
        "role": "assistant", "content": [], "model": "m", "stop_reason": null,
        "usage": {"input_tokens": 500, "cache_read_input_tokens": 500, "output_tokens": 1}}});
    let delta = |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
    let block = json!({"type": "text", "text": ""});
    [
        ("message_start", start),
        (
            "content_block_start",
            json!({"type": "content_block_start", "index": 0, "content_block": block}),
        ),
        ("ping", json!({"type": "ping"})),
        ("content_block_delta", delta("a")),
        ("content_block_delta", delta("b")),
        ("content_block_stop", json!({"type": "content_block_stop", "index": 0})),
        (
            "message_delta",
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 7}}),
        ),
        ("message_stop", json!({"type": "message_stop"})),
    ]
    .iter()
    .map(|(name, data)| event(name, data))
    .collect()
}

fn without_names(events: &[String]) -> Vec<String> {
    events.iter().map(|event| event[event.find("data:").unwrap()..].to_owned()).collect()
}

#[test]
fn a_message_has_its_facts_with_and_without_names_of_events() {
    let named = message_events();
    for api in [ReplyApi::Messages, ReplyApi::Other] {
        for events in [named.clone(), without_names(&named)] {
            let facts = facts(api, &events);
            assert_eq!((facts.id.as_deref(), facts.model.as_deref()), (Some("msg_1"), Some("m")));
            let usage =
                Usage { prompt_tokens: 1000, completion_tokens: 7, cached_tokens: Some(500) };
            assert_eq!(facts.usage, Some(usage));
            assert!(facts.is_done && facts.has_content);
            assert_eq!(facts.verdict(ReplyApi::Messages, true), ReplyVerdict::Complete);
            for cut in 0..events.len() {
                let begun = self::facts(api, &events[..cut]);
                assert_eq!(begun.has_content, cut > 3, "{cut}");
                assert!(!begun.is_done, "{cut}");
            }
        }
    }
}

#[test]
fn a_message_without_a_reason_is_unfinished() {
    let events: Vec<String> =
        message_events().iter().map(|event| event.replace("\"end_turn\"", "null")).collect();
    check(ReplyApi::Messages, &events, ReplyVerdict::Unfinished);
    let empty = [&events[..3], &events[5..]].concat();
    check(ReplyApi::Messages, &empty, ReplyVerdict::Empty);
    let aborted: Vec<String> =
        message_events().iter().map(|event| event.replace("end_turn", "abort")).collect();
    check(ReplyApi::Messages, &aborted, ReplyVerdict::Aborted);
}

/// Returns a stream of the Responses API whose last event is of this name and status.
fn response_events(last: &str, status: Option<&str>) -> Vec<String> {
    let forged = json!({"usage": {"input_tokens": 0}, "response": {"usage": {"input_tokens": 0}}});
    let response = |status: Option<&str>, usage: Value| {
        json!({"id": "resp_1", "object": "response", "model": "m", "status": status, "error": null,
            "output": [], "usage": usage, "tools": [forged], "metadata": forged})
    };
    let usage = json!({"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}});
    let delta = |text: &str, number: u32| json!({"type": "response.output_text.delta", "item_id": "msg_1", "sequence_number": number, "delta": text});
    let created =
        json!({"type": "response.created", "response": response(Some("in_progress"), Value::Null)});
    let item = json!({"type": "message", "status": "completed", "id": "msg_1", "content": []});
    [
        ("response.created", created),
        ("response.output_text.delta", delta("", 1)),
        ("response.output_text.delta", delta("a", 2)),
        ("response.output_text.delta", delta("b", 3)),
        ("response.output_item.done", json!({"type": "response.output_item.done", "item": item})),
        (last, json!({"type": last, "response": response(status, usage)})),
    ]
    .iter()
    .map(|(name, data)| event(name, data))
    .collect()
}

#[test]
fn a_response_has_its_facts_with_and_without_names_of_events() {
    let named = response_events("response.completed", Some("completed"));
    for api in [ReplyApi::Responses, ReplyApi::Other] {
        for events in [named.clone(), without_names(&named)] {
            let facts = facts(api, &events);
            assert_eq!((facts.id.as_deref(), facts.model.as_deref()), (Some("resp_1"), Some("m")));
            let usage = Usage { prompt_tokens: 5, completion_tokens: 2, cached_tokens: Some(1) };
            assert_eq!(facts.usage, Some(usage), "{events:?}");
            assert!(facts.is_done);
            for cut in 0..events.len() {
                let begun = self::facts(api, &events[..cut]);
                assert_eq!(begun.has_content, cut > 2, "{cut}");
                assert_eq!(begun.id.is_some(), cut > 0, "{cut}");
                assert!(!begun.is_done && begun.finish.is_none() && begun.usage.is_none(), "{cut}");
            }
        }
    }
}

#[test]
fn the_end_of_a_response_is_judged() {
    let failed = ReplyError::default();
    for (last, status, expected) in [
        ("response.completed", Some("completed"), ReplyVerdict::Complete),
        ("response.completed", None, ReplyVerdict::Complete),
        ("response.incomplete", Some("incomplete"), ReplyVerdict::Complete),
        ("response.incomplete", None, ReplyVerdict::Complete),
        // vLLM, for what ran when it was stopped.
        ("response.completed", Some("cancelled"), ReplyVerdict::Aborted),
        ("response.cancelled", None, ReplyVerdict::Aborted),
        ("response.failed", Some("failed"), ReplyVerdict::Failed(&failed)),
        ("response.failed", None, ReplyVerdict::Failed(&failed)),
    ] {
        let events = response_events(last, status);
        check(ReplyApi::Responses, &events, expected);
        check(ReplyApi::Responses, &without_names(&events), expected);
        check(ReplyApi::Responses, &events[..5], ReplyVerdict::Unfinished);
        check(ReplyApi::Responses, &events[..2], ReplyVerdict::Empty);
    }
}

#[test]
fn only_events_of_the_responses_api_have_a_response() {
    let usage = json!({"input_tokens": 5, "output_tokens": 2});
    let data = |kind: &str| json!({"type": kind, "response": {"id": "resp_1", "usage": usage}});
    let known = |name: &str, kind: &str| {
        let facts = facts(ReplyApi::Responses, &[event(name, &data(kind))]);
        (facts.id.is_some(), facts.usage.is_some())
    };
    assert_eq!(known("response.completed", "x"), (true, true));
    assert_eq!(known("", "response.completed"), (true, true));
    assert_eq!(known("", "x"), (false, false));
    assert_eq!(known("ping", "ping"), (false, false));
    let chat = facts(ReplyApi::Chat, &[event("response.completed", &data("response.completed"))]);
    assert!(chat.id.is_none() && chat.usage.is_none());
}

#[test]
fn an_error_is_read_in_every_form() {
    let after = |error: String| [word("a"), word("b"), word("c"), error, DONE.to_owned()];
    let read = |api: ReplyApi, error: String| {
        let facts = facts(api, &after(error));
        facts.error.map(|error| (error.status, error.message.into_string()))
    };
    let (chat, message) = (ReplyApi::Chat, "m".to_owned());
    let json = json!({"error": {"message": "m", "type": "InternalServerError", "code": 500}});
    assert_eq!(read(chat, event("", &json)), Some((Some(500), message.clone())));
    assert_eq!(read(chat, event("error", &json)), Some((Some(500), message.clone())));
    assert_eq!(read(chat, event("", &json!({"error": "m"}))), Some((None, message.clone())));
    assert_eq!(read(chat, event("error", &json!({"message": "m"}))), Some((None, message.clone())));
    assert_eq!(read(chat, "event: error\ndata: m\n\n".to_owned()), Some((None, String::new())));
    assert_eq!(read(chat, "event: error\n\n".to_owned()), Some((None, String::new())));
    let object = json!({"object": "error", "message": "m", "code": 503});
    assert_eq!(read(chat, event("", &object)), Some((Some(503), message.clone())));
    let named = json!({"type": "error", "error": {"type": "overloaded_error", "message": "m"}});
    let own = json!({"type": "error", "code": "server_error", "message": "m"});
    for api in [ReplyApi::Messages, ReplyApi::Responses, ReplyApi::Other] {
        for name in ["", "error"] {
            assert_eq!(read(api, event(name, &named)), Some((None, message.clone())));
            assert_eq!(read(api, event(name, &own)), Some((None, message.clone())));
        }
    }
    assert_eq!(read(chat, event("", &json!({"error": null}))), None);
    let nested = chunk(json!({"content": "a", "error": {"message": "m"}}), Value::Null);
    assert_eq!(read(chat, nested), None);
    let first = [event("", &json!({"error": "m"})), event("", &json!({"error": "n"}))];
    assert_eq!(&*facts(chat, &first).error.unwrap().message, "m");
}

#[test]
fn lines_end_as_they_like_and_comments_come_anywhere() {
    let data =
        json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}});
    let data = data.to_string();
    let (head, tail) = data.split_at(data.find("\"response\"").unwrap());
    for line_end in ["\n", "\r\n", "\r"] {
        for space in ["", " "] {
            let text = format!(
                ": comment\nid: 5\nevent:{space}response.completed\ndata:{space}{head}\n: {{}}\n\
                 data:{space}{tail}\n\n"
            );
            let events = [": first\n\n".replace('\n', line_end), text.replace('\n', line_end)];
            let facts = facts(ReplyApi::Responses, &events);
            assert_eq!(facts.id.as_deref(), Some("resp_1"), "{events:?}");
            assert!(facts.is_done && facts.finish == Some(Finish::Normal), "{events:?}");
        }
    }
    let late = ["data: {}\nevent: message_stop\n\n".to_owned()];
    assert!(facts(ReplyApi::Messages, &late).is_done);
    for mark in ["data: [DONE]\n\n", "data:[DONE] \r\n\r\n", "data: [DONE]"] {
        assert!(facts(ReplyApi::Chat, &[mark.to_owned()]).is_done, "{mark:?}");
    }
    let no_mark = format!("data: [DONE]{}x\n\n", " ".repeat(70));
    assert!(!facts(ReplyApi::Chat, &[no_mark, "data: [DONE] x\n\n".to_owned()]).is_done);
}

#[test]
fn an_id_is_looked_for_in_the_first_events_alone() {
    let events = |empty: usize| {
        let chunk = event("", &json!({"choices": [{"delta": {"content": "a"}}]}));
        [vec![chunk; empty], vec![word("a")]].concat()
    };
    assert!(facts(ReplyApi::Chat, &events(7)).id.is_some());
    assert!(facts(ReplyApi::Chat, &events(8)).id.is_none());
}

#[test]
fn a_long_stream_of_an_unknown_form_has_content() {
    let events = vec![event("", &json!({"token": {"text": "a"}})); 64];
    let chat = ReplyApi::Chat;
    assert_eq!(facts(chat, &events[..63]).verdict(chat, true), ReplyVerdict::Empty);
    assert_eq!(facts(chat, &events).verdict(chat, true), ReplyVerdict::Unfinished);
    let text = vec!["data: no JSON\n\n".to_owned(); 3];
    assert_eq!(facts(chat, &text).verdict(chat, true), ReplyVerdict::Complete);
}

#[test]
fn events_like_the_one_before_are_not_parsed() {
    let mut reader = EventReader::new(ReplyApi::Chat);
    for text in ["a", "b", "c"] {
        reader.read(word(text).as_bytes());
    }
    let alike = format!("{reader:?}");
    for text in ["d", " e", "{}", "\u{e9}"] {
        let reading = reader.read(word(text).as_bytes());
        assert!(reading.is_counted && !reading.may_have_usage);
    }
    assert_eq!(format!("{reader:?}"), alike, "nothing was learned from them");
    reader.read(chunk(json!({"content": "e"}), json!("abort")).as_bytes());
    assert_eq!(reader.facts().finish, Some(Finish::Aborted));
}

// === properties ===

fn any_event() -> impl Strategy<Value = String> {
    let text = "[a-z\"\\\\{}\n ]{0,6}";
    prop_oneof![
        4 => text.prop_map(|text| word(&text)),
        1 => (text, prop::sample::select(vec!["stop", "abort", "error", ""]))
            .prop_map(|(text, reason)| chunk(json!({"content": text}), json!(reason))),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(prompt, completion)| {
            usage_chunk(prompt.into(), completion.into())
        }),
        1 => any::<u8>().prop_map(|tokens| {
            let forged = json!({"usage": {"prompt_tokens": 999, "completion_tokens": tokens}});
            event("", &json!({"choices": [{"delta": forged, "usage": forged}], "metadata": forged}))
        }),
        1 => prop::sample::select([message_events(), response_events("response.completed", None)].concat()),
        1 => prop::sample::select(vec![
            DONE, ": x\n\n", "event: error\n\n", "data: x\n\n", "data: {}\n\n", "\n",
            "data: {\"error\":\n\n", "data: {\"type\":\"message_stop\"}\n\n",
            "data: {\"usage\":null,\"finish_reason\":\"stop\"}\n\n",
        ]).prop_map(str::to_owned),
    ]
}

fn any_api() -> impl Strategy<Value = ReplyApi> {
    prop::sample::select(vec![
        ReplyApi::Chat,
        ReplyApi::Completions,
        ReplyApi::Responses,
        ReplyApi::Messages,
        ReplyApi::KServeV2,
        ReplyApi::Other,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn events_have_the_same_facts_whole_and_in_pieces(
        api in any_api(), events in prop::collection::vec(any_event(), 0..30), piece_bytes in 1..60_usize,
    ) {
        let mut reader = EventReader::new(api);
        for event in &events {
            reader.begin();
            event.as_bytes().chunks(piece_bytes).for_each(|piece| reader.push(piece));
            reader.end();
        }
        prop_assert_eq!(reader.facts(), &whole(api, &events));
    }

    #[test]
    fn facts_only_grow(api in any_api(), events in prop::collection::vec(any_event(), 0..30)) {
        let mut reader = EventReader::new(api);
        let mut before = ReplyFacts::default();
        for event in &events {
            reader.read(event.as_bytes());
            let now = reader.facts().clone();
            prop_assert!(tokens(&now).unwrap_or_default().0 >= tokens(&before).unwrap_or_default().0);
            prop_assert!(tokens(&now).unwrap_or_default().1 >= tokens(&before).unwrap_or_default().1);
            prop_assert!(tokens(&now).is_none_or(|(prompt, _)| prompt != 999), "a forged usage");
            prop_assert!(now.finish >= before.finish);
            prop_assert!(before.id.is_none() || now.id == before.id);
            prop_assert!(before.error.is_none() || now.error == before.error);
            prop_assert!(now.has_content >= before.has_content && now.is_done >= before.is_done);
            before = now;
        }
    }

    #[test]
    fn no_bytes_make_it_panic(
        api in any_api(),
        events in prop::collection::vec(prop::collection::vec(prop::sample::select(
            b"datevn: {}[]\"\\,usge\n\r1\xff".to_vec()), 0..40), 0..8),
    ) {
        let mut reader = EventReader::new(api);
        for event in &events {
            let _reading = reader.read(event);
            reader.begin();
            reader.push(event);
            reader.end();
        }
    }
}
