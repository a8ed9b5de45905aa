use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{EventOptions, EventRelay, JudgedStream, ReplyApi, Usage};

/// Tokens of an answer; some have white space at their ends, some have no letter.
const ANSWER: [&str; 12] = [
    "Once", " upon", " a\n", "\n", "time", " there", " was", "  ", "a", " \"dam\"", " \u{e9}", ".",
];
const PROMPT_TOKENS: u64 = 7;

/// Behaviour of an engine and wish of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Manners {
    api: CompletionApi,
    /// True if the engine reports usage in every event.
    throughout: bool,
    /// True if the last token comes together with the finish reason.
    joined_finish: bool,
    telling: UsageTelling,
}

/// Returns a replica's events from token `from` on. Its prompt includes the tokens before.
fn events(manners: Manners, from: usize, id: &str) -> Vec<Bytes> {
    let Manners { api, throughout, joined_finish, telling } = manners;
    let prompt = PROMPT_TOKENS + from as u64;
    let usage = |tokens: usize| {
        json!({
            "prompt_tokens": prompt, "completion_tokens": tokens,
            "total_tokens": prompt + tokens as u64, "prompt_tokens_details": {"cached_tokens": prompt},
        })
    };
    let chunk = |choices: Value, tokens: usize, at_end: bool| {
        let mut chunk = json!({
            "id": id, "object": "x", "created": id.len(), "model": format!("m-{id}"),
            "choices": choices,
        });
        if throughout || at_end {
            chunk["usage"] = usage(tokens);
        } else if telling == UsageTelling::AtEnd {
            chunk["usage"] = Value::Null;
        }
        Bytes::from(format!("data: {chunk}\n\n"))
    };
    let choice = |text: &str, role: Option<&str>, finish: Option<&str>| match (api, role) {
        (CompletionApi::Text, _) => json!([{"index": 0, "text": text, "finish_reason": finish}]),
        (CompletionApi::Chat, Some(role)) => {
            json!([{"index": 0, "delta": {"role": role, "content": text}, "finish_reason": finish}])
        }
        (CompletionApi::Chat, None) => {
            json!([{"index": 0, "delta": {"content": text}, "finish_reason": finish}])
        }
    };
    let mut events = vec![Bytes::from_static(b": hello\n\n")];
    if api == CompletionApi::Chat {
        events.push(chunk(choice("", Some("assistant"), None), 0, false));
    }
    let left = &ANSWER[from..];
    for (index, token) in left.iter().enumerate() {
        let is_last = joined_finish && index + 1 == left.len();
        let finish = is_last.then_some("stop");
        events.push(chunk(choice(token, None, finish), index + 1, false));
    }
    if !joined_finish || left.is_empty() {
        events.push(chunk(choice("", None, Some("stop")), left.len(), false));
    }
    if throughout || telling != UsageTelling::Never {
        events.push(chunk(json!([]), left.len(), true));
    }
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    events
}

fn terms(api: CompletionApi) -> Terms {
    let body = match api {
        CompletionApi::Chat => json!({"messages": [{"role": "user", "content": "x"}]}),
        CompletionApi::Text => json!({"prompt": "x", "max_tokens": 100}),
    };
    Terms::read(body.to_string().as_bytes(), api).unwrap()
}

fn thread(manners: Manners) -> Thread {
    Thread::new(manners.api, manners.telling, 1 << 10)
}

/// Content of a stream as the client sees it.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    text: String,
    ids: Vec<String>,
    roles: usize,
    finishes: Vec<String>,
    usages: Vec<Value>,
    dones: usize,
    events: usize,
}

