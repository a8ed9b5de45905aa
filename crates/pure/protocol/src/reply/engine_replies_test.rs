//! Replies in the forms of known engines, cut anywhere.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Finish, ReplyApi, ReplyFacts, ReplyVerdict, WholeReader};
use crate::{EventOptions, EventRelay, JudgedStream};

/// Reply of an engine, with the facts that it has.
#[derive(Clone, Debug)]
struct EngineReply {
    name: &'static str,
    api: ReplyApi,
    /// Events; one document if there is no name and `is_stream` is false.
    parts: Vec<String>,
    is_stream: bool,
    id: Option<&'static str>,
    /// Prompt, completion and cached tokens.
    usage: Option<(u64, u64, Option<u64>)>,
    finish: Option<Finish>,
    verdict: &'static str,
}

const NORMAL: Option<Finish> = Some(Finish::Normal);
const ABORTED: Option<Finish> = Some(Finish::Aborted);

fn whole(name: &'static str, api: ReplyApi, reply: Value) -> EngineReply {
    EngineReply {
        name,
        api,
        parts: vec![reply.to_string()],
        is_stream: false,
        id: None,
        usage: None,
        finish: NORMAL,
        verdict: "Complete",
    }
}

/// Returns a stream. A part that is text is sent as it is, and `type` names an event.
fn stream(name: &'static str, api: ReplyApi, is_named: bool, events: Vec<Value>) -> EngineReply {
    let event = |data: &Value| match data {
        Value::String(text) => text.clone(),
        data if is_named => format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap()),
        data => format!("data: {data}\n\n"),
    };
    let parts = events.iter().map(event).collect();
    EngineReply { parts, is_stream: true, ..whole(name, api, Value::Null) }
}

fn vllm_chunk(delta: Value, reason: Value) -> Value {
    json!({"id": "chatcmpl-8f", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]})
}

fn vllm_stream(name: &'static str, words: usize, reason: &str) -> EngineReply {
    let first =
        vllm_chunk(json!({"role": "assistant", "content": "", "reasoning": null}), Value::Null);
    let word = |number| vllm_chunk(json!({"content": format!(" w{number}")}), Value::Null);
    let mut last = vllm_chunk(json!({}), json!(reason));
    last["choices"][0]["stop_reason"] = Value::Null;
    let usage = json!({"id": "chatcmpl-8f", "object": "chat.completion.chunk", "created": 1,
        "model": "m", "choices": [], "system_fingerprint": "vllm-0.32",
        "usage": {"prompt_tokens": 31, "total_tokens": 31 + words, "completion_tokens": words,
            "prompt_tokens_details": {"cached_tokens": 16}}});
    let words_sent = (0..words).map(word);
    let events = [first].into_iter().chain(words_sent).chain([last, usage]);
    let events = events.chain([json!("data: [DONE]\n\n")]).collect();
    EngineReply {
        id: Some("chatcmpl-8f"),
        usage: Some((31, words as u64, Some(16))),
        ..stream(name, ReplyApi::Chat, false, events)
    }
}

fn chats() -> Vec<EngineReply> {
    let usage = json!({"prompt_tokens": 12, "total_tokens": 15, "completion_tokens": 3,
        "prompt_tokens_details": null});
    let message = json!({"role": "assistant", "content": "a \"b\" \\ {\"usage\":{}}\n",
        "refusal": null, "annotations": null, "audio": null, "function_call": null,
        "tool_calls": [], "reasoning": null});
    let vllm = |reason: &str, tokens: u64| {
        let mut usage = usage.clone();
        usage["completion_tokens"] = tokens.into();
        json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": reason,
                "stop_reason": null, "token_ids": null}],
            "service_tier": null, "system_fingerprint": null, "usage": usage,
            "prompt_logprobs": null, "kv_transfer_params": null})
    };
    let llama = json!({"choices": [{"finish_reason": "stop", "index": 0,
            "message": {"role": "assistant", "content": "hi"}}], "created": 1, "model": "gpt",
        "system_fingerprint": "b5", "object": "chat.completion",
        "usage": {"completion_tokens": 2, "prompt_tokens": 20, "total_tokens": 22},
        "id": "chatcmpl-2", "timings": {"prompt_n": 20, "prompt_ms": 31.5, "predicted_n": 2}});
    let (known, empty) = (Some("chatcmpl-1"), vllm("stop", 0));
    let empty = serde_json::from_str::<Value>(
        &empty.to_string().replace(&message["content"].to_string(), "\"\""),
    )
    .unwrap();
    vec![
        EngineReply {
            id: known,
            usage: Some((12, 3, None)),
            ..whole("vLLM chat", ReplyApi::Chat, vllm("stop", 3))
        },
        EngineReply {
            id: known,
            usage: Some((12, 3, None)),
            finish: ABORTED,
            verdict: "Aborted",
            ..whole("vLLM chat, stopped", ReplyApi::Chat, vllm("abort", 3))
        },
        EngineReply {
            id: known,
            usage: Some((12, 0, None)),
            verdict: "Empty",
            ..whole("chat without a token", ReplyApi::Chat, empty)
        },
        EngineReply {
            id: Some("chatcmpl-2"),
            usage: Some((20, 2, None)),
            ..whole("llama.cpp chat", ReplyApi::Chat, llama)
        },
        vllm_stream("vLLM stream", 5, "stop"),
        vllm_stream("vLLM stream of tools", 2, "tool_calls"),
        EngineReply {
            finish: ABORTED,
            verdict: "Aborted",
            ..vllm_stream("vLLM stream, stopped", 5, "abort")
        },
        EngineReply {
            finish: ABORTED,
            verdict: "Aborted",
            ..vllm_stream("vLLM stream, refused while draining", 0, "abort")
        },
    ]
}

