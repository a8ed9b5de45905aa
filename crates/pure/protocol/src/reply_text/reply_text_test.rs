use proptest::prelude::*;
use serde_json::{Value, json};
use spillway_prefix::{PrefixConfig, PrefixHasher, Scope};

use super::*;
use crate::{
    EventOptions, EventRelay, JudgedStream, PromptFacts, PromptPiece, ReplyApi, WholeReader,
    read_facts, read_prompt,
};

const OPTIONS: EventOptions = EventOptions {
    api: ReplyApi::Other,
    strip_usage: false,
    held_bytes_max: 4_096,
    judged: JudgedStream::Nothing,
};

/// Returns a body's prompt and the reader of its reply.
fn read(body: &str) -> (Vec<u8>, Option<ReplyReader>) {
    let facts = read_facts(body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error}"));
    let mut whole = Vec::new();
    let PromptFacts { shape, .. } = read_prompt(&facts, body.as_bytes(), |piece| match piece {
        PromptPiece::Text(text) => whole.extend_from_slice(text),
        PromptPiece::Blob(url) => whole.extend_from_slice(format!("<{}>", url.len()).as_bytes()),
    });
    let prompt = facts.prompt.map_or(&[][..], |at| &body.as_bytes()[at]);
    (whole, shape.map(|shape| ReplyReader::new(shape, prompt)))
}

/// Returns the turn in a stream that arrives in these pieces; `None` if there is none.
fn streamed(body: &str, pieces: &[&[u8]]) -> Option<String> {
    let (mut reader, mut turn) = (read(body).1?, Vec::new());
    let mut relay = EventRelay::new(OPTIONS);
    for piece in pieces {
        relay.push_seen(piece.to_vec().into(), |event| match event {
            Some(event) => reader.read_event(event, &mut |text| turn.extend_from_slice(text)),
            None => reader.give_up(),
        });
        while relay.pop().is_some() {}
    }
    let is_whole = reader.finish(&mut |_| panic!("nothing is left"));
    is_whole.then(|| String::from_utf8(turn).expect("text"))
}

/// Returns the turn in a reply that is no stream. It is the same if the reply comes in pieces.
fn whole(body: &str, reply: &Value) -> Option<String> {
    let reply = reply.to_string();
    let in_pieces = {
        let (mut reader, mut turn) = (read(body).1?, Vec::new());
        let (head, tail) = reply.as_bytes().split_at(reply.len() / 3);
        reader.read_piece(head);
        reader.read_piece(tail);
        let is_whole = reader.finish(&mut |text| turn.extend_from_slice(text));
        is_whole.then(|| String::from_utf8(turn).expect("text"))
    };
    for api in [ReplyApi::Other, ReplyApi::Chat, ReplyApi::Messages, ReplyApi::Responses] {
        let (mut reader, mut turn) = (read(body).1?, Vec::new());
        let mut facts = WholeReader::new(api);
        facts.push(reply.as_bytes());
        let first_choice = facts.first_choice();
        reader.read_whole(reply.as_bytes(), first_choice, &mut |text| turn.extend_from_slice(text));
        let is_whole = reader.finish(&mut |_| panic!("nothing is left"));
        let turn = is_whole.then(|| String::from_utf8(turn).expect("text"));
        assert_eq!(turn, in_pieces, "{api:?} {reply}");
    }
    in_pieces
}

fn stream(events: &[Value]) -> String {
    let events = events.iter().map(|event| match event["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {event}\n\n"),
        None => format!("data: {event}\n\n"),
    });
    events.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

/// Checks that `next`, the prompt of the next turn, begins with the prompt of `first` and its turn,
/// and that both have the same blocks.
#[track_caller]
fn check(first: &str, turn: Option<String>, next: &str) {
    let (first, next) = (read(first).0, read(next).0);
    let turn = turn.expect("a turn");
    let known = [&first[..], turn.as_bytes()].concat();
    let shown = String::from_utf8_lossy(&next);
    assert!(next.starts_with(&known), "{shown}\n{}", String::from_utf8_lossy(&known));
    assert!(next.len() > known.len());
    let config = PrefixConfig { block_bytes: 32, blocks_max: 4_096 };
    let hasher = PrefixHasher::new([1, 2, 3, 4], config).expect("a hasher");
    let mut hashes = hasher.start(&Scope::default());
    hashes.update(&first);
    let before = hashes.take_blocks();
    hashes.update(turn.as_bytes());
    let blocks = [before.as_slice(), hashes.finish().as_slice()].concat();
    assert!(blocks.len() > before.as_slice().len(), "the turn has blocks");
    assert!(hasher.hash(&Scope::default(), &next).as_slice().starts_with(&blocks));
}

