//! Fuzz targets for input from clients and replicas.

use std::net::IpAddr;
use std::ops::Range;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use memchr::memmem;
use serde_json::Value;

use crate::grpc::fuzz::{last_model, parameter_keys};
use crate::grpc::{
    FRAME_HEAD_BYTES, Messages, ModelRef, Peek, format_timeout, parse_timeout, peek_model,
    read_model, rewrite_model,
};
use crate::{
    CompletionApi, Endpoint, EngineFields, EventOptions, EventRelay, Facts, JudgedStream,
    PromptPiece, ReplyApi, ReplyFacts, ReplyVerdict, Segments, Terms, Thread, TraceContext,
    TrustedProxies, UsageTelling, WholeReader, cookie, decode_name, engine_trouble,
    engine_trouble_in, is_confined, lacks_model, lacks_model_by, own_target, parse_orca,
    read_facts, read_form, read_prompt, rewrite, valid_request_id,
};

/// Fuzz target: the name of its folder of inputs, and the function that runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// Fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    ("json_body", json_body),
    ("grpc_model", grpc_model),
    ("grpc_messages", grpc_messages),
    ("event_stream", event_stream),
    ("continued_stream", continued_stream),
    ("request_path", request_path),
    ("request_headers", request_headers),
    ("replica_reply", replica_reply),
    ("form_upload", form_upload),
    ("redirect", redirect),
];

/// Reasons for which a full parse refuses values that may pass where they are not read.
const TREE_LIMITS: [&str; 4] =
    ["surrogate", "hex escape", "number out of range", "recursion limit"];

/// Asserts that facts agree with a full parse, and that a rewritten body has the new values.
fn json_body(input: &[u8]) {
    let facts = match read_facts(input) {
        Ok(facts) => facts,
        Err(error) => {
            assert!(error.offset() <= input.len() && error.line() >= 1 && error.column() >= 1);
            return;
        }
    };
    match serde_json::from_slice::<Value>(input) {
        Ok(tree) => {
            let model = facts.model.as_ref().map(|model| &*model.value);
            assert_eq!(model, tree.get("model").and_then(Value::as_str));
            if let Some(flag) = tree.get("stream").map_or(Some(false), Value::as_bool) {
                assert_eq!(facts.stream, flag);
            }
        }
        Err(error) => {
            let text = error.to_string();
            let is_python = input.starts_with("\u{feff}".as_bytes())
                || [&b"NaN"[..], b"Infinity"]
                    .iter()
                    .any(|word| memmem::find(input, word).is_some());
            assert!(is_python || TREE_LIMITS.iter().any(|limit| text.contains(limit)), "{text}");
        }
    }
    if !facts.is_empty_object {
        same_behind_a_long_text(input, &facts);
    }
    prompt_text(&facts, input);
    let body = Bytes::copy_from_slice(input);
    let whole = joined(&rewrite(&body, &facts, Some("another"), true));
    let after = read_facts(&whole);
    assert!(after.is_ok(), "a rewritten body is refused: {after:?}");
    let model = after.as_ref().ok().and_then(|facts| facts.model.as_ref());
    assert_eq!(model.map(|model| &*model.value), Some("another"));
    let api = if input.len().is_multiple_of(2) { CompletionApi::Chat } else { CompletionApi::Text };
    if let Ok(terms) = Terms::read(input, api) {
        let behind = joined(&terms.body_behind(&body, "said \"so\"", 1));
        assert!(read_facts(&behind).is_ok(), "a body that goes on behind a text is refused");
    }
}

