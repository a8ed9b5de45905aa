//! Preble: exploit a long match, or explore the cheapest replica.

use std::collections::{BTreeMap, VecDeque};

use super::rates::Rates;
use super::rule::{News, Rule};
use super::view::{Choice, View};

/// Milliseconds of history that make up the load, as in the paper and the code.
const WINDOW_MS: u64 = 180_000;

/// Load by which the heaviest replica may exceed the lightest: `HIGH_LOAD_THRESHOLD` of the code.
const HEAVY: f64 = 1.5;

/// Requests at all replicas together before loads are levelled, as in the code.
const REQUESTS_BEFORE: usize = 50;

/// Tokens of a reply before one was seen: the default of the code.
const REPLY_TOKENS: f64 = 45.0;

/// Rule E2 of Preble (Srivatsa et al., "Preble: Efficient Distributed Prompt Scheduling for LLM
/// Serving", ICLR 2025, arXiv 2407.00023; WukLab/preble, `global_scheduler_with_time.py`).
///
/// If more of the prompt is cached somewhere than would be left to read, one of the replicas that
/// have it is taken (exploit); if not, any replica (explore). The least cost decides among several:
/// the time that the replica read prompts for in the last three minutes, the time that its active
/// requests will decode for, and the time to read the rest of this prompt. If the exploited replica
/// has more than 1.5 times the cost of the lightest one, the lightest gets the request, and with it
/// a copy of the prefix. The cost of evicting others' blocks is left out, as in the code by default
/// (`enable_eviction=False`).
#[derive(Debug)]
pub(super) struct Preble {
    rates: Rates,
    /// Prompts that each replica read: moment in milliseconds, and tokens.
    windows: Vec<VecDeque<(u64, u32)>>,
    /// Tokens that each window has together.
    read_tokens: Vec<u64>,
    /// Tokens that each request has its replica read, until it is sent.
    reads: BTreeMap<usize, u32>,
    requests: usize,
}

impl Preble {
    pub(super) fn new(replicas: usize) -> Self {
        Self {
            rates: Rates::default(),
            windows: vec![VecDeque::new(); replicas],
            read_tokens: vec![0; replicas],
            reads: BTreeMap::new(),
            requests: 0,
        }
    }

    fn forget(&mut self, now_ms: u64) {
        for (window, tokens) in self.windows.iter_mut().zip(&mut self.read_tokens) {
            while let Some((_, read)) = window.pop_front_if(|(at, _)| *at + WINDOW_MS < now_ms) {
                *tokens -= u64::from(read);
            }
        }
    }

    /// Returns the milliseconds of work that a replica has.
    fn load_ms(&self, view: &View<'_>, replica: usize) -> f64 {
        let decode_ms = self.rates.reply_tokens(REPLY_TOKENS) * self.rates.token_ms();
        let read_ms = self.read_tokens[replica] as f64 * self.rates.prefill_ms();
        read_ms + f64::from(view.load(replica)) * decode_ms
    }

    fn pick(&self, view: &View<'_>) -> Option<usize> {
        let load = |replica| self.load_ms(view, replica);
        let prefill_ms = self.rates.prefill_ms();
        let cost = |replica| load(replica) + f64::from(view.uncached_tokens(replica)) * prefill_ms;
        let is_worth_it = |replica| view.cached_tokens(replica) > view.uncached_tokens(replica);
        let holders = view.holders().into_iter().filter(|&replica| is_worth_it(replica));
        let Some(exploited) = view.cheapest(holders, load) else {
            return view.cheapest(view.open(), cost);
        };
        let lightest = view.cheapest(view.open(), load)?;
        let is_due = self.requests >= REQUESTS_BEFORE;
        let is_heavy = load(exploited) > HEAVY * load(lightest);
        Some(if is_due && is_heavy { lightest } else { exploited })
    }
}

impl Rule for Preble {
    fn choose(&mut self, view: &View<'_>, _rng: &mut fastrand::Rng) -> Choice {
        self.forget(view.sight.now_ms);
        let Some(replica) = self.pick(view) else { return Choice::Stay };
        self.reads.insert(view.ask.number, view.uncached_tokens(replica));
        Choice::Replica(replica)
    }

    fn note(&mut self, news: &News<'_>) {
        self.rates.note(news);
        if let News::Sent(sent) = news {
            let read = self.reads.remove(&sent.request).unwrap_or(0);
            self.windows[sent.replica].push_back((sent.now_ms, read));
            self.read_tokens[sent.replica] += u64::from(read);
            self.requests += 1;
        }
    }
}
