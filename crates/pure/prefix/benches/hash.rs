//! Throughput of prompt hashing, compared with one hash over the same bytes without blocks.
//!
//! Run with `cargo bench -p spillway-prefix`.

use divan::Bencher;
use divan::counter::BytesCount;
use highway::{HighwayHash, HighwayHasher, Key};
use spillway_prefix::{PrefixConfig, PrefixHasher, Scope};

const PROMPT_BYTES: [usize; 4] = [2 << 10, 16 << 10, 128 << 10, 1 << 20];

/// Size of the pieces in which bodies arrive, in bytes; no multiple of a block.
const PIECE_BYTES: usize = 16_000;

fn main() {
    divan::main();
}

#[divan::bench(args = PROMPT_BYTES)]
fn whole(bencher: Bencher<'_, '_>, prompt_bytes: usize) {
    let (hasher, prompt) = (hasher(), prompt(prompt_bytes));
    let bencher = bencher.counter(BytesCount::new(prompt_bytes));
    bencher.bench(|| hasher.hash(&scope(), divan::black_box(&prompt)));
}

#[divan::bench(args = PROMPT_BYTES)]
fn in_pieces(bencher: Bencher<'_, '_>, prompt_bytes: usize) {
    let (hasher, prompt) = (hasher(), prompt(prompt_bytes));
    bencher.counter(BytesCount::new(prompt_bytes)).bench(|| {
        let mut stream = hasher.start(&scope());
        for piece in divan::black_box(&prompt).chunks(PIECE_BYTES) {
            stream.update(piece);
        }
        stream.finish()
    });
}

/// Measures the upper bound: one hash over all bytes.
#[divan::bench(args = PROMPT_BYTES)]
fn without_blocks(bencher: Bencher<'_, '_>, prompt_bytes: usize) {
    let prompt = prompt(prompt_bytes);
    let bencher = bencher.counter(BytesCount::new(prompt_bytes));
    bencher.bench(|| HighwayHasher::new(Key([1, 2, 3, 4])).hash64(divan::black_box(&prompt)));
}

#[expect(clippy::expect_used, reason = "a benchmark that can't start should stop")]
fn hasher() -> PrefixHasher {
    PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).expect("the defaults are valid")
}

fn scope() -> Scope<'static> {
    Scope { model: "llama-3.1-8b", ..Scope::default() }
}

fn prompt(bytes: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(1);
    (0..bytes).map(|_| rng.u8(b' '..b'~')).collect()
}