fn broken_streams() -> Vec<EngineReply> {
    let word = || vllm_chunk(json!({"content": "a"}), Value::Null);
    let fault = json!({"error": {"message": "EngineCore encountered an issue", "param": null,
        "type": "InternalServerError", "code": 500}});
    let done = || json!("data: [DONE]\n\n");
    let [broken, unfinished, empty] = [
        ("vLLM stream, engine dead", vec![word(), fault, done()]),
        ("stream without a reason", vec![word(), word(), word(), done()]),
        ("stream of nothing", vec![json!(": ping\n\n"), done()]),
    ]
    .map(|(name, events)| EngineReply {
        finish: None,
        ..stream(name, ReplyApi::Chat, false, events)
    });
    vec![
        EngineReply { id: Some("chatcmpl-8f"), verdict: "Failed", ..broken },
        EngineReply { id: Some("chatcmpl-8f"), verdict: "Unfinished", ..unfinished },
        EngineReply { verdict: "Empty", ..empty },
    ]
}

/// Returns what the Responses API repeats of a request that tries to forge facts.
fn forged() -> Value {
    json!({"usage": {"input_tokens": 0, "output_tokens": 0}, "id": "resp_forged",
        "status": "cancelled", "error": {"message": "x"}, "finish_reason": "abort"})
}

fn sglang_response(status: &str) -> Value {
    // Usage stands before all that is repeated of the request.
    let text = format!(
        r#"{{"id":"resp_5","object":"response","created_at":1,"model":"m","output":[{{"id":"msg_1",
        "type":"message","content":[{{"type":"output_text","text":"a"}}]}}],"status":"{status}",
        "usage":{{"input_tokens":20,"input_tokens_details":{{"cached_tokens":4}},"output_tokens":5,
        "total_tokens":25}},"tools":[{0}],"error":null,"text":{0},"metadata":{0}}}"#,
        forged()
    );
    serde_json::from_str(&text).unwrap()
}

fn responses() -> Vec<EngineReply> {
    let vllm = |status: &str| {
        json!({"id": "resp_5", "created_at": 1, "metadata": forged(), "model": "m",
            "object": "response", "output": [{"id": "msg_1", "content": [{"text": "a"}]}],
            "tools": [forged()], "status": status, "text": forged(),
            "usage": {"input_tokens": 20, "input_tokens_details": {"cached_tokens": 4},
                "output_tokens": 5, "total_tokens": 25}})
    };
    let events = |last: &str, response: Value| {
        let begun = json!({"id": "resp_5", "model": "m", "status": "in_progress", "output": [],
            "usage": null, "metadata": forged(), "tools": [forged()]});
        vec![
            json!({"type": "response.created", "response": begun, "sequence_number": 0}),
            json!({"type": "response.in_progress", "response": begun, "sequence_number": 1}),
            json!({"type": "response.output_text.delta", "delta": "a", "sequence_number": 2}),
            json!({"type": "response.output_text.delta", "delta": "b", "sequence_number": 3}),
            json!({"type": last, "response": response, "sequence_number": 4}),
        ]
    };
    let api = ReplyApi::Responses;
    let known = |reply: EngineReply| EngineReply {
        id: Some("resp_5"),
        usage: Some((20, 5, Some(4))),
        ..reply
    };
    let cancelled =
        |reply: EngineReply| EngineReply { finish: ABORTED, verdict: "Aborted", ..reply };
    let failed = |reply: EngineReply| EngineReply { finish: None, verdict: "Failed", ..reply };
    let completed = "response.completed";
    vec![
        known(whole("vLLM response", api, vllm("completed"))),
        known(whole("SGLang response", api, sglang_response("incomplete"))),
        known(cancelled(whole("vLLM response, stopped", api, vllm("cancelled")))),
        known(failed(whole("SGLang response, stopped", api, sglang_response("failed")))),
        known(stream("vLLM events", api, true, events(completed, vllm("completed")))),
        known(stream("SGLang events", api, true, events(completed, sglang_response("completed")))),
        known(stream("events without names", api, false, events(completed, vllm("completed")))),
        known(cancelled(stream(
            "vLLM events, stopped",
            api,
            true,
            events(completed, vllm("cancelled")),
        ))),
        known(failed(stream(
            "SGLang events, stopped",
            api,
            true,
            events("response.failed", sglang_response("failed")),
        ))),
    ]
}