fn seen(bytes: &[u8]) -> Seen {
    let mut seen = Seen::default();
    let text = std::str::from_utf8(bytes).expect("UTF-8");
    assert!(text.is_empty() || text.ends_with("\n\n"), "{text}");
    for data in text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")) {
        seen.events += 1;
        if data == "[DONE]" {
            seen.dones += 1;
            continue;
        }
        let chunk: Value = serde_json::from_str(data).unwrap_or_else(|e| panic!("{data}: {e}"));
        let head = format!("{}{}{}", chunk["id"], chunk["created"], chunk["model"]);
        if !seen.ids.contains(&head) {
            seen.ids.push(head);
        }
        for choice in chunk["choices"].as_array().into_iter().flatten() {
            let said = choice["delta"]["content"].as_str().or_else(|| choice["text"].as_str());
            seen.text.push_str(said.unwrap_or_default());
            seen.roles += usize::from(choice["delta"]["role"].is_string());
            seen.finishes.extend(choice["finish_reason"].as_str().map(str::to_owned));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            seen.usages.push(usage.clone());
        }
    }
    seen
}

/// Sends `bytes` of a replica through the thread in pieces, like a relay.
fn send(thread: &mut Thread, bytes: &[u8], piece: usize) -> Vec<u8> {
    let mut relay = EventRelay::new(EventOptions {
        api: ReplyApi::Chat,
        strip_usage: false,
        held_bytes_max: 1 << 20,
        judged: JudgedStream::Nothing,
    });
    let mut sent = Vec::new();
    for part in bytes.chunks(piece.max(1)) {
        relay.push(Bytes::copy_from_slice(part));
        while let Some(events) = relay.pop() {
            thread.push(&events);
        }
    }
    while let Some(out) = thread.pop() {
        sent.extend_from_slice(&out);
    }
    sent
}

/// Serves one answer by replicas that each fail after `cuts` bytes.
fn run(manners: Manners, cuts: &[usize], piece: usize) -> (Seen, Usage) {
    let mut thread = thread(manners);
    let terms = terms(manners.api);
    let mut sent = Vec::new();
    let mut from = 0;
    for (replica, cut) in cuts.iter().enumerate() {
        let all = events(manners, from, &"r".repeat(replica + 1)).concat();
        sent.extend(send(&mut thread, &all[..all.len().min(*cut)], piece));
        if thread.is_done() {
            break;
        }
        match thread.next(Ok(&terms)) {
            Next::Afresh => assert_eq!(thread.text(), ""),
            Next::Behind => {
                // The tokens must end where the text does, or the next replica would generate
                // another text.
                let told = thread.tokens() as usize;
                assert_eq!(ANSWER[..told].concat(), thread.text());
                from = told;
            }
            Next::Ended(last) => {
                sent.extend(last);
                return (seen(&sent), thread.usage());
            }
            Next::Unfit(unfit) => panic!("{unfit:?} after {}", String::from_utf8_lossy(&sent)),
        }
        thread.take_up();
    }
    if !thread.is_done() {
        let all = events(manners, from, "last").concat();
        sent.extend(send(&mut thread, &all, piece));
    }
    (seen(&sent), thread.usage())
}

#[track_caller]
fn check(manners: Manners, cuts: &[usize], piece: usize) {
    let (mut undisturbed, usage) = run(manners, &[], 1 << 16);
    let (mut continued, same_usage) = run(manners, cuts, piece);
    assert_eq!(undisturbed.text, ANSWER.concat());
    assert_eq!((continued.roles, continued.dones, continued.ids.len()), (undisturbed.roles, 1, 1));
    assert_eq!(continued.finishes, ["stop"]);
    let cached = |usages: &mut Vec<Value>| {
        // The replica that ends the stream reports its own cached tokens, so these may differ.
        usages.iter_mut().for_each(|usage| {
            usage.as_object_mut().unwrap().remove("prompt_tokens_details");
        });
    };
    cached(&mut undisturbed.usages);
    cached(&mut continued.usages);
    assert_eq!(continued.text, undisturbed.text);
    assert_eq!(continued.usages.last(), undisturbed.usages.last(), "{manners:?} {cuts:?}");
    if manners.telling != UsageTelling::Throughout {
        assert_eq!(continued.usages.len(), usize::from(manners.telling == UsageTelling::AtEnd));
    }
    assert_eq!(same_usage.completion_tokens, usage.completion_tokens);
    if manners.throughout {
        assert_eq!(same_usage.prompt_tokens, PROMPT_TOKENS);
    }
}

