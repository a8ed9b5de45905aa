use proptest::prelude::*;

use super::*;
use crate::EngineTrouble;

const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn relay(strip_usage: bool, held_bytes_max: usize) -> EventRelay {
    EventRelay::new(EventOptions {
        api: ReplyApi::Other,
        strip_usage,
        held_bytes_max,
        judged: JudgedStream::Nothing,
    })
}

/// Ends the stream, and returns the rest of it; `None` if there is none.
fn rest(relay: &mut EventRelay) -> Option<Bytes> {
    relay.finish();
    relay.pop()
}

/// Returns everything that can be popped now, in one piece.
fn popped(relay: &mut EventRelay) -> String {
    let mut bytes = Vec::new();
    while let Some(part) = relay.pop() {
        assert!(!part.is_empty());
        bytes.extend_from_slice(&part);
    }
    String::from_utf8(bytes).unwrap()
}

fn push(relay: &mut EventRelay, chunk: &str) -> String {
    relay.push(Bytes::copy_from_slice(chunk.as_bytes()));
    popped(relay)
}

fn token(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

#[test]
fn a_chunk_of_whole_events_goes_through_as_it_is() {
    let mut relay = relay(false, 1000);
    let chunk = Bytes::from([token("a"), token("b")].concat());
    relay.push(chunk.clone());
    let out = relay.pop().unwrap();
    assert_eq!((out.as_ptr(), out.len()), (chunk.as_ptr(), chunk.len()));
    assert_eq!(relay.pop(), None);
    assert_eq!(relay.tally().events, 2);
}

#[test]
fn a_cut_event_is_held_until_it_is_whole() {
    let mut relay = relay(false, 1000);
    let (a, b) = (token("a"), token("b"));
    let (b_head, b_tail) = b.split_at(10);
    assert_eq!(push(&mut relay, &format!("{a}{b_head}")), a);
    assert!(relay.at_boundary());
    assert_eq!(relay.tally().events, 1);
    assert_eq!(push(&mut relay, &format!("{b_tail}{a}")), format!("{b}{a}"));
    assert_eq!(relay.tally().events, 3);
    assert_eq!(rest(&mut relay), None);
}

#[test]
fn what_precedes_a_cut_event_is_not_copied() {
    let mut relay = relay(false, 1000);
    let chunk = Bytes::from(format!("{}data: ", token("a")));
    relay.push(chunk.clone());
    assert_eq!(relay.pop().unwrap().as_ptr(), chunk.as_ptr());
}

#[test]
fn an_end_cut_in_two_is_an_end() {
    for event in ["data: 1\n\n", "data: 1\r\n\r\n"] {
        for cut in 1..event.len() {
            let mut relay = relay(false, 1000);
            let (head, tail) = event.split_at(cut);
            assert_eq!(push(&mut relay, head), "", "{event:?} cut at {cut}");
            assert_eq!(push(&mut relay, tail), event, "{event:?} cut at {cut}");
        }
    }
}

#[test]
fn the_proper_end_lets_the_held_bytes_go() {
    let mut relay = relay(false, 1000);
    assert_eq!(push(&mut relay, "data: 1\n\ndata: [DONE]\n"), "data: 1\n\n");
    assert!(!relay.done());
    assert_eq!(rest(&mut relay).as_deref(), Some(&b"data: [DONE]\n"[..]));
    assert!(relay.done());
    assert_eq!(rest(&mut relay), None);
}

#[test]
fn done_and_usage_are_told_once_they_were_seen() {
    let mut relay = relay(false, 1000);
    push(&mut relay, &token("a"));
    assert_eq!((relay.tally().usage, relay.done()), (None, false));
    assert_eq!(push(&mut relay, USAGE), USAGE);
    let usage = Usage { prompt_tokens: 9, completion_tokens: 2, cached_tokens: None };
    assert_eq!(relay.tally(), Tally { events: 2, usage: Some(usage), reported_events: 2 });
    assert_eq!(push(&mut relay, DONE), DONE);
    assert!(relay.done());
    assert_eq!(relay.tally(), Tally { events: 2, usage: Some(usage), reported_events: 2 });
}

#[test]
fn a_later_event_without_usage_does_not_take_it_back() {
    let mut relay = relay(false, 1000);
    push(&mut relay, USAGE);
    push(&mut relay, "data: {\"choices\":[1],\"usage\":null}\n\n");
    assert_eq!(relay.tally().usage.map(|usage| usage.prompt_tokens), Some(9));
}

#[test]
fn the_responses_api_ends_with_a_named_event() {
    let mut relay = relay(false, 1000);
    let event = "event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":4,\
                 \"output_tokens\":1,\"input_tokens_details\":{\"cached_tokens\":2}}}}\n\n";
    assert_eq!(push(&mut relay, event), event);
    assert!(relay.done());
    assert_eq!(relay.tally().usage.and_then(|usage| usage.cached_tokens), Some(2));
}

#[test]
fn the_usage_event_is_left_out_wherever_it_stands() {
    let (a, b) = (token("a"), token("b"));
    let check = |chunks: &[&str], expected: &str| {
        let mut relay = relay(true, 1000);
        let mut out: String = chunks.iter().map(|chunk| push(&mut relay, chunk)).collect();
        out.extend(rest(&mut relay).map(|rest| String::from_utf8(rest.to_vec()).unwrap()));
        assert_eq!(out, expected, "{chunks:?}");
        assert_eq!(relay.tally().usage.map(|usage| usage.prompt_tokens), Some(9), "{chunks:?}");
        assert!(relay.at_boundary());
    };
    check(&[USAGE], "");
    check(&[&a, USAGE, DONE], &format!("{a}{DONE}"));
    check(&[&format!("{a}{USAGE}{DONE}")], &format!("{a}{DONE}"));
    check(&[&format!("{USAGE}{a}{USAGE}{b}{USAGE}")], &format!("{a}{b}"));
    let (head, tail) = USAGE.split_at(30);
    check(&[&format!("{a}{head}"), &format!("{tail}{b}")], &format!("{a}{b}"));
    check(&[&a, USAGE.trim_end()], &a);
}

#[test]
fn events_that_only_resemble_it_stay() {
    let mut relay = relay(true, 1000);
    let filter = "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n";
    let said = token(r#"{\"choices\":[],\"usage\":{\"prompt_tokens\":9}}"#);
    let nested = "data: {\"choices\":[{\"usage\":{\"prompt_tokens\":9}}]}\n\n";
    for event in [filter, &said, nested] {
        assert_eq!(push(&mut relay, event), event);
    }
    assert_eq!(relay.tally().usage, None);
}

#[test]
fn only_usage_is_taken_out_of_an_event_that_has_more() {
    let check = |data: &str, expected: &str| {
        let mut relay = relay(true, 1000);
        let [event, expected] = [data, expected].map(|data| format!("data: {data}\n\n"));
        let (a, b) = (token("a"), token("b"));
        let out = push(&mut relay, &format!("{a}{event}{b}"));
        assert_eq!(out, format!("{a}{expected}{b}"));
        for cut in 1..event.len() {
            let (head, tail) = event.split_at(cut);
            let out = push(&mut relay, head) + &push(&mut relay, tail);
            assert_eq!(out, expected, "cut at {cut}");
        }
    };
    check(
        r#"{"choices":[{"index":0}],"usage":{"prompt_tokens":9}}"#,
        r#"{"choices":[{"index":0}]}"#,
    );
    check(r#"{"choices":[{"index":0}],"usage":null,"x":1}"#, r#"{"choices":[{"index":0}],"x":1}"#);
    check(
        r#"{"choices":[],"timings":{"a":1},"usage":null}"#,
        r#"{"choices":[],"timings":{"a":1}}"#,
    );
}

#[test]
fn events_like_the_one_before_lose_their_usage_too() {
    let mut relay = relay(true, 1000);
    let event = |text: &str, usage: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]{usage}}}\n\n")
    };
    for text in ["a", "b", "c", "d", "e"] {
        assert_eq!(push(&mut relay, &event(text, ",\"usage\":null")), event(text, ""));
    }
    assert_eq!(relay.tally(), Tally { events: 5, usage: None, reported_events: 0 });
}

