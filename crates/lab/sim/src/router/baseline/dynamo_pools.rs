//! NVIDIA Dynamo's global router: the cost of its KV router, for whole pools.

use std::collections::VecDeque;
use std::sync::Arc;

use super::dynamo::Dynamo;
use super::forwards::Forwards;
use super::rule::{News, Rule};
use super::view::{Choice, View};
use crate::router::{NodePosition, RemoteRegion};
use crate::text::BLOCK_TOKENS;

/// Rule of the global router of Dynamo (ai-dynamo/dynamo, `lib/llm/src/global_view/
/// credit_selection.rs`), which no release has: the pool with the least sum of the blocks of prompts
/// that all its workers still have to read, with this one less what is cached anywhere in the pool,
/// and of the blocks that their active requests hold. The network's time is not in the cost. In the
/// pool the KV router decides. A pool is a region here.
///
/// Requests that were sent to a pool since its report count as work, with their whole prompts. In
/// the original code, summaries of all caches travel between the regions. Here only the central
/// router has them, because it knows all replicas. A router in each region knows another region's
/// caches only from what it sent there. It knows that region's work from reports: the share of KV
/// in use, and the tokens to be read at the least busy replica. It counts its own region by the
/// same measures.
#[derive(Debug)]
pub(super) struct DynamoPools {
    inner: Dynamo,
    /// Region of each own replica.
    homes: Arc<[usize]>,
    is_central: bool,
    kv_blocks: f64,
    forwards: Forwards,
    /// Requests that were sent to other regions: moment in milliseconds, region and blocks.
    bookings: VecDeque<(u64, usize, usize)>,
}

/// Milliseconds after which every report knows of a request, or is lost.
const BOOKED_MS: u64 = 10_000;

impl DynamoPools {
    /// Returns the rule of a node whose replicas hold so many tokens each.
    pub(super) fn new(position: &NodePosition, kv_tokens: f32) -> Self {
        Self {
            inner: Dynamo::new(position.replicas),
            homes: Arc::clone(&position.homes),
            is_central: position.is_central,
            kv_blocks: f64::from(kv_tokens) / f64::from(BLOCK_TOKENS),
            forwards: Forwards::new(position.regions),
            bookings: VecDeque::new(),
        }
    }

    /// Returns the open replica that the KV router takes in the cheapest pool.
    fn central(&self, view: &View<'_>) -> Option<usize> {
        let of = |pool: usize| view.open().filter(move |&replica| self.homes[replica] == pool);
        let cost = |pool: usize| {
            let tokens: f64 = of(pool).map(|one| f64::from(view.pending_tokens(one))).sum();
            let held: f64 = of(pool).map(|one| self.inner.held(view, one)).sum();
            let cached = of(pool).map(|one| view.cached[one]).max().unwrap_or(0);
            cost(view, tokens, held, cached)
        };
        let mut pools: Vec<usize> = view.open().map(|replica| self.homes[replica]).collect();
        pools.dedup();
        let pool = pools.into_iter().min_by(|&a, &b| cost(a).total_cmp(&cost(b)))?;
        self.inner.among(view, of(pool))
    }

    /// Returns the cost of the own pool, with the knowledge that other regions would have of it.
    fn own_cost(&self, view: &View<'_>) -> f64 {
        let count = view.open().count() as f64;
        let least = view.open().map(|replica| view.pending_tokens(replica)).min().unwrap_or(0);
        let held = view.open().map(|replica| {
            let sight = &view.sight.replicas[replica];
            let since = sight.started.saturating_sub(sight.signals.started_at) as f64;
            f64::from(sight.signals.kv_use.value) * self.kv_blocks
                + since * view.chain().len() as f64
        });
        let cached = view.open().map(|replica| view.cached[replica]).max().unwrap_or(0);
        cost(view, f64::from(least) * count, held.sum(), cached)
    }

    fn other_cost(&self, view: &View<'_>, other: &RemoteRegion) -> Option<f64> {
        let report = other.report.filter(|_| other.replicas > 0)?;
        let count = f64::from(other.replicas);
        // A request that is in transit when a report is made is not in it.
        let age_ms = f64::from(report.age_ms) + f64::from(other.rtt_ms) / 2.0;
        let is_new = |at_ms: u64| ((view.sight.now_ms - at_ms) as f64) <= age_ms;
        let booked = self.bookings.iter().filter(|one| one.1 == other.region && is_new(one.0));
        let booked: f64 = booked.map(|one| one.2 as f64).sum();
        let least = f64::from(report.load.pending_tokens.unwrap_or(0.0));
        let tokens = least * count + booked * f64::from(BLOCK_TOKENS);
        let held = f64::from(other.kv_use) * self.kv_blocks * count + booked;
        Some(cost(view, tokens, held, self.forwards.blocks(other.region)))
    }

    /// Returns the region that is cheaper than the own one and all others, if there is one.
    fn cheaper_region(&self, view: &View<'_>) -> Option<usize> {
        let costs = view
            .regions()
            .iter()
            .filter_map(|other| Some((other.region, self.other_cost(view, other)?)));
        let (region, least) = costs.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        (least < self.own_cost(view)).then_some(region)
    }
}

/// Returns the cost of a pool in blocks.
fn cost(view: &View<'_>, pending_tokens: f64, held_blocks: f64, cached_blocks: u32) -> f64 {
    let prompt = f64::from(view.ask.prompt_tokens) / f64::from(BLOCK_TOKENS);
    let read = pending_tokens / f64::from(BLOCK_TOKENS) + prompt - f64::from(cached_blocks);
    read.max(0.0) + held_blocks + prompt
}

impl Rule for DynamoPools {
    fn choose(&mut self, view: &View<'_>, _rng: &mut fastrand::Rng) -> Choice {
        if self.is_central {
            return self.central(view).map_or(Choice::Stay, Choice::Replica);
        }
        self.forwards.look_up(view.chain());
        let now_ms = view.sight.now_ms;
        while self.bookings.pop_front_if(|one| one.0 + BOOKED_MS < now_ms).is_some() {}
        if let Some(region) = self.cheaper_region(view) {
            self.forwards.send(view.ask.number, region, view.chain());
            self.bookings.push_back((now_ms, region, view.chain().len()));
            return Choice::Region(region);
        }
        self.inner.among(view, view.open()).map_or(Choice::Stay, Choice::Replica)
    }

    fn note(&mut self, news: &News<'_>) {
        self.inner.note(news);
        self.forwards.note(news);
    }
}