fn all_manners() -> Vec<Manners> {
    let mut all = Vec::new();
    for api in [CompletionApi::Chat, CompletionApi::Text] {
        for joined_finish in [false, true] {
            for (throughout, telling) in [
                (true, UsageTelling::Never),
                (true, UsageTelling::AtEnd),
                (true, UsageTelling::Throughout),
                (false, UsageTelling::Never),
            ] {
                all.push(Manners { api, throughout, joined_finish, telling });
            }
        }
    }
    all
}

#[test]
fn a_stream_cut_around_any_event_goes_on_without_gap_or_repeat() {
    for manners in all_manners() {
        let mut start = 0;
        for event in events(manners, 0, "r") {
            let end = start + event.len();
            for cut in [start, start + 1, start + event.len() / 2, end - 2, end - 1] {
                check(manners, &[cut], 1 << 16);
            }
            start = end;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn a_stream_cut_several_times_is_one_stream(
        manners in 0..16_usize, cuts in prop::collection::vec(0..3000_usize, 0..5), piece in 1..200_usize,
    ) {
        check(all_manners()[manners % all_manners().len()], &cuts, piece);
    }
}

#[test]
fn usage_that_is_told_at_the_end_alone_is_worked_out_from_the_longer_prompt() {
    let manners = Manners {
        api: CompletionApi::Chat,
        throughout: false,
        joined_finish: true,
        telling: UsageTelling::AtEnd,
    };
    let all = events(manners, 0, "r");
    // After the role and three tokens, of which the third is held back.
    let cut = all[..5].concat().len();
    let (seen, usage) = run(manners, &[cut], 1 << 16);
    assert_eq!(usage, Usage { prompt_tokens: 7, completion_tokens: 12, cached_tokens: Some(7) });
    assert_eq!(seen.usages.len(), 1);
    assert_eq!(seen.usages[0]["total_tokens"], 19);
    assert_eq!(seen.usages[0]["prompt_tokens_details"]["cached_tokens"], 7);
    // The answer is complete, but no replica has reported its usage.
    let finished = all[..all.len() - 2].concat();
    let mut thread = thread(manners);
    send(&mut thread, &finished, 1 << 16);
    assert_eq!(thread.next(Ok(&terms(manners.api))), Next::Unfit(Unfit::UsageUnknown));
}

const PLAIN: Manners = Manners {
    api: CompletionApi::Chat,
    throughout: true,
    joined_finish: false,
    telling: UsageTelling::Never,
};

#[test]
fn text_that_ends_in_white_space_is_held_until_more_comes() {
    let all = events(PLAIN, 0, "r");
    let mut thread = thread(PLAIN);
    let mut sent = Vec::new();
    for (count, event) in all.iter().enumerate() {
        sent.extend(send(&mut thread, event, 1 << 16));
        let text = seen(&sent).text;
        assert!(!text.ends_with(char::is_whitespace), "{count}: {text:?}");
        if thread.text().is_empty() || !thread.is_done() {
            assert_eq!(thread.text(), text);
        }
    }
    assert_eq!(seen(&sent).text, ANSWER.concat());
}

#[test]
fn of_a_text_completion_nothing_is_held() {
    let manners = Manners { api: CompletionApi::Text, ..PLAIN };
    let mut thread = thread(manners);
    for (count, event) in events(manners, 0, "r").iter().enumerate() {
        let sent = send(&mut thread, event, 1 << 16);
        let is_usage = event.windows(12).any(|part| part == b"\"choices\":[]");
        assert_eq!(sent.is_empty(), is_usage, "{count}");
    }
}

#[test]
fn an_undisturbed_stream_of_a_replica_that_says_nothing_more_is_passed_on_as_it_is() {
    for telling in [UsageTelling::Never, UsageTelling::AtEnd] {
        let manners = Manners { throughout: false, telling, ..PLAIN };
        let all = events(manners, 0, "r").concat();
        let mut thread = thread(manners);
        assert_eq!(Bytes::from(send(&mut thread, &all, 50)), all);
        assert!(thread.is_whole() && thread.is_done());
    }
}

#[test]
fn usage_that_only_the_gateway_asked_for_leaves_no_trace() {
    let with = events(PLAIN, 0, "r").concat();
    let without = events(Manners { throughout: false, ..PLAIN }, 0, "r").concat();
    let sent = send(&mut thread(PLAIN), &with, 1 << 16);
    assert_eq!(String::from_utf8(sent).unwrap(), String::from_utf8(without).unwrap());
}

#[test]
fn a_chunk_of_usage_is_left_out_and_others_lose_only_their_usage() {
    let chunk = |choices: Value, more: Value| {
        let mut chunk = json!({"id": "r", "choices": choices});
        chunk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("data: {chunk}\n\n")
    };
    let word = |more: Value| chunk(json!([{"index": 0, "delta": {"content": "a"}}]), more);
    let finish =
        |more: Value| chunk(json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]), more);
    let usage = || json!({"prompt_tokens": 7, "completion_tokens": 1});
    let check = |stream: &[String], expected: &[String]| {
        let sent = send(&mut thread(PLAIN), stream.concat().as_bytes(), 1 << 16);
        assert_eq!(String::from_utf8(sent).unwrap(), expected.concat());
    };
    let (first, last) = (word(json!({})), finish(json!({})));
    let of_usage = |more: Value| {
        let mut more = more;
        more["usage"] = usage();
        chunk(json!([]), more)
    };
    for more in
        [json!({}), json!({"timings": {"prompt_ms": 1}}), json!({"system_fingerprint": "fp"})]
    {
        let stream = [first.clone(), last.clone(), of_usage(more.clone())];
        check(&stream, &[first.clone(), last.clone()]);
        // A replica may report usage in each chunk.
        let mut with_usage = more.clone();
        with_usage["usage"] = usage();
        check(&[word(with_usage), last.clone()], &[word(more), last.clone()]);
    }
}