#[test]
fn an_event_too_long_to_hold_goes_through_in_parts() {
    let mut relay = relay(false, 20);
    assert_eq!(push(&mut relay, "data: 12345678901234"), "");
    assert!(relay.at_boundary());
    assert_eq!(push(&mut relay, "5"), "data: 123456789012345");
    assert!(!relay.at_boundary());
    assert_eq!(push(&mut relay, "6"), "6");
    assert_eq!(relay.tally().events, 0);
    assert_eq!(push(&mut relay, "\n\ndata: 1\n"), "\n\n");
    assert!(relay.at_boundary());
    assert_eq!(relay.tally().events, 1);
    assert_eq!(push(&mut relay, "\n"), "data: 1\n\n");
    assert_eq!(relay.tally().events, 2);
}

#[test]
fn a_long_first_part_is_passed_on_without_a_copy() {
    let mut relay = relay(false, 20);
    let chunk = Bytes::from(format!("data: {}", "x".repeat(100)));
    relay.push(chunk.clone());
    assert_eq!(relay.pop().unwrap().as_ptr(), chunk.as_ptr());
    assert!(!relay.at_boundary());
}

#[test]
fn an_end_cut_in_two_is_an_end_for_a_long_event_too() {
    let mut relay = relay(false, 4);
    assert_eq!(push(&mut relay, "data: 12345\r\n\r"), "data: 12345\r\n\r");
    assert!(!relay.at_boundary());
    assert_eq!(push(&mut relay, "d"), "");
    assert!(relay.at_boundary(), "the d is held, as the start of the next event");
    assert_eq!(relay.tally().events, 1);
}

