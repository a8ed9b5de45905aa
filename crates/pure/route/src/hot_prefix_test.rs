//! Policies with a prefix that most prompts share, in a closed loop with replicas that cache what
//! they have read.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use spillway_types::{BlockHashes, Reading, Signals, Speed};

use crate::test_world::{Prompt, World};
use crate::{LatencyModel, ObservedLatency, Policy};

const MS: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;
const REPLICAS: usize = 8;
/// Tokens of the prefix that nine of ten requests share, and of the rest of each prompt.
const SHARED_TOKENS: u64 = 4_096;
const OWN_TOKENS: u64 = 256;
/// Tokens of a block: 256 bytes of 4 bytes a token.
const TOKENS_PER_BLOCK: u64 = 64;
const PREFILL_US: u64 = 200;
const FLOOR_MS: u64 = 20;
/// Time from the first token to the last.
const DECODE: u64 = 1_500 * MS;
const SECONDS: u64 = 120;

/// Results of a run.
#[derive(Debug)]
struct Results {
    /// Milliseconds to the first token, sorted.
    first_token_ms: Vec<f64>,
    served: [u64; REPLICAS],
    read_tokens: u64,
    prompt_tokens: u64,
}

impl Results {
    /// Returns the most requests of one replica, as a multiple of the mean.
    fn skew(&self) -> f64 {
        let all: u64 = self.served.iter().sum();
        let most = self.served.iter().max().copied().unwrap_or(0);
        most as f64 * REPLICAS as f64 / all as f64
    }

    fn quantile_ms(&self, share: f64) -> f64 {
        self.first_token_ms[(self.first_token_ms.len() as f64 * share) as usize]
    }

    fn mean_ms(&self) -> f64 {
        self.first_token_ms.iter().sum::<f64>() / self.first_token_ms.len() as f64
    }