#[test]
fn the_fingerprint_of_a_second_replica_does_not_keep_its_usage() {
    let chunk = |id: &str, choices: Value, more: &str| {
        let head = format!("{{\"id\":\"{id}\",\"system_fingerprint\":\"fp-{id}\"");
        format!("data: {head},\"choices\":{choices}{more}}}\n\n")
    };
    let word = json!([{"index": 0, "delta": {"content": "a"}}]);
    let mut thread = thread(PLAIN);
    send(&mut thread, chunk("r", word.clone(), "").as_bytes(), 1 << 16);
    assert_eq!(thread.next(Ok(&terms(CompletionApi::Chat))), Next::Behind);
    thread.take_up();
    let usage = ",\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":1}";
    let second = [chunk("s", word.clone(), ""), chunk("s", json!([]), usage)].concat();
    let sent = send(&mut thread, second.as_bytes(), 1 << 16);
    assert_eq!(String::from_utf8(sent).unwrap(), chunk("r", word, ""));
}

#[track_caller]
fn unfit_after(delta: Value, expected: Unfit) {
    let event = json!({"id": "r", "choices": [{"index": 0, "delta": delta}]});
    let mut thread = thread(PLAIN);
    let bytes = format!("data: {event}\n\n");
    assert_eq!(send(&mut thread, bytes.as_bytes(), 1 << 16), bytes.as_bytes());
    assert_eq!(thread.next(Ok(&terms(CompletionApi::Chat))), Next::Unfit(expected), "{event}");
}