#[test]
fn a_long_last_event_still_tells_usage_and_end() {
    let text = "x".repeat(5000);
    let event = format!(
        "event: response.completed\ndata: {{\"response\":{{\"output\":\"{text}\",\
         \"usage\":{{\"input_tokens\":4,\"output_tokens\":1}}}}}}\n\n"
    );
    for chunk_bytes in [1, 7, 100, 4000] {
        let mut relay = relay(false, 64);
        for chunk in event.as_bytes().chunks(chunk_bytes) {
            relay.push(Bytes::copy_from_slice(chunk));
            assert!(relay.held.len() <= 64);
        }
        assert_eq!(popped(&mut relay), event);
        assert!(relay.done() && relay.at_boundary());
        assert_eq!(relay.tally().usage.map(|usage| usage.prompt_tokens), Some(4));
    }
}

#[test]
fn no_more_is_held_than_allowed() {
    let mut relay = relay(false, 50);
    for _ in 0..1000 {
        relay.push(Bytes::from_static(b"x"));
        assert!(relay.held.len() <= 50);
    }
    assert_eq!(popped(&mut relay).len(), 1000);
}

#[test]
fn an_empty_chunk_changes_nothing() {
    let mut relay = relay(true, 1000);
    assert_eq!(push(&mut relay, ""), "");
    assert_eq!(push(&mut relay, "data: 1"), "");
    assert_eq!(push(&mut relay, ""), "");
    assert_eq!(push(&mut relay, "\n\n"), "data: 1\n\n");
}

// === properties ===

/// Returns the ends of events, by the standard's grammar of lines over the whole stream. Some
/// events have a second end, before a line feed that may come too late to wait for it.
fn ends(stream: &str) -> Vec<usize> {
    let bytes = stream.as_bytes();
    let (mut ends, mut at, mut line_is_empty, mut after_bare_cr) = (Vec::new(), 0, true, false);
    while at < bytes.len() {
        let length = match (bytes[at], bytes.get(at + 1)) {
            (b'\r', Some(b'\n')) => 2,
            (b'\r' | b'\n', _) => 1,
            _ => 0,
        };
        if length == 0 {
            (line_is_empty, after_bare_cr, at) = (false, false, at + 1);
            continue;
        }
        let is_bare_cr = length == 1 && bytes[at] == b'\r';
        at += length;
        if line_is_empty {
            ends.push(at);
            if after_bare_cr && length == 2 {
                ends.push(at - 1);
            }
        }
        after_bare_cr = is_bare_cr && !line_is_empty;
        line_is_empty = true;
    }
    ends
}

/// Generates streams of events, comments and other text, with every kind of line end.
fn any_stream() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "\n",
        "\n",
        "\r\n",
        "\r\n",
        "\r",
        "\n\n",
        "\r\n\r\n",
        "\r\r",
        "data: x",
        "data: [DONE]",
        ": comment",
        "event: response.completed",
        "id: 5",
        "x",
        "é",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9}}",
        "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":3}}",
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}",
        "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}",
        "data: {\"choices\":[{\"finish_reason\":\"abort\"}]}",
        "data: {\"error\":{\"code\":500}}",
        "event: error",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// Returns the stream in chunks, cut anywhere.