const SAID: &str =
    "Grüße, \"Bob\"!\n\tA \\ and \u{1F600} </b> make a long enough answer for a block.";

/// Texts that together are [`SAID`].
fn tokens() -> Vec<String> {
    let characters: Vec<char> = SAID.chars().collect();
    characters.chunks(5).map(|token| token.iter().collect()).collect()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn chat_events() -> Vec<Value> {
    let choice = |index: u32, delta: Value, reason: Value| {
        json!({"id": "c", "object": "chat.completion.chunk", "choices":
            [{"index": index, "delta": delta, "logprobs": null, "finish_reason": reason}]})
    };
    let mut events =
        vec![choice(0, json!({"role": "assistant", "content": "", "refusal": null}), Value::Null)];
    for token in tokens() {
        events.push(choice(0, json!({"content": token, "reasoning_content": null}), Value::Null));
        events.push(choice(1, json!({"content": "another choice"}), Value::Null));
    }
    events.push(choice(0, json!({}), json!("stop")));
    events.push(json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}));
    events
}

#[test]
fn the_next_turn_of_a_chat_begins_with_the_last_prompt_and_its_reply() {
    let first = json!({"messages": [user("Hi")], "n": 2});
    let next =
        json!({"messages": [user("Hi"), {"role": "assistant", "content": SAID}, user("And?")]})
            .to_string();
    let body = first.to_string();
    check(&body, streamed(&body, &[stream(&chat_events()).as_bytes()]), &next);
    let message = json!({"role": "assistant", "content": SAID, "tool_calls": [], "refusal": null});
    let reply = json!({"choices": [
        {"index": 1, "message": {"role": "assistant", "content": "no"}, "finish_reason": "stop"},
        {"index": 0, "message": message, "finish_reason": "stop"}]});
    check(&body, whole(&body, &reply), &next);
}

#[test]
fn tool_calls_of_a_chat_belong_to_the_turn() {
    let first = json!({"messages": [user("Hi")], "tools": [{"type": "function"}]});
    let call = |id: &str, name: &str, arguments: &str| {
        // Written out, since the order of members counts.
        format!(
            r#"{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":{}}}}}"#,
            Value::from(arguments)
        )
    };
    let calls =
        [call("call_1", "weather", "{\"city\": \"Köln\"}"), call("call_2", "time", "{}")].join(",");
    let mut asked = "null".to_owned();
    for said in ["", SAID] {
        if !said.is_empty() {
            asked = Value::from(said).to_string();
        }
        let next = format!(
            r#"{{"tools":[{{"type":"function"}}],"messages":[{{"role":"user","content":"Hi"}},
                {{"role":"assistant","content":{asked},"tool_calls":[{calls}]}},
                {{"role":"tool","tool_call_id":"call_1","content":"rain"}}]}}"#
        );
        let delta = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]});
        let calls = |calls: Value| delta(json!({ "tool_calls": calls }));
        let events = [
            delta(json!({"content": said})),
            calls(json!([{"index": 0, "id": "call_1", "type": "function",
                "function": {"name": "weather", "arguments": ""}}])),
            calls(json!([{"index": 0, "function": {"arguments": "{\"city\":"}}])),
            calls(json!([{"index": 0, "function": {"arguments": " \"Köln\"}"}}])),
            calls(json!([{"index": 1, "id": "call_2", "function": {"name": "time"}},
                {"index": 1, "function": {"arguments": "{}"}}])),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        ];
        let body = first.to_string();
        check(&body, streamed(&body, &[stream(&events).as_bytes()]), &next);
        let message = json!({"content": said, "tool_calls": [
            {"id": "call_1", "type": "function",
                "function": {"name": "weather", "arguments": "{\"city\": \"Köln\"}"}},
            {"id": "call_2", "type": "function", "function": {"name": "time", "arguments": "{}"}}]});
        check(&body, whole(&body, &json!({"choices": [{ "message": message }]})), &next);
    }
}

#[test]
fn a_text_prompt_goes_on_with_its_completion() {
    let first = json!({"prompt": "Once upon"});
    let next = json!({"prompt": format!("Once upon{SAID} And then?")}).to_string();
    let event = |text: &str, reason: Option<&str>| json!({"choices": [{"index": 0, "text": text, "finish_reason": reason}]});
    let mut events: Vec<Value> = tokens().iter().map(|token| event(token, None)).collect();
    events.push(event("", Some("length")));
    let body = first.to_string();
    check(&body, streamed(&body, &[stream(&events).as_bytes()]), &next);
    check(&body, whole(&body, &event(SAID, Some("stop"))), &next);
}