/// Asserts that facts are the same in a body with a long text, which is left out as they are read.
fn same_behind_a_long_text(input: &[u8], facts: &Facts<'_>) {
    let first = format!("\"long\":\"{}\",", "it\\n".repeat(2_000));
    let (head, tail) = input.split_at(facts.insert_at);
    let longer = [head, first.as_bytes(), tail].concat();
    let moved = |place: &Range<usize>| place.start + first.len()..place.end + first.len();
    let said = |facts: &Facts<'_>| {
        let model = facts.model.as_ref().map(|model| model.value.clone().into_owned());
        (model, facts.stream, facts.max_tokens)
    };
    let after = read_facts(&longer);
    assert_eq!(after.as_ref().ok().map(said), Some(said(facts)));
    let Ok(after) = after else { return };
    assert_eq!(after.prompt, facts.prompt.as_ref().map(moved));
    assert_eq!(prompt_text(&after, &longer), prompt_text(facts, input));
}

/// Returns the prompt of a body, blobs included.
fn prompt_text(facts: &Facts<'_>, body: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    read_prompt(facts, body, |piece| match piece {
        PromptPiece::Text(piece) | PromptPiece::Blob(piece) => text.extend_from_slice(piece),
    });
    text
}

/// Asserts that a model that is found is the only field that names it, and stands byte for byte
/// between an empty line and a boundary.
fn form_upload(input: &[u8]) {
    // The first line is the content type, so that boundaries are mutated too.
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let Ok(content_type) = HeaderValue::from_bytes(&input[..end]) else { return };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, content_type);
    let body = input.get(end + 1..).unwrap_or_default();
    let Ok(form) = read_form(&headers, body) else { return };
    let named = form.names.iter().filter(|name| name.eq_ignore_ascii_case("model")).count();
    assert_eq!(named, usize::from(form.model.is_some()));
    if let Some(model) = form.model {
        assert!(model.len() <= 1_024 && !model.contains(char::is_control), "{model:?}");
        let part = format!("\r\n\r\n{model}\r\n--");
        assert!(memmem::find(body, part.as_bytes()).is_some(), "{model:?}");
        let sent: Vec<u8> =
            form.for_servers(&Bytes::copy_from_slice(body)).iter().flatten().copied().collect();
        let again = read_form(&headers, &sent).map(|again| again.model.map(str::to_owned));
        assert_eq!(again, Ok(Some(model.to_owned())));
    }
}

/// Asserts that a redirect that is passed on leads to a path of this gateway, and that a confined
/// path has no way up.
fn redirect(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let base = PathAndQuery::from_static("/v1/chat/x?q=1");
    let found = own_target(text, &base, |authority, _| authority == "10.0.0.1:8000");
    if let Some(found) = found {
        assert!(found.starts_with('/') && !found.starts_with("//"), "{found:?}");
        assert!(!found.bytes().any(|byte| byte == b'\\' || byte.is_ascii_control()), "{found:?}");
    }
    if is_confined(text) {
        let decoded = decode_name(text).map(|text| text.into_owned()).unwrap_or_default();
        assert!(!decoded.split('/').any(|part| matches!(part, "." | "..")), "{text:?}");
    }
}

/// Asserts that a name found early is the name found in the whole body, and that a rewritten name
/// is read back.
fn grpc_model(input: &[u8]) {
    let whole = peek_model(input);
    let early = peek_model(&input[..input.len() / 2]);
    assert!(early == Peek::NeedMore || early == whole);
    assert_ne!(read_model(input), Peek::NeedMore);
    if let Peek::Found(before) = read_model(input) {
        let rewritten = joined(&rewrite_model(&Bytes::copy_from_slice(input), "another", None));
        let expected = ModelRef { model: "another", version: before.version };
        assert_eq!(read_model(&rewritten), Peek::Found(expected));
    }
}

fn joined(segments: &Segments) -> Vec<u8> {
    segments.iter().flatten().copied().collect()
}