fn chunks(stream: &str, cuts: &[prop::sample::Index]) -> Vec<Bytes> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    at.extend([0, stream.len()]);
    at.sort_unstable();
    let whole = Bytes::copy_from_slice(stream.as_bytes());
    at.windows(2).map(|pair| whole.slice(pair[0]..pair[1])).collect()
}

fn any_cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_comes_out_is_what_went_in(
        stream in any_stream(), cuts in any_cuts(), held_bytes_max in 0_usize..60,
    ) {
        let mut relay = relay(false, held_bytes_max);
        let mut out = Vec::new();
        for chunk in chunks(&stream, &cuts) {
            relay.push(chunk);
            while let Some(part) = relay.pop() {
                out.extend_from_slice(&part);
            }
        }
        out.extend(rest(&mut relay).into_iter().flatten());
        prop_assert_eq!(String::from_utf8(out).unwrap(), stream);
    }

    #[test]
    fn all_that_is_out_ends_with_an_event_and_no_whole_event_is_held(
        stream in any_stream(), cuts in any_cuts(), held_bytes_max in 0_usize..60,
    ) {
        let ends = ends(&stream);
        let mut relay = relay(false, held_bytes_max);
        let (mut pushed, mut out) = (0, 0);
        for chunk in chunks(&stream, &cuts) {
            pushed += chunk.len();
            relay.push(chunk);
            out += popped_bytes(&mut relay);
            if relay.at_boundary() {
                prop_assert!(out == 0 || ends.contains(&out), "{out} is no end: {stream:?}");
            }
            // One byte of slack for a line feed that may belong to the end.
            let last_end = ends.iter().copied().filter(|end| *end < pushed).max().unwrap_or(0);
            prop_assert!(out + 1 >= last_end, "{out} of {last_end}: {stream:?}");
        }
    }

    #[test]
    fn the_cuts_change_nothing_of_what_is_told(
        stream in any_stream(), cuts in any_cuts(), strip_usage in any::<bool>(),
    ) {
        // A line feed that comes too late for its event stays as an empty line when the event is
        // left out.
        let stream = if strip_usage { stream.replace("\r\r", "\r\n") } else { stream };
        let told = |chunks: Vec<Bytes>| {
            let mut relay = relay(strip_usage, usize::MAX);
            let mut out = String::new();
            for chunk in chunks {
                relay.push(chunk);
                out.push_str(&popped(&mut relay));
            }
            out.extend(rest(&mut relay).map(|rest| String::from_utf8(rest.to_vec()).unwrap()));
            (out, relay.tally(), relay.facts().clone())
        };
        prop_assert_eq!(told(chunks(&stream, &cuts)), told(chunks(&stream, &[])));
    }

    #[test]
    fn an_event_has_the_same_facts_held_or_in_parts(
        stream in any_stream(), cuts in any_cuts(), held_bytes_max in 0_usize..60,
    ) {
        let facts = |chunks: Vec<Bytes>, held_bytes_max: usize| {
            let mut relay = relay(false, held_bytes_max);
            chunks.into_iter().for_each(|chunk| relay.push(chunk));
            let _rest = rest(&mut relay);
            (relay.tally(), relay.facts().clone())
        };
        let in_parts = facts(chunks(&stream, &cuts), held_bytes_max);
        prop_assert_eq!(in_parts, facts(chunks(&stream, &[]), usize::MAX));
    }

    #[test]
    fn only_the_usage_event_is_left_out(
        kinds in prop::collection::vec(0_usize..6, 0..20),
        line_end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        cuts in any_cuts(),
    ) {
        let events = [token("a"), USAGE.to_owned(), DONE.to_owned(), ": ping\n\n".to_owned(),
            "data: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":9}}\n\n".to_owned(),
            "data: {\"choices\":[],\"usage\":null}\n\n".to_owned()];
        let joined = |keep: fn(&usize) -> bool| -> String {
            let kept = kinds.iter().filter(|kind| keep(kind));
            kept.map(|kind| events[*kind].replace('\n', line_end)).collect()
        };
        let mut relay = relay(true, usize::MAX);
        let mut out = String::new();
        for chunk in chunks(&joined(|_| true), &cuts) {
            relay.push(chunk);
            out.push_str(&popped(&mut relay));
        }
        let expected = joined(|kind| !matches!(kind, 1 | 4));
        prop_assert_eq!(out, expected.replace(",\"usage\":null", ""));
        let counted = kinds.iter().filter(|kind| !matches!(kind, 2 | 3)).count();
        prop_assert_eq!(relay.tally().events, counted as u64);
    }

    #[test]
    fn no_bytes_make_it_panic(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
        held_bytes_max in 0_usize..40,
    ) {
        let mut relay = relay(true, held_bytes_max);
        let mut out = 0;
        let whole: usize = chunks.iter().map(Vec::len).sum();
        for chunk in chunks {
            relay.push(chunk.into());
            out += popped_bytes(&mut relay);
        }
        out += rest(&mut relay).map_or(0, |rest| rest.len());
        prop_assert_eq!(out, whole);
    }
}