#[test]
fn the_items_of_a_response_come_again_as_text_or_as_they_were() {
    let item = json!({"id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": SAID, "annotations": []}]});
    let call =
        json!({"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"});
    let part =
        |text: &str| json!({"role": "user", "content": [{"type": "input_text", "text": text}]});
    let said = json!({"role": "assistant", "content": SAID});
    let cases = [
        (json!("Hi"), vec![user("Hi"), said.clone(), call.clone(), user("And?")]),
        (json!([user("Hi")]), vec![user("Hi"), said, call.clone(), user("And?")]),
        (json!([part("Hi")]), vec![part("Hi"), item.clone(), call.clone(), part("And?")]),
    ];
    for (input, later) in cases {
        let first = json!({"instructions": "Be brief", "input": input});
        let next = json!({"instructions": "Be brief", "input": later}).to_string();
        let events = [
            json!({"type": "response.created", "response": {"id": "resp_1", "output": []}}),
            json!({"type": "response.output_item.added", "item": {"type": "message"}}),
            json!({"type": "response.output_text.delta", "delta": "Gr"}),
            json!({"type": "response.output_item.done", "item": item}),
            json!({"type": "response.output_item.done", "item": call}),
            json!({"type": "response.completed", "response": {"id": "resp_1"}}),
        ];
        let body = first.to_string();
        check(&body, streamed(&body, &[stream(&events).as_bytes()]), &next);
        check(&body, whole(&body, &json!({"id": "resp_1", "output": [item, call]})), &next);
    }
}

#[test]
fn the_blocks_of_a_message_come_again_as_text_or_as_parts() {
    let part = |text: &str| json!({"type": "text", "text": text});
    let tool =
        json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": [1, "x y"]}});
    let started = json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}});
    let delta = |delta: Value| json!({"type": "content_block_delta", "index": 0, "delta": delta});
    let mut said = vec![
        json!({"type": "message_start", "message": {"role": "assistant", "content": []}}),
        json!({"type": "content_block_start", "index": 0, "content_block": part("")}),
        json!({"type": "ping"}),
    ];
    let text = tokens().into_iter();
    said.extend(text.map(|token| delta(json!({"type": "text_delta", "text": token}))));
    let stop = json!({"type": "content_block_stop", "index": 0});
    said.push(stop.clone());
    let call = [
        json!({"type": "content_block_start", "index": 1, "content_block": started}),
        delta(json!({"type": "input_json_delta", "partial_json": ""})),
        delta(json!({"type": "input_json_delta", "partial_json": "{\"a\": [1, "})),
        delta(json!({"type": "input_json_delta", "partial_json": "\"x y\"]}"})),
        stop,
    ];
    let end = [
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}),
        json!({"type": "message_stop"}),
    ];
    // Written out, since the order of members counts.
    let again = |text: &str| format!(r#"{{"type":"text","text":{}}}"#, Value::from(text));
    let tool_again = r#"{"type":"tool_use","id":"toolu_1","name":"f","input":{"a":[1,"x y"]}}"#;
    let asked_in_parts = format!("[{}]", again("Hi"));
    let (text, parts) = (Value::from(SAID).to_string(), format!("[{}]", again(SAID)));
    let both = format!("[{},{tool_again}]", again(SAID));
    let cases = [
        ("\"Hi\"", text, [&said[..], &end].concat(), json!([part(SAID)])),
        (&asked_in_parts, parts, [&said[..], &end].concat(), json!([part(SAID)])),
        (&asked_in_parts, both, [&said[..], &call, &end].concat(), json!([part(SAID), tool])),
        ("\"Hi\"", format!("[{tool_again}]"), [&said[..1], &call, &end].concat(), json!([tool])),
    ];
    for (asked, again, events, content) in cases {
        let first = format!(r#"{{"messages":[{{"role":"user","content":{asked}}}]}}"#);
        let next = format!(
            r#"{{"messages":[{{"role":"user","content":{asked}}},
                {{"role":"assistant","content":{again}}},{{"role":"user","content":"And?"}}]}}"#
        );
        check(&first, streamed(&first, &[stream(&events).as_bytes()]), &next);
        let reply = json!({"type": "message", "role": "assistant", "content": content});
        check(&first, whole(&first, &reply), &next);
    }
}