/// Asserts that messages come out unchanged however they are cut, or with another name and no other
/// change.
fn grpc_messages(input: &[u8]) {
    let cut = input.first().map_or(1, |byte| usize::from(*byte % 16) + 1);
    let run = |mut messages: Messages| {
        let mut out = Vec::new();
        for piece in input.chunks(cut) {
            messages.push(Bytes::copy_from_slice(piece)).ok()?;
            while let Some(piece) = messages.pop() {
                out.extend_from_slice(&piece);
            }
        }
        Some((out, messages.is_within_message()))
    };
    if let Some((out, _)) = run(Messages::new(1_000)) {
        assert_eq!(out, input);
    }
    let watched = Messages::new(1_000).refusing_parameters_but(EngineFields::NONE);
    if let Some((out, _)) = run(watched) {
        assert_eq!(out, input);
        assert!(!steers(input), "a parameter that steers the model server went through");
    }
    let renamed = run(Messages::renaming(1_000, "alias", "another", Some("2")).or_refused());
    let Some((out, false)) = renamed else { return };
    let mut rest = &out[..];
    while let Some((head, behind)) = rest.split_first_chunk::<FRAME_HEAD_BYTES>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let model = last_model(&behind[..length]);
        assert_eq!(model, Some(&b"another"[..]), "a message for another model went through");
        rest = &behind[length..];
    }
}

/// Returns true if a complete message of a stream has a parameter that steers the model server.
fn steers(mut stream: &[u8]) -> bool {
    while let Some((head, behind)) = stream.split_first_chunk::<FRAME_HEAD_BYTES>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let Some((message, rest)) = behind.split_at_checked(length) else { return false };
        let mut keys = parameter_keys(message).into_iter();
        if keys.any(|key| EngineFields::named(&String::from_utf8_lossy(key)).is_some()) {
            return true;
        }
        stream = rest;
    }
    false
}

/// Asserts that no byte of a stream is lost, added or changed, however it is cut.
fn event_stream(input: &[u8]) {
    let cut = input.first().map_or(1, |byte| usize::from(*byte % 32) + 1);
    let options = EventOptions {
        api: ReplyApi::Chat,
        strip_usage: false,
        held_bytes_max: 64,
        judged: JudgedStream::Nothing,
    };
    let mut relay = EventRelay::new(options);
    let mut out = Vec::new();
    for piece in input.chunks(cut) {
        relay.push(Bytes::copy_from_slice(piece));
        while let Some(piece) = relay.pop() {
            out.extend_from_slice(&piece);
        }
    }
    relay.finish();
    out.extend(std::iter::from_fn(|| relay.pop()).flatten());
    assert_eq!(out, input);
    let mut holding = EventRelay::new(EventOptions { held_bytes_max: usize::MAX, ..options });
    holding.push(Bytes::copy_from_slice(input));
    let _rest = (std::iter::from_fn(|| holding.pop()).count(), holding.finish());
    assert_eq!(holding.facts(), relay.facts(), "facts of events that pass in parts");
    let mut stripping =
        EventRelay::new(EventOptions { api: ReplyApi::Other, strip_usage: true, ..options });
    stripping.push(Bytes::copy_from_slice(input));
    let kept: usize = std::iter::from_fn(|| stripping.pop()).map(|piece| piece.len()).sum();
    assert!(kept <= input.len());
}

/// Asserts that the kept text of a stream stays within its limit, and that a continuation never
/// panics.
fn continued_stream(input: &[u8]) {
    const TEXT_BYTES_MAX: usize = 256;
    let (chat, text) = (CompletionApi::Chat, CompletionApi::Text);
    for (api, telling) in [(chat, UsageTelling::AtEnd), (text, UsageTelling::Throughout)] {
        let mut thread = Thread::new(api, telling, TEXT_BYTES_MAX);
        for (index, half) in input.split_inclusive(|byte| *byte == 0).enumerate() {
            if index > 0 {
                let _next = thread.next(Err(crate::Unfit::Unreadable));
                thread.take_up();
            }
            thread.push(&Bytes::copy_from_slice(half));
            while thread.pop().is_some() {}
            assert!(thread.text().len() <= TEXT_BYTES_MAX);
        }
        thread.release();
        let _usage = thread.usage();
    }
}