fn popped_bytes(relay: &mut EventRelay) -> usize {
    std::iter::from_fn(|| relay.pop()).map(|part| part.len()).sum()
}

/// Reads a judged stream of chats in pieces of this size. Returns what passed and the failure.
fn judged(events: &[&str], piece: usize, judged: JudgedStream) -> (String, EventRelay) {
    let mut relay = EventRelay::new(EventOptions {
        api: ReplyApi::Chat,
        strip_usage: false,
        held_bytes_max: 1 << 20,
        judged,
    });
    let bytes = events.concat().into_bytes();
    let mut out = String::new();
    for part in bytes.chunks(piece) {
        relay.push(Bytes::copy_from_slice(part));
        out += &popped(&mut relay);
    }
    (out, relay)
}

const TOKEN: &str = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";
const STOP: &str =
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const ABORT: &str = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"abort\"}]}\n\n";
const END: &str = "data: [DONE]\n\n";

#[test]
fn a_failure_that_a_stream_shows_is_held_back_with_all_that_follows() {
    let error = |error: &str| format!("data: {{\"error\":{error}}}\n\n");
    let dying = error("{\"message\":\"EngineCore encountered an issue\",\"code\":500}");
    let broken = error("{\"message\":\"index out of range\",\"code\":500}");
    let given_up = error("{\"message\":\"two died\",\"code\":\"engines_died\"}");
    let of_client = error("{\"message\":\"too long\",\"code\":400}");
    for (events, passed, fault) in [
        (vec![TOKEN, STOP, END], 3, None),
        (vec![TOKEN, ABORT, END], 1, Some(EventFault::Aborted)),
        (vec![TOKEN, END], 1, Some(EventFault::Unfinished)),
        (vec![END], 0, Some(EventFault::Unfinished)),
        (vec![TOKEN, &dying, END], 1, Some(EventFault::Error(Some(EngineTrouble::Dying)))),
        (vec![&broken, END], 0, Some(EventFault::Error(None))),
        (vec![TOKEN, &given_up], 1, Some(EventFault::GivenUp)),
        (vec![TOKEN, &of_client, END], 3, None),
    ] {
        for piece in [1, 7, 64, 1 << 16] {
            let (out, mut relay) = judged(&events, piece, JudgedStream::Ends);
            assert_eq!(out, events[..passed].concat(), "{events:?} by {piece}");
            assert_eq!(relay.fault(), fault, "{events:?} by {piece}");
            relay.release();
            relay.finish();
            assert_eq!(out + &popped(&mut relay), events.concat(), "nothing is lost");
        }
    }
}

#[test]
fn an_end_without_a_reason_counts_for_engines_alone_that_give_one() {
    let (out, relay) = judged(&[TOKEN, END], 1 << 16, JudgedStream::Reports);
    assert_eq!((out, relay.fault()), ([TOKEN, END].concat(), None));
    let (out, relay) = judged(&[TOKEN, ABORT], 1 << 16, JudgedStream::Reports);
    assert_eq!((out.as_str(), relay.fault()), (TOKEN, Some(EventFault::Aborted)));
}

#[test]
fn a_stream_that_is_no_answer_is_not_judged() {
    let mut relay = relay(false, 1 << 20);
    relay.push(Bytes::from_static(ABORT.as_bytes()));
    assert_eq!((relay.fault(), popped(&mut relay)), (None, ABORT.to_owned()));
}