#[test]
fn a_stream_that_is_more_than_text_is_not_continued() {
    unfit_after(json!({"tool_calls": [{"index": 0}]}), Unfit::Tools);
    unfit_after(json!({"reasoning_content": "hm"}), Unfit::Reasoning);
    unfit_after(json!({"reasoning": "hm"}), Unfit::Reasoning);
    unfit_after(json!({"content": "<think>x</think>y"}), Unfit::Reasoning);
    unfit_after(json!({"content": " x"}), Unfit::LeadingSpace);
    unfit_after(json!({"content": "x\u{fffd}"}), Unfit::HalfCharacter);
    unfit_after(json!({"content": "x".repeat(1025)}), Unfit::TooLong);
    unfit_after(json!({"content": 5}), Unfit::Unreadable);
    unfit_after(json!({"audio": {"data": "x"}, "content": "a"}), Unfit::Media);
}

#[test]
fn a_request_that_is_unfit_begins_afresh_only_if_nothing_was_passed_on() {
    let mut thread = thread(PLAIN);
    assert_eq!(thread.next(Err(Unfit::Tools)), Next::Afresh);
    send(&mut thread, b": ping\n\n", 1 << 16);
    assert_eq!(thread.next(Err(Unfit::Tools)), Next::Afresh);
    send(&mut thread, &events(PLAIN, 0, "r")[1], 1 << 16);
    assert_eq!(thread.next(Err(Unfit::Tools)), Next::Unfit(Unfit::Tools));
    assert_eq!(thread.next(Ok(&terms(CompletionApi::Chat))), Next::Afresh);
}

#[test]
fn a_limit_that_was_reached_ends_the_stream_without_another_replica() {
    let body = json!({"messages": [{}], "max_tokens": 2}).to_string();
    let terms = Terms::read(body.as_bytes(), CompletionApi::Chat).unwrap();
    let manners = Manners { telling: UsageTelling::AtEnd, ..PLAIN };
    let mut thread = thread(manners);
    let mut sent = send(&mut thread, &events(manners, 0, "r")[..4].concat(), 1 << 16);
    let Next::Ended(last) = thread.next(Ok(&terms)) else { panic!("not ended") };
    sent.extend(last);
    let seen = seen(&sent);
    assert_eq!((seen.text.as_str(), seen.dones, seen.ids.len()), ("Once upon", 1, 1));
    assert_eq!(seen.finishes, ["length"]);
    assert_eq!(seen.usages[0]["completion_tokens"], 2);
    assert_eq!(seen.usages[0]["prompt_tokens"], 7);
}

#[test]
fn a_stop_sequence_that_was_begun_is_not_continued() {
    let body = json!({"messages": [{}], "stop": ["upon a"]}).to_string();
    let terms = Terms::read(body.as_bytes(), CompletionApi::Chat).unwrap();
    let mut thread = thread(PLAIN);
    send(&mut thread, &events(PLAIN, 0, "r")[..4].concat(), 1 << 16);
    assert_eq!(thread.text(), "Once upon");
    assert_eq!(thread.next(Ok(&terms)), Next::Unfit(Unfit::StopBegun));
}

#[test]
fn data_over_several_lines_and_roles_beside_text_are_understood() {
    let mut thread = thread(PLAIN);
    let first = b"id: 5\ndata: {\"id\":\"a\",\r\ndata: \"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"On\"}}]}\n\n";
    let mut sent = send(&mut thread, first, 1 << 16);
    assert_eq!(thread.text(), "On");
    assert_eq!(thread.next(Ok(&terms(CompletionApi::Chat))), Next::Behind);
    thread.take_up();
    let second = b"data: {\"id\":\"b\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\ndata: {\"id\":\"b\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"ce\"}}]}\n\ndata: {\"id\":\"b\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    sent.extend(send(&mut thread, second, 1 << 16));
    let seen = seen(&sent);
    assert_eq!(seen.events, 4, "the second role alone is no event of this stream");
    assert_eq!((seen.text.as_str(), seen.roles, seen.ids.len(), seen.dones), ("Once", 1, 1, 1));
}
