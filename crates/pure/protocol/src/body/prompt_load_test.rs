use serde_json::{Value, json};

use super::*;
use crate::{read_facts, read_prompt};

#[track_caller]
fn check(body: &Value, tokens: Range<u64>, prompts: u64) {
    let body = body.to_string();
    let facts = read_facts(body.as_bytes()).unwrap();
    let mut bytes = 0;
    read_prompt(&facts, body.as_bytes(), |piece| {
        bytes += match piece {
            crate::PromptPiece::Text(text) => text.len() as u64,
            crate::PromptPiece::Blob(blob) => crate::blob_tokens(blob) * TOKEN_BYTES,
        };
    });
    let load = facts.prompt_load(body.as_bytes(), bytes);
    assert!(tokens.contains(&load.tokens), "{load:?} of {body}");
    assert_eq!(load.prompts, prompts, "{body}");
}

#[test]
fn every_prompt_of_a_request_counts() {
    let text = "x".repeat(400);
    check(&json!({"messages": [{"role": "user", "content": text}]}), 100..120, 1);
    check(&json!({"prompt": text}), 100..103, 1);
    check(&json!({"prompt": [text, text, text]}), 300..320, 3);
    check(&json!({"prompt": vec![7; 500]}), 500..501, 1);
    check(&json!({"prompt": [vec![7; 500], vec![8; 20]]}), 520..523, 2);
    check(&json!({"input": [text, text]}), 200..210, 2);
    check(&json!({"input": [{"role": "user", "content": text}]}), 100..120, 1);
    check(&json!({"input": text, "previous_response_id": "resp_1"}), 100..103, 1);
}

#[test]
fn token_numbers_count_one_by_one_however_they_are_written() {
    let long: Vec<u32> = (100_000..109_000).collect();
    check(&json!({"prompt": long}), 9_000..9_001, 1);
    check(&json!({"prompt": [long, long]}), 18_000..18_001, 2);
    check(&json!({"input": long}), 9_000..9_001, 1);
    check(&json!({"tokens": long}), 9_000..9_001, 1);
    let tools = json!([{"type": "function", "name": "x".repeat(400)}]);
    check(&json!({"input": [1, 2], "tools": tools}), 100..125, 1);
}

#[test]
fn images_sound_files_and_embeddings_weigh_less_than_text_everywhere() {
    let png = "data:image/png;base64,".to_owned() + &"iVBORw0K".repeat(50_000);
    let wav = "UklGRiQA".repeat(50_000);
    let of = |part: Value| json!({"messages": [{"role": "user", "content": [part]}]});
    check(&of(json!({"type": "image_url", "image_url": {"url": png}})), 1_024..1_060, 1);
    let audio = json!({"type": "input_audio", "input_audio": {"data": wav, "format": "wav"}});
    check(&of(audio), 4_687..4_720, 1);
    let source = json!({"type": "base64", "media_type": "image/png", "data": &png[22..]});
    check(&of(json!({"type": "image", "source": source})), 1_024..1_060, 1);
    let file = json!({"type": "input_file", "filename": "a.pdf", "file_data": wav});
    check(&json!({"input": [{"role": "user", "content": [file]}]}), 4_687..4_730, 1);
    let document = json!({"content": [{"type": "image_url", "image_url": {"url": png}}]});
    check(&json!({"query": "q", "documents": [document, document]}), 2_048..2_110, 1);
    check(&json!({"input": [png, png]}), 2_048..2_060, 2);
    check(&json!({"prompt_embeds": [wav, wav]}), 580..590, 1);
    let vectors = vec![vec![0.25; 512]; 40];
    check(&json!({"input_embeds": vectors}), 40..41, 1);
}

#[test]
fn tools_of_the_server_are_told_from_those_of_the_client() {
    let client = json!({"type": "function", "name": "f", "parameters": {}});
    let anthropic = json!({"name": "f", "input_schema": {}});
    let server = json!({"type": "web_search"});
    for (tools, expected) in [
        (json!(null), false),
        (json!([]), false),
        (json!([client, anthropic]), false),
        (json!([{"type": "custom", "name": "patch"}]), false),
        (json!([client, server]), true),
    ] {
        let body = json!({"input": "x", "tools": tools}).to_string();
        let facts = read_facts(body.as_bytes()).unwrap();
        assert_eq!(facts.has_server_tools(body.as_bytes()), expected, "{body}");
    }
}

#[test]
fn a_query_is_read_with_each_document() {
    let text = "x".repeat(400);
    check(&json!({"query": text, "documents": ["a", "b", "c"]}), 300..310, 1);
    check(&json!({"text_1": text, "text_2": ["a", "b", "c", "d"]}), 400..420, 1);
    check(&json!({"query": text, "items": [text, text]}), 400..410, 1);
}

#[test]
fn each_text_that_an_engine_puts_together_is_a_reading() {
    for (body, expected) in [
        (json!({"prompt": "a"}), 1),
        (json!({"input": ["a", "b", "c"]}), 3),
        (json!({"query": "q", "documents": ["a", "b"]}), 2),
        (json!({"text_1": "q", "text_2": "a"}), 1),
        (json!({"model": "m"}), 1),
    ] {
        let body = body.to_string();
        let facts = read_facts(body.as_bytes()).unwrap();
        assert_eq!(facts.prompt_load(body.as_bytes(), 0).readings, expected, "{body}");
    }
}

#[test]
fn what_is_no_text_or_not_known_counts_too() {
    let text = "x".repeat(400);
    let hello = json!([{"role": "user", "content": "hi"}]);
    check(&json!({"messages": hello, "input_ids": vec![1; 1_000]}), 1_000..1_020, 1);
    check(&json!({"messages": hello, "documents": [text]}), 100..120, 1);
    check(&json!({"prompt_embeds": text}), 1..2, 1);
    check(&json!({"model": "m", "something": text}), 100..120, 1);
}
