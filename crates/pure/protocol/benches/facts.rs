//! Benchmark of reading a chat request's facts, by the size of the prompt.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};

const SIZES: [usize; 4] = [1 << 10, 16 << 10, 128 << 10, 1 << 20];

const ENGLISH: &str = "The quick brown fox jumps over the lazy dog near the bank of the river.\n\
    She said: \"It is late\", and left without another word about the matter.\n\n";
const CHINESE: &str = "敏捷的棕色狐狸跳过河边的懒狗。\n她说:“天晚了”,便不再谈这件事,转身离去。\n\n";
const CODE: &str =
    "    if (path[0] == '\\\\' && name == \"x\") {\n\t\treturn \"a\\n\" + join(\"b\", c);\n    }\n";

fn main() {
    divan::main();
}

#[divan::bench(args = SIZES)]
fn english(bencher: Bencher<'_, '_>, bytes: usize) {
    read(bencher, &body(ENGLISH, bytes));
}

#[divan::bench(args = SIZES)]
fn chinese(bencher: Bencher<'_, '_>, bytes: usize) {
    read(bencher, &body(CHINESE, bytes));
}

#[divan::bench(args = SIZES)]
fn code(bencher: Bencher<'_, '_>, bytes: usize) {
    read(bencher, &body(CODE, bytes));
}

#[divan::bench]
fn nested_one_million_deep(bencher: Bencher<'_, '_>) {
    let mut body = br#"{"messages":"#.to_vec();
    body.resize(body.len() + 1_000_000, b'[');
    bencher.bench_local(|| spillway_protocol::read_facts(black_box(&body)).is_err());
}

fn read(bencher: Bencher<'_, '_>, body: &[u8]) {
    bencher
        .counter(BytesCount::of_slice(body))
        .bench_local(|| spillway_protocol::read_facts(black_box(body)).is_ok_and(|f| f.stream));
}

fn body(text: &str, bytes: usize) -> Vec<u8> {
    let content = text.repeat(bytes / text.len() + 1);
    let end = content.floor_char_boundary(bytes);
    let request = serde_json::json!({
        "model": "llama-3.1-8b",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": &content[..end]},
        ],
        "temperature": 0.7,
        "max_tokens": 256,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    request.to_string().into_bytes()
}