#[test]
fn a_turn_is_escaped_as_the_prompt_is_whatever_the_server_does() {
    let turn = |prompt: &str, content: &str| {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"{prompt}"}}]}}"#);
        let event = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{content}\"}},\
             \"finish_reason\":\"stop\"}}]}}\n\n"
        );
        let text = streamed(&body, &[event.as_bytes()]).expect("a turn");
        let content = text.strip_prefix(r#"{"role":"assistant","content":""#);
        content.and_then(|text| text.strip_suffix("\"},")).expect("a message").to_owned()
    };
    assert_eq!(turn("Hi", r"a\u003cb\/\u00fc\u000a\u0001"), r"a<b/ü\n\u0001");
    assert_eq!(turn(r"Stra\u00dfe", "ü 😀 a"), r"\u00fc \ud83d\ude00 a");
    assert_eq!(turn(r"Stra\u000ae", r"\u00fc"), "ü");
}

#[test]
fn what_will_not_come_again_or_is_not_whole_gives_no_turn() {
    let chat = json!({"messages": [user("Hi")]}).to_string();
    let check = |events: &[Value]| {
        assert_eq!(streamed(&chat, &[stream(events).as_bytes()]), None, "{events:?}");
    };
    let choice = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let said = choice(json!({"content": "a"}));
    check(std::slice::from_ref(&said));
    check(std::slice::from_ref(&end));
    check(&[]);
    check(&[json!({"error": {"message": "no"}}), end.clone()]);
    check(&[said.clone(), json!({"error": {"message": "no"}})]);
    check(&[choice(json!({"reasoning_content": "Hm"})), said.clone(), end.clone()]);
    check(&[choice(json!({"reasoning": "Hm"})), said.clone(), end.clone()]);
    check(&[choice(json!({"tool_calls": [{"index": 0}]})), end.clone()]);
    check(&[choice(json!({"content": 7})), end.clone()]);
    check(&[json!({"choices": [{"text": "a", "finish_reason": "stop"}]})]);
    check(&[
        json!({"type": "response.output_item.done", "item": {"type": "reasoning"}}),
        json!({"type": "response.completed"}),
    ]);
    let block = json!({"type": "thinking", "thinking": ""});
    check(&[
        json!({"type": "content_block_start", "content_block": block}),
        json!({"type": "message_stop"}),
    ]);
    let long = stream(&[choice(json!({"content": "x".repeat(5_000)})), end.clone()]);
    assert!(streamed(&chat, &[long.as_bytes()]).is_some());
    let (head, tail) = long.as_bytes().split_at(4_500);
    assert_eq!(streamed(&chat, &[head, tail]), None, "too long to be held");
    assert_eq!(streamed(&chat, &[b"data: {\n\n"]), None);
    assert_eq!(streamed(&chat, &[b"data: {}\ndata: {}\n\n"]), None);
    assert_eq!(streamed(&chat, &[stream(&[said, end]).as_bytes()]).map(|it| it.len()), Some(35));
    for reply in [
        json!({}),
        json!([]),
        json!({"choices": []}),
        json!({"content": []}),
        json!({"output": [{"type": "reasoning"}]}),
        json!({"choices": [{"message": {"content": null}, "finish_reason": "stop"}]}),
        json!({"choices": [{"message": {"content": "x".repeat(200_000)}}]}),
    ] {
        assert_eq!(whole(&chat, &reply), None);
    }
    for prompt in [
        json!({"input": ["a", "b"]}),
        json!({"prompt": ["a", "b"]}),
        json!({"prompt": [1, 2]}),
        json!({"query": "a", "documents": ["b"]}),
        json!({"input": "a", "previous_response_id": "resp_1"}),
        json!({"messages": []}),
        json!({"model": "m"}),
    ] {
        assert!(read(&prompt.to_string()).1.is_none(), "{prompt}");
    }
}

proptest! {
    #[test]
    fn how_a_stream_is_cut_makes_no_difference(cuts in prop::collection::vec(0..4_000_usize, 0..12)) {
        let body = json!({"messages": [user("Hi")]}).to_string();
        let bytes = stream(&chat_events());
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % bytes.len()).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([bytes.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let pieces: Vec<&[u8]> =
            starts.zip(ends).map(|(start, end)| &bytes.as_bytes()[start..end]).collect();
        let expected = streamed(&body, &[bytes.as_bytes()]);
        prop_assert!(expected.is_some());
        prop_assert_eq!(streamed(&body, &pieces), expected);
    }

    #[test]
    fn any_events_are_read_or_given_up(data in "\\PC{0,200}", at in 0..40_usize) {
        let body = json!({"messages": [user("Hi")]}).to_string();
        let mut events = stream(&chat_events()).into_bytes();
        let at = at * events.len() / 40;
        events.splice(at..at, data.into_bytes());
        let turn = streamed(&body, &[&events]);
        let is_message = |turn: String| turn.starts_with("{\"role\":\"assistant\"");
        prop_assert!(turn.is_none_or(is_message));
    }
}