/// Asserts that no path classified as a model's leaves its place by dots or doubled slashes.
fn request_path(input: &[u8]) {
    let Ok(path) = std::str::from_utf8(input) else { return };
    let endpoint = Endpoint::classify(path);
    let _protocol = (endpoint.protocol(), endpoint.is_health(), crate::Protocol::of_path(path));
    if let Endpoint::V2Model { .. } | Endpoint::ModelById { .. } = endpoint {
        assert!(path.split('/').all(|segment| segment != "." && segment != ".."), "{path}");
        assert!(!path.contains("//"), "{path}");
    }
    if let Some(name) = decode_name(path) {
        assert!(name.len() <= path.len());
    }
}

/// Uses each line of the input as the value of each header that is parsed.
fn request_headers(input: &[u8]) {
    let values: Vec<HeaderValue> = input
        .split(|byte| *byte == b'\n')
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .collect();
    let mut headers = HeaderMap::new();
    for name in ["x-forwarded-for", "forwarded", "cookie"] {
        for value in &values {
            headers.append(HeaderName::from_static(name), value.clone());
        }
    }
    let peer = IpAddr::from([192, 0, 2, 1]);
    assert_eq!(TrustedProxies::default().client(peer, &headers), peer, "an untrusted peer");
    let all = "0.0.0.0/0".parse().into_iter().chain("::/0".parse()).collect();
    let _client = TrustedProxies::new(all).client(peer, &headers);
    let found = cookie(&headers, "home").unwrap_or_default();
    assert!(found.len() <= input.len());
    for value in &values {
        one_header(value);
    }
}

fn one_header(value: &HeaderValue) {
    if let Some(context) = TraceContext::parse(value) {
        assert!(context.trace_id != 0 && context.parent != 0);
        assert_eq!(TraceContext::parse(&context.to_header_value()), Some(context));
    }
    if let Some(timeout) = parse_timeout(value.as_bytes()) {
        let written = parse_timeout(format_timeout(timeout).as_bytes());
        assert!(written.is_some_and(|written| written <= timeout.max(TICK)), "{timeout:?}");
    }
    if let Ok(text) = value.to_str() {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        assert!(!valid_request_id(text) || is_plain);
    }
}

/// Shortest duration, written in place of zero, which some servers take for no limit.
const TICK: std::time::Duration = std::time::Duration::from_nanos(1);

/// Asserts that load, usage and stored responses read from a reply are finite and part of the
/// input, and that the facts of a reply are the same however it is cut.
fn replica_reply(input: &[u8]) {
    let cut = input.first().map_or(1, |byte| usize::from(*byte % 16) + 1);
    for api in [ReplyApi::Chat, ReplyApi::Responses, ReplyApi::Messages, ReplyApi::Embeddings] {
        let facts = reply_facts(api, [input]);
        assert_eq!(facts, reply_facts(api, input.chunks(cut)), "cut into pieces of {cut}");
        assert!(facts.id.as_ref().is_none_or(|id| id.len() <= 256));
        let message = facts.error.as_ref().map_or("", |error| &error.message);
        assert!(message.len() <= 512);
        assert!(facts.verdict(api, true) != ReplyVerdict::Empty || !facts.has_content);
        let _trouble = (engine_trouble(500, message), engine_trouble_in(503, input));
        let _lacks = (lacks_model_by(message, "m"), lacks_model(404, input, "m"));
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Some(load) = parse_orca(text) {
        for count in [load.queued, load.running].into_iter().flatten() {
            assert!(count.is_finite() && count >= 0.0, "{load:?}");
        }
        assert!(load.kv_use.is_none_or(|share| (0.0..=1.0).contains(&share)), "{load:?}");
    }
}

fn reply_facts<'p>(api: ReplyApi, pieces: impl IntoIterator<Item = &'p [u8]>) -> ReplyFacts {
    let mut reader = WholeReader::new(api);
    pieces.into_iter().for_each(|piece| reader.push(piece));
    reader.finish();
    reader.facts().clone()
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
