//! What it costs to find and hash the prompt of a body that has been read, by the kind of its JSON.
//!
//! Run with `cargo bench -p spillway-protocol --bench prompt`.

#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use serde_json::json;
use spillway_prefix::{PrefixConfig, PrefixHasher, Scope};
use spillway_protocol::{PromptPiece, read_facts, read_prompt};

const SIZES: [usize; 3] = [2 << 10, 16 << 10, 1 << 20];

fn main() {
    divan::main();
}

/// One long message.
#[divan::bench(args = SIZES)]
fn long_text(bencher: Bencher<'_, '_>, bytes: usize) {
    let content = "The quick brown fox jumps over the lazy dog. ".repeat(bytes / 45 + 1);
    let body = json!({"messages": [{"role": "user", "content": &content[..bytes]}]}).to_string();
    hash(bencher, &body);
}

/// Code, with an escape every few bytes.
#[divan::bench(args = SIZES)]
fn code(bencher: Bencher<'_, '_>, bytes: usize) {
    let line = "    if (path[0] == '\\\\' && name == \"x\") {\n\t\treturn \"a\\n\" + c;\n    }\n";
    let content = line.repeat(bytes / line.len() + 1);
    let body = json!({"messages": [{"role": "user", "content": &content[..bytes]}]}).to_string();
    hash(bencher, &body);
}

/// A conversation of short messages.
#[divan::bench(args = SIZES)]
fn short_messages(bencher: Bencher<'_, '_>, bytes: usize) {
    let message = json!({"role": "user", "content": "What is the weather like in the mountains?"});
    let messages = vec![message; bytes / 74];
    hash(bencher, &json!({ "messages": messages }).to_string());
}

/// The same with a space behind each comma and colon.
#[divan::bench(args = SIZES)]
fn short_messages_spaced(bencher: Bencher<'_, '_>, bytes: usize) {
    let message =
        "{\"role\": \"user\", \"content\": \"What is the weather like in the mountains?\"}";
    let messages = vec![message; bytes / 77].join(", ");
    hash(bencher, &format!("{{\"messages\": [{messages}]}}"));
}

/// Numbers of tokens, with spaces.
#[divan::bench(args = SIZES)]
fn tokens(bencher: Bencher<'_, '_>, bytes: usize) {
    let tokens: Vec<String> = (0..bytes / 8).map(|at| (10_000 + at % 50_000).to_string()).collect();
    hash(bencher, &format!("{{\"prompt\": [{}]}}", tokens.join(", ")));
}

fn hash(bencher: Bencher<'_, '_>, body: &str) {
    let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).expect("a hasher");
    let facts = read_facts(body.as_bytes()).expect("facts");
    let scope = Scope { model: "llama-3.1-8b", ..Scope::default() };
    bencher.counter(BytesCount::new(body.len())).bench(|| {
        let mut stream = hasher.start(&scope);
        read_prompt(&facts, black_box(body.as_bytes()), |piece| match piece {
            PromptPiece::Text(text) | PromptPiece::Blob(text) => stream.update(text),
        });
        stream.finish()
    });
}
