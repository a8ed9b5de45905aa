//! Replicas that a decision chooses among, in the benchmark and in the test that counts
//! allocations.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use spillway_route::{Candidate, Loads, Snapshot};
use spillway_types::{
    BlockHashes, Deadline, Inquiry, ModelName, RAMP_FULL, Reading, ReplicaSlot, Residency, Signals,
    Speed,
};

/// Bytes of a prompt of 4,096 tokens.
const PROMPT_BYTES: u32 = 16_384;

/// Loads of replicas by slot: atomics and tables, as in a node.
pub(crate) struct ReplicaTable {
    in_flight: Vec<AtomicU32>,
    cached_blocks: Vec<u32>,
    cached_blocks_max: u32,
    /// Bit set of the replicas that have that many, as a look-up returns it.
    deepest: Vec<u64>,
    signals: Vec<Signals>,
    speeds: Vec<Speed>,
}

impl ReplicaTable {
    /// Returns the loads of so many replicas.
    pub(crate) fn new(replicas: usize) -> Self {
        let fresh = |value| Reading { value, trust: 0.9 };
        let signals = |index: usize| Signals {
            latency_ms: fresh(50.0 + (index % 13) as f32),
            queued: fresh((index % 3 / 2) as f32),
            running: fresh((4 + index % 9) as f32),
            kv_use: fresh((index % 11) as f32 / 11.0),
            in_flight_at_report: (index % 4) as u32,
            ..Signals::UNKNOWN
        };
        let speed = |index: usize| Speed {
            prefill_ms: 0.1 + (index % 7) as f32 / 100.0,
            kv_tokens: 200_000.0,
            step_ms_per_thousand: 0.05,
            ends_per_s: 5.0,
            trust: 0.9,
            ..Speed::UNKNOWN
        };
        let cached_blocks: Vec<u32> =
            (0..replicas).map(|index| (index % 37 / 30 * 9) as u32).collect();
        let word = |blocks: &[u32]| {
            let bits = blocks.iter().enumerate().map(|(bit, &blocks)| u64::from(blocks > 0) << bit);
            bits.sum()
        };
        Self {
            deepest: cached_blocks.chunks(64).map(word).collect(),
            cached_blocks,
            in_flight: (0..replicas).map(|index| AtomicU32::new(index as u32 % 7)).collect(),
            cached_blocks_max: 9,
            signals: (0..replicas).map(signals).collect(),
            speeds: (0..replicas).map(speed).collect(),
        }
    }

    /// Changes the load of some replicas, as requests do that begin and end between two decisions.
    pub(crate) fn change(&self, rng: &mut fastrand::Rng) {
        for _ in 0..10 {
            let index = rng.usize(..self.in_flight.len());
            self.in_flight[index].store(rng.u32(..7), Ordering::Relaxed);
        }
    }
}

impl Loads for ReplicaTable {
    fn in_flight(&self, slot: ReplicaSlot) -> u32 {
        self.in_flight[slot.index()].load(Ordering::Relaxed)
    }

    fn signals(&self, slot: ReplicaSlot) -> Signals {
        self.signals[slot.index()]
    }

    fn cached_blocks(&self, slot: ReplicaSlot) -> u32 {
        self.cached_blocks[slot.index()]
    }

    fn cached_blocks_max(&self) -> u32 {
        self.cached_blocks_max
    }

    fn visit_cached(
        &self,
        blocks: RangeInclusive<u32>,
        visit: &mut dyn FnMut(ReplicaSlot) -> ControlFlow<()>,
    ) -> bool {
        if !blocks.contains(&self.cached_blocks_max) {
            return true;
        }
        for (word, &bits) in self.deepest.iter().enumerate() {
            let mut left = bits;
            while left != 0 {
                let slot = word as u32 * u64::BITS + left.trailing_zeros();
                if visit(ReplicaSlot(slot)).is_break() {
                    return true;
                }
                left &= left - 1;
            }
        }
        true
    }

    fn speed(&self, slot: ReplicaSlot) -> Speed {
        self.speeds[slot.index()]
    }

    fn snapshot(&self, slot: ReplicaSlot) -> Snapshot {
        Snapshot {
            in_flight: self.in_flight(slot),
            elsewhere: 0,
            limit: u32::MAX,
            cached_blocks: self.cached_blocks(slot),
            pending_tokens: 0,
            context_tokens: 2_000 * self.in_flight(slot),
            signals: self.signals(slot),
            speed: self.speed(slot),
        }
    }
}

pub(crate) fn candidate(index: usize) -> Candidate {
    Candidate {
        slot: ReplicaSlot(index as u32),
        identity: (index as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93),
        weight: 1,
        ramp_permille: RAMP_FULL,
        in_flight_max: 100,
    }
}

pub(crate) fn inquiry(now: Instant) -> Inquiry {
    Inquiry {
        model: Some(ModelName::from("m")),
        prefix: BlockHashes::new((0..u64::from(PROMPT_BYTES / 256)).collect()),
        prompt_bytes: PROMPT_BYTES,
        output_tokens_max: Some(300),
        output_tokens: None,
        whole_tokens: None,
        answers: 1,
        affinity: None,
        session: None,
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        deadline: Deadline::after(now, Duration::from_secs(600)),
        hop: 0,
        tenant: None,
        priority: 0,
        residency: Residency::default(),
        is_isolated: false,
    }
}