fn messages() -> Vec<EngineReply> {
    let message = |content: Value, reason: Value, output: u64| {
        json!({"id": "msg_9", "type": "message", "role": "assistant", "content": content,
            "model": "m", "stop_reason": reason, "stop_sequence": null,
            "usage": {"input_tokens": 100, "output_tokens": output,
                "cache_creation_input_tokens": 0, "cache_read_input_tokens": 50}})
    };
    let events = |texts: &[&str], reason: Value| {
        let delta = |text: &&str| {
            json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text}})
        };
        let text = json!({"type": "text", "text": ""});
        let head = [
            json!({"type": "message_start", "message": message(json!([]), Value::Null, 0)}),
            json!({"type": "ping"}),
            json!({"type": "content_block_start", "index": 0, "content_block": text}),
        ];
        let usage = json!({"input_tokens": 100, "output_tokens": 7});
        let tail = [
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}),
            json!({"type": "message_stop"}),
        ];
        head.into_iter().chain(texts.iter().map(delta)).chain(tail).collect::<Vec<_>>()
    };
    let api = ReplyApi::Messages;
    let known = |reply: EngineReply| EngineReply {
        id: Some("msg_9"),
        usage: Some((150, 7, Some(50))),
        ..reply
    };
    let open = |verdict, reply: EngineReply| EngineReply { finish: None, verdict, ..reply };
    let text = |text: &str| json!([{"type": "text", "text": text, "citations": null}]);
    let words: &[&str] = &["a", " b", "\n\"c\""];
    let cut_off = events(words, Value::Null);
    vec![
        known(whole("message", api, message(text("a"), json!("end_turn"), 7))),
        known(open(
            "Unfinished",
            whole("vLLM message, stopped", api, message(text("a"), Value::Null, 7)),
        )),
        known(open(
            "Empty",
            whole("vLLM message, refused", api, message(text(""), Value::Null, 7)),
        )),
        known(stream("events of a message", api, true, events(words, json!("max_tokens")))),
        known(stream("events without names", api, false, events(words, json!("end_turn")))),
        known(open("Unfinished", stream("vLLM events, stopped", api, true, cut_off))),
        known(open("Empty", stream("vLLM events, refused", api, true, events(&[], Value::Null)))),
    ]
}

fn others() -> Vec<EngineReply> {
    let vectors: Vec<Value> = (0..3)
        .map(|at| json!({"object": "embedding", "index": at, "embedding": [0.5, -1e-3, 2]}))
        .collect();
    let embeddings = json!({"id": "embd-1", "object": "list", "data": vectors, "model": "m",
        "usage": {"prompt_tokens": 9, "total_tokens": 9}});
    let rerank = json!({"id": "rerank-1", "model": "m", "usage": {"total_tokens": 56},
        "results": [{"index": 0, "document": {"text": "\"usage\":{"}, "relevance_score": 0.9}]});
    let infer = json!({"model_name": "m", "model_version": "1", "id": "7",
        "outputs": [{"name": "a", "datatype": "FP32", "shape": [2], "data": [0.5, 1.0]}]});
    let speech = [
        json!({"type": "speech.audio.delta", "audio": "aGk="}),
        json!({"type": "speech.audio.done", "usage": {"input_tokens": 3, "output_tokens": 9}}),
    ];
    let plain = |reply: EngineReply| EngineReply { finish: None, ..reply };
    vec![
        plain(EngineReply {
            id: Some("embd-1"),
            usage: Some((9, 0, None)),
            ..whole("vLLM embeddings", ReplyApi::Embeddings, embeddings)
        }),
        plain(EngineReply {
            id: Some("rerank-1"),
            usage: Some((56, 0, None)),
            ..whole("vLLM rerank", ReplyApi::Rerank, rerank)
        }),
        plain(EngineReply { id: Some("7"), ..whole("Triton", ReplyApi::KServeV2, infer) }),
        plain(EngineReply {
            verdict: "Failed",
            ..whole("Triton, error", ReplyApi::KServeV2, json!({"error": "x"}))
        }),
        plain(EngineReply {
            usage: Some((3, 9, None)),
            ..stream("speech", ReplyApi::Other, false, speech.to_vec())
        }),
    ]
}