    fn cached_share(&self) -> f64 {
        1.0 - self.read_tokens as f64 / self.prompt_tokens as f64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Board,
    Arrival,
    First { replica: usize, tokens: u64 },
    End { replica: usize },
}

/// Replicas that read one prompt after the other and generate for any number of requests at once.
struct Loop {
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    world: World,
    models: Vec<LatencyModel>,
    /// Moment at which each replica has read all its prompts.
    read_until: [u64; REPLICAS],
    /// Blocks that each replica has read.
    cached: Vec<BTreeSet<u64>>,
    /// Requests at each replica whose reply has not begun.
    waiting: [u32; REPLICAS],
    rng: fastrand::Rng,
    results: Results,
}

fn run(policy: Policy, arrivals_per_s: f64) -> Results {
    let mut state = Loop {
        now: 0,
        events: BinaryHeap::new(),
        sequence: 0,
        world: World::idle(policy, &[1; REPLICAS]),
        models: vec![LatencyModel::new(Speed::UNKNOWN); REPLICAS],
        read_until: [0; REPLICAS],
        cached: vec![BTreeSet::new(); REPLICAS],
        waiting: [0; REPLICAS],
        rng: fastrand::Rng::with_seed(9),
        results: Results {
            first_token_ms: Vec::new(),
            served: [0; REPLICAS],
            read_tokens: 0,
            prompt_tokens: 0,
        },
    };
    state.schedule(0, Event::Board);
    state.schedule(0, Event::Arrival);
    while let Some(Reverse((now, _, event))) = state.events.pop() {
        state.now = now;
        match event {
            Event::Board => state.put_up_board(),
            Event::Arrival => state.arrive(arrivals_per_s),
            Event::First { replica, tokens } => {
                state.waiting[replica] -= 1;
                state.world.loads.pending_tokens[replica] -= tokens as u32;
            }
            Event::End { replica } => state.world.loads.in_flight[replica] -= 1,
        }
    }
    state.results.first_token_ms.sort_by(f64::total_cmp);
    state.results
}

impl Loop {
    fn schedule(&mut self, after: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now + after, self.sequence, event)));
    }

    fn is_over(&self) -> bool {
        self.now >= SECONDS * SECOND
    }

    fn put_up_board(&mut self) {
        if self.is_over() {
            return;
        }
        self.schedule(100 * MS, Event::Board);
        for replica in 0..REPLICAS {
            let fresh = |value: u32| Reading { value: value as f32, trust: 1.0 };
            let in_flight = self.world.loads.in_flight[replica];
            let queued = self.waiting[replica].saturating_sub(1);
            self.world.loads.signals[replica] = Signals {
                queued: fresh(queued),
                running: fresh(in_flight - queued),
                in_flight_at_report: in_flight,
                ..Signals::UNKNOWN
            };
            self.world.loads.speeds[replica] = self.models[replica].speed(self.now / MS);
        }
    }

    fn arrive(&mut self, arrivals_per_s: f64) {
        if self.is_over() {
            return;
        }
        let gap_s = -(1.0 - self.rng.f64()).ln() / arrivals_per_s;
        self.schedule((gap_s * SECOND as f64) as u64, Event::Arrival);
        let family = if self.rng.u8(..10) == 0 { self.rng.u64(..) } else { 7 };
        let own = self.rng.u64(..);
        let shared = (0..SHARED_TOKENS / TOKENS_PER_BLOCK)
            .map(|block| family.rotate_left(block as u32) ^ block);
        let chain: Vec<u64> =
            shared.chain((0..OWN_TOKENS / TOKENS_PER_BLOCK).map(|block| own ^ block)).collect();
        for (replica, held) in self.cached.iter().enumerate() {
            let blocks = chain.iter().take_while(|block| held.contains(block)).count();
            self.world.loads.cached_blocks[replica] = blocks as u32;
        }
        self.world.prompt = Prompt {
            bytes: ((SHARED_TOKENS + OWN_TOKENS) * 4) as u32,
            blocks: BlockHashes::new(chain.clone()),
            output_tokens_max: Some(100),
            whole_tokens: None,
            has_model: false,
        };
        let attempt = self.world.attempt(self.sequence);
        self.serve(attempt.slot.index(), &chain, attempt.prediction);
    }

    fn serve(
        &mut self,
        replica: usize,
        chain: &[u64],
        predicted: Option<spillway_types::Prediction>,
    ) {
        let cached = u64::from(self.world.loads.cached_blocks[replica]) * TOKENS_PER_BLOCK;
        let tokens = SHARED_TOKENS + OWN_TOKENS - cached;
        let begin = self.read_until[replica].max(self.now);
        self.read_until[replica] = begin + tokens * PREFILL_US;
        let first = self.read_until[replica] - self.now + FLOOR_MS * MS;
        self.cached[replica].extend(chain);
        self.world.loads.in_flight[replica] += 1;
        self.world.loads.pending_tokens[replica] += tokens as u32;
        self.waiting[replica] += 1;
        self.schedule(first, Event::First { replica, tokens });
        self.schedule(first + DECODE, Event::End { replica });
        let first_token_ms = first as f64 / MS as f64;
        if let Some(prediction) = predicted {
            self.models[replica]
                .learn(&ObservedLatency::of(&prediction, first_token_ms as f32), self.now / MS);
        }
        // The first quarter is the warm-up.
        if self.now > SECONDS * SECOND / 4 {
            self.results.first_token_ms.push(first_token_ms);
            self.results.served[replica] += 1;
            self.results.read_tokens += tokens;
            self.results.prompt_tokens += SHARED_TOKENS + OWN_TOKENS;
        }
    }
}

#[test]
fn a_hot_prefix_does_not_melt_one_replica_and_is_served_sooner_than_by_load_alone() {
    // From nearly idle replicas to nearly full ones.
    for arrivals_per_s in [6.0, 20.0, 45.0] {
        let predicted = run(Policy::PredictedLatency, arrivals_per_s);
        // While replicas are nearly idle, some of them need not read the prefix at all.
        let is_loaded = arrivals_per_s >= 20.0;
        assert!(
            predicted.skew() <= 1.5 || !is_loaded,
            "{arrivals_per_s}/s: {:?}",
            predicted.served
        );
        for by_load in [Policy::LeastConnections, Policy::LeastLoaded, Policy::PowerOfTwo] {
            let other = run(by_load, arrivals_per_s);
            let (ours, theirs) = (predicted.mean_ms(), other.mean_ms());
            assert!(ours <= theirs * 1.02, "{arrivals_per_s}/s: {ours} ms, {by_load} {theirs} ms");
            let (ours, theirs) = (predicted.quantile_ms(0.9), other.quantile_ms(0.9));
            assert!(
                ours <= theirs * 1.02,
                "{arrivals_per_s}/s: p90 {ours} ms, {by_load} {theirs} ms"
            );
        }
    }
}

#[test]
fn what_is_shared_is_read_about_once_by_each_replica() {
    // Nine of ten prompts share 16 of their 17 parts.
    let most = 0.9 * SHARED_TOKENS as f64 / (SHARED_TOKENS + OWN_TOKENS) as f64;
    for policy in [Policy::PredictedLatency, Policy::PrefixAware] {
        let share = run(policy, 30.0).cached_share();
        assert!(share > most * 0.98, "{policy}: {share} of {most}");
    }
}
