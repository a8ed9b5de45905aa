//! Cost of finding and hashing the prompt in a body whose facts were read, by the kind of JSON; and
//! time from a body's last byte to its hashes if nothing is done before.
//!
//! Run with `cargo bench -p spillway-protocol --bench prompt`.

#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use serde_json::json;
use spillway_prefix::{PrefixConfig, PrefixHasher, Scope};
use spillway_protocol::{Facts, PromptPiece, read_facts, read_prompt};
use spillway_types::BlockHashes;

const SIZES: [usize; 4] = [2 << 10, 16 << 10, 128 << 10, 1 << 20];

const QUESTION: &str = "What is the weather like in the mountains?";

fn main() {
    divan::main();
}

/// Measures one long message.
#[divan::bench(args = SIZES)]
fn long_text(bencher: Bencher<'_, '_>, bytes: usize) {
    let content = "The quick brown fox jumps over the lazy dog. ".repeat(bytes / 45 + 1);
    hash(bencher, &conversation(&[&content[..bytes]]));
}

/// Measures code, which has an escape every few bytes.
#[divan::bench(args = SIZES)]
fn code(bencher: Bencher<'_, '_>, bytes: usize) {
    let line = "    if (path[0] == '\\\\' && name == \"x\") {\n\t\treturn \"a\\n\" + c;\n    }\n";
    let content = line.repeat(bytes / line.len() + 1);
    hash(bencher, &conversation(&[&content[..bytes]]));
}

/// Measures a conversation of short messages.
#[divan::bench(args = SIZES)]
fn short_messages(bencher: Bencher<'_, '_>, bytes: usize) {
    hash(bencher, &conversation(&vec![QUESTION; bytes / 74]));
}

/// Measures short messages with the content before the role, from clients that sort their fields.
#[divan::bench(args = SIZES)]
fn short_messages_turned(bencher: Bencher<'_, '_>, bytes: usize) {
    let message = json!({"role": "user", "content": QUESTION}).to_string();
    let messages = vec![message; bytes / 74].join(",");
    hash(bencher, &format!("{{\"messages\":[{messages}]}}"));
}

/// Measures short messages in the usual order, with a space behind each comma and colon.
#[divan::bench(args = SIZES)]
fn short_messages_spaced(bencher: Bencher<'_, '_>, bytes: usize) {
    let message =
        "{\"role\": \"user\", \"content\": \"What is the weather like in the mountains?\"}";
    let messages = vec![message; bytes / 77].join(", ");
    hash(bencher, &format!("{{\"messages\": [{messages}]}}"));
}

/// Measures the requests of an agent: tool calls, and results of some hundred bytes behind their
/// id.
#[divan::bench(args = SIZES)]
fn agent(bencher: Bencher<'_, '_>, bytes: usize) {
    let call = "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call_1\",\
        \"type\":\"function\",\"function\":{\"name\":\"read\",\"arguments\":\
        \"{\\\"path\\\": \\\"src/main.rs\\\"}\"}}]}";
    let line = "    let name = path.file_name();\\n    println!(\\\"{name:?}\\\");\\n".repeat(10);
    let result =
        format!("{{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":\"{line}\"}}");
    let turn = [call, &result].join(",");
    let turns = vec![&*turn; bytes / turn.len() + 1].join(",");
    hash(bencher, &format!("{{\"messages\":[{turns}]}}"));
}

/// Measures short messages whose content is a list of parts.
#[divan::bench(args = SIZES)]
fn parts(bencher: Bencher<'_, '_>, bytes: usize) {
    let message = format!(
        "{{\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"{QUESTION}\"}}]}}"
    );
    let messages = vec![message; bytes / 102 + 1].join(",");
    hash(bencher, &format!("{{\"messages\":[{messages}]}}"));
}

/// Measures a list of token numbers.
#[divan::bench(args = SIZES)]
fn tokens(bencher: Bencher<'_, '_>, bytes: usize) {
    hash(bencher, &format!("{{\"prompt\":[{}]}}", numbers(bytes / 7).join(",")));
}

/// Measures a list of token numbers with spaces.
#[divan::bench(args = SIZES)]
fn tokens_spaced(bencher: Bencher<'_, '_>, bytes: usize) {
    hash(bencher, &format!("{{\"prompt\": [{}]}}", numbers(bytes / 8).join(", ")));
}

/// Measures the time from the last byte of a body to its hashes, reading of facts included.
#[divan::bench(args = SIZES)]
fn facts_and_long_text(bencher: Bencher<'_, '_>, bytes: usize) {
    let content = "The quick brown fox jumps over the lazy dog. ".repeat(bytes / 45 + 1);
    facts_and_hash(bencher, &conversation(&[&content[..bytes]]));
}

/// Measures facts and hashes of a conversation of short messages.
#[divan::bench(args = SIZES)]
fn facts_and_short_messages(bencher: Bencher<'_, '_>, bytes: usize) {
    facts_and_hash(bencher, &conversation(&vec![QUESTION; bytes / 74]));
}

/// Returns a body in the field order of nearly all clients, without spaces.
fn conversation(contents: &[&str]) -> String {
    let message = |content: &&str| {
        format!("{{\"role\":\"user\",\"content\":{}}}", serde_json::Value::from(*content))
    };
    let messages: Vec<_> = contents.iter().map(message).collect();
    format!("{{\"messages\":[{}]}}", messages.join(","))
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|at| (10_000 + at % 50_000).to_string()).collect()
}

fn facts_and_hash(bencher: Bencher<'_, '_>, body: &str) {
    let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).expect("a hasher");
    bencher.counter(BytesCount::new(body.len())).bench(|| {
        let facts = read_facts(black_box(body.as_bytes())).expect("facts");
        hash_prompt(&hasher, &facts, body)
    });
}

fn hash(bencher: Bencher<'_, '_>, body: &str) {
    let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).expect("a hasher");
    let facts = read_facts(body.as_bytes()).expect("facts");
    bencher.counter(BytesCount::new(body.len())).bench(|| hash_prompt(&hasher, &facts, body));
}

fn hash_prompt(hasher: &PrefixHasher, facts: &Facts<'_>, body: &str) -> BlockHashes {
    let mut stream = hasher.start(&Scope { model: "llama-3.1-8b", ..Scope::default() });
    read_prompt(facts, black_box(body.as_bytes()), |piece| match piece {
        PromptPiece::Text(text) | PromptPiece::Blob(text) => stream.update(text),
    });
    stream.finish()
}