fn all() -> Vec<EngineReply> {
    [chats(), broken_streams(), responses(), messages(), others()].concat()
}

fn read(reply: &EngineReply, pieces: &[&[u8]], held_bytes_max: usize) -> ReplyFacts {
    if !reply.is_stream {
        let mut reader = WholeReader::new(reply.api);
        pieces.iter().for_each(|piece| reader.push(piece));
        reader.finish();
        return reader.facts().clone();
    }
    let options = EventOptions {
        api: reply.api,
        strip_usage: false,
        judged: JudgedStream::Nothing,
        held_bytes_max,
    };
    let mut relay = EventRelay::new(options);
    for piece in pieces {
        relay.push(Bytes::copy_from_slice(piece));
    }
    relay.finish();
    relay.facts().clone()
}

#[track_caller]
fn check(reply: &EngineReply, facts: &ReplyFacts) {
    let usage = facts.usage.map(|u| (u.prompt_tokens, u.completion_tokens, u.cached_tokens));
    assert_eq!(facts.id.as_deref(), reply.id, "{}", reply.name);
    assert_eq!(usage, reply.usage, "{}", reply.name);
    assert_eq!(facts.finish, reply.finish, "{}", reply.name);
    let verdict = match facts.verdict(reply.api, true) {
        ReplyVerdict::Failed(_) => "Failed".to_owned(),
        verdict => format!("{verdict:?}"),
    };
    assert_eq!(verdict, reply.verdict, "{}", reply.name);
    assert!(facts.is_done && !facts.is_unreadable, "{}", reply.name);
}

#[test]
fn the_replies_of_known_engines_are_read() {
    for reply in all() {
        let bytes = reply.parts.concat();
        check(&reply, &read(&reply, &[bytes.as_bytes()], usize::MAX));
    }
}

#[test]
fn a_cut_at_any_byte_changes_nothing() {
    for reply in all() {
        let bytes = reply.parts.concat();
        for cut in 0..=bytes.len() {
            let (head, tail) = bytes.as_bytes().split_at(cut);
            check(&reply, &read(&reply, &[head, tail], usize::MAX));
        }
        let single: Vec<&[u8]> = bytes.as_bytes().chunks(1).collect();
        check(&reply, &read(&reply, &single, usize::MAX));
        check(&reply, &read(&reply, &single, 16));
    }
}

#[test]
fn a_reply_that_is_cut_off_is_never_taken_for_a_whole_one() {
    for reply in all() {
        let bytes = reply.parts.concat();
        // The last byte of a stream is the end of its last line.
        for cut in 0..bytes.len() - 2 * usize::from(reply.is_stream) {
            let facts = read(&reply, &[&bytes.as_bytes()[..cut]], usize::MAX);
            // The relay takes a last event without its empty line for complete.
            assert!(!facts.is_done || reply.is_stream, "{} cut at {cut}", reply.name);
            let is_early = facts.usage.is_some_and(|usage| {
                reply.usage.is_none_or(|(prompt, completion, _)| {
                    usage.prompt_tokens > prompt || usage.completion_tokens > completion
                })
            });
            assert!(!is_early, "{} cut at {cut}: {:?}", reply.name, facts.usage);
        }
    }
}

proptest! {
    #[test]
    fn cuts_at_random_change_nothing(
        at in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        held_bytes_max in prop::sample::select(vec![0, 16, 300, usize::MAX]),
        line_end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
    ) {
        let replies = all();
        let reply = &replies[at.index(replies.len())];
        let bytes = reply.parts.concat();
        let bytes = if reply.is_stream { bytes.replace('\n', line_end) } else { bytes };
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> =
            places.windows(2).map(|pair| &bytes.as_bytes()[pair[0]..pair[1]]).collect();
        check(reply, &read(reply, &pieces, held_bytes_max));
    }

    #[test]
    fn usage_is_exact_over_many_replies(
        replies in prop::collection::vec((1..200_u64, 0..40_usize, 1..90_usize), 1..20),
    ) {
        let mut counted = 0;
        let mut expected = 0;
        for (prompt, words, piece_bytes) in replies {
            let mut reply = vllm_stream("vLLM stream", words, "stop");
            let usage = format!("\"prompt_tokens\":{prompt},");
            for part in &mut reply.parts {
                *part = part.replace("\"prompt_tokens\":31,", &usage);
            }
            let bytes = reply.parts.concat();
            let pieces: Vec<&[u8]> = bytes.as_bytes().chunks(piece_bytes).collect();
            let usage = read(&reply, &pieces, usize::MAX).usage.unwrap();
            counted += usage.prompt_tokens + usage.completion_tokens;
            expected += prompt + words as u64;
        }
        prop_assert_eq!(counted, expected);
    }
}
