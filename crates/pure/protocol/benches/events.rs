//! Benchmark of passing on one chunk of a stream.

use bytes::Bytes;
use divan::{Bencher, black_box};
use spillway_protocol::{
    EventOptions, EventRelay, JudgedStream, ReplyApi, ReplyReader, ReplyShape,
};

const TOKEN: &str = concat!(
    r#"data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","#,
    r#""created":1700000000,"model":"llama-3.1-8b","choices":[{"index":0,"#,
    r#""delta":{"content":" word"},"finish_reason":null}]}"#,
    "\n\n"
);

fn main() {
    divan::main();
}

/// Measures one event per chunk; the budget is well under 100 ns.
#[divan::bench(args = [false, true], sample_size = 1000)]
fn one_event_a_chunk(bencher: Bencher<'_, '_>, strip_usage: bool) {
    relay_each(bencher, strip_usage, &[Bytes::from_static(TOKEN.as_bytes())]);
}

#[divan::bench]
fn ten_events_a_chunk(bencher: Bencher<'_, '_>) {
    relay_each(bencher, false, &[Bytes::from(TOKEN.repeat(10))]);
}

#[divan::bench]
fn one_event_in_two_chunks(bencher: Bencher<'_, '_>) {
    let (head, tail) = TOKEN.split_at(TOKEN.len() / 2);
    let parts = [head, tail].map(|part| Bytes::from_static(part.as_bytes()));
    relay_each(bencher, false, &parts);
}

/// Measures reading one event of a reply for the prefix index: like the one before, or with an escape
/// in its text.
#[divan::bench(args = [" word", "\\n"], sample_size = 1000)]
fn one_event_read(bencher: Bencher<'_, '_>, text: &str) {
    let shape = ReplyShape::Message { has_parts: false };
    let mut reader = ReplyReader::new(shape, b"[]");
    let event = TOKEN.replace(" word", text);
    bencher.bench_local(move || {
        reader.read_event(black_box(event.as_bytes()), &mut |text| {
            black_box(text);
        });
    });
}

fn relay_each(bencher: Bencher<'_, '_>, strip_usage: bool, chunks: &[Bytes]) {
    let mut relay = EventRelay::new(EventOptions {
        api: ReplyApi::Chat,
        strip_usage,
        judged: JudgedStream::Ends,
        held_bytes_max: 64 << 10,
    });
    bencher.bench_local(move || {
        for chunk in chunks {
            relay.push(black_box(chunk.clone()));
            while let Some(bytes) = relay.pop() {
                black_box(bytes);
            }
        }
    });
}
