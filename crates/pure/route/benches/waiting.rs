//! Cost of the operations of a queue, by the number of requests that wait in it.
//!
//! Run with `cargo bench -p spillway-route --bench waiting`.

use std::time::{Duration, Instant};

use divan::Bencher;
use spillway_route::{WaitEntry, WaitLimits, WaitQueue, WaitTicket};
use spillway_types::Deadline;

const WAITING: [u64; 3] = [10, 1_000, 100_000];

/// Shows allocations beside the times.
#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

#[divan::bench(args = WAITING)]
fn push_and_pop(bencher: Bencher<'_, '_>, waiting: u64) {
    let mut filled = Filled::with(waiting);
    bencher.bench_local(|| {
        let ticket = filled.push();
        (ticket, filled.queue.pop_next(filled.start))
    });
}

#[divan::bench(args = WAITING)]
fn push_and_leave(bencher: Bencher<'_, '_>, waiting: u64) {
    let mut filled = Filled::with(waiting);
    bencher.bench_local(|| {
        let ticket = filled.push();
        ticket.and_then(|ticket| filled.queue.remove(ticket))
    });
}

#[divan::bench(args = WAITING)]
fn nothing_to_expire(bencher: Bencher<'_, '_>, waiting: u64) {
    let mut filled = Filled::with(waiting);
    bencher.bench_local(|| filled.queue.expire(filled.start));
}

#[divan::bench(args = WAITING)]
fn ahead_of(bencher: Bencher<'_, '_>, waiting: u64) {
    let filled = Filled::with(waiting);
    bencher.bench_local(|| filled.queue.ahead_of(divan::black_box(2)));
}

/// A queue, and the requests that keep entering it.
struct Filled {
    queue: WaitQueue<u64>,
    start: Instant,
    pushed: u64,
}

impl Filled {
    #[expect(clippy::disallowed_methods, reason = "a benchmark needs some starting moment")]
    fn with(waiting: u64) -> Self {
        let limits = WaitLimits { count_max: 1 << 20, ..WaitLimits::default() };
        let mut filled = Self { queue: WaitQueue::new(limits), start: Instant::now(), pushed: 0 };
        (0..waiting).for_each(|_| {
            filled.push();
        });
        filled
    }

    fn push(&mut self) -> Option<WaitTicket> {
        self.pushed += 1;
        let mixed = self.pushed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let deadline = Deadline::after(self.start, Duration::from_micros(1 + mixed % 20_000_000));
        let entry = WaitEntry {
            priority: (mixed >> 60) as u8 % 4,
            bytes: 8,
            // Many tenants in the less urgent classes, few in the most urgent one.
            tenant: mixed % (1 + (mixed >> 60) % 4 * 16),
            tokens: 100 + (mixed >> 20) as u32 % 2_000,
            ..WaitEntry::new(mixed, deadline)
        };
        self.queue.push(entry, self.start).ok()
    }
}
