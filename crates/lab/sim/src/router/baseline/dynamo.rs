//! NVIDIA Dynamo's KV router: blocks to read plus blocks in use.

use std::collections::BTreeMap;

use super::ledger::Ledger;
use super::rule::{News, Rule};
use super::view::{Choice, View};
use crate::text::BLOCK_TOKENS;

/// Rule of Dynamo's default selector (ai-dynamo/dynamo, `lib/kv-router/src/scheduling/selector/
/// default.rs`) with its default constants: overlap credit 1 without decay, prefill load scale 1,
/// weight of active requests 0, temperature 0.
///
/// The cost of a worker is the blocks of prompts that it still has to read, with this one less what
/// is cached, plus the blocks that its active requests would hold with this one; a block that
/// several requests hold counts once. The blocks of replies are not counted as held, as by default.
/// Each request of another node counts as one of this node's mean size.
#[derive(Debug)]
pub(super) struct Dynamo {
    ledger: Ledger,
    /// Requests at each replica that hold a block.
    held: Vec<BTreeMap<u64, u32>>,
}

impl Dynamo {
    pub(super) fn new(replicas: usize) -> Self {
        Self { ledger: Ledger::default(), held: vec![BTreeMap::new(); replicas] }
    }

    /// Returns the cheapest of some replicas.
    pub(super) fn among(
        &self,
        view: &View<'_>,
        replicas: impl Iterator<Item = usize>,
    ) -> Option<usize> {
        let cost = |replica: usize| {
            let prefill = view.pending_tokens(replica) + view.uncached_tokens(replica);
            let decode = self.held_with(replica, view.chain()) as f64 + self.others(view, replica);
            f64::from(prefill) / f64::from(BLOCK_TOKENS) + decode
        };
        view.cheapest(replicas, cost)
    }

    /// Returns the blocks that active requests hold at a replica.
    pub(super) fn held(&self, view: &View<'_>, replica: usize) -> f64 {
        self.held[replica].len() as f64 + self.others(view, replica)
    }

    /// Returns the blocks that requests of other nodes hold at a replica, by this node's mean.
    fn others(&self, view: &View<'_>, replica: usize) -> f64 {
        f64::from(view.sight.replicas[replica].elsewhere) * self.mean_blocks()
    }

    fn held_with(&self, replica: usize, chain: &[u64]) -> usize {
        let held = &self.held[replica];
        held.len() + chain.iter().filter(|block| !held.contains_key(block)).count()
    }

    fn mean_blocks(&self) -> f64 {
        let blocks: usize = self.held.iter().map(BTreeMap::len).sum();
        blocks as f64 / self.ledger.len().max(1) as f64
    }
}

impl Rule for Dynamo {
    fn choose(&mut self, view: &View<'_>, _rng: &mut fastrand::Rng) -> Choice {
        self.among(view, view.open()).map_or(Choice::Stay, Choice::Replica)
    }

    fn note(&mut self, news: &News<'_>) {
        let (came, went) = self.ledger.note(news);
        if let Some(entry) = came {
            let held = &mut self.held[entry.replica];
            entry.chain.iter().for_each(|block| *held.entry(*block).or_insert(0) += 1);
        }
        if let Some(entry) = went {
            let held = &mut self.held[entry.replica];
            for block in entry.chain {
                if let Some(count) = held.get_mut(&block) {
                    *count -= 1;
                    if *count == 0 {
                        held.remove(&block);
                    }
                }
            }
        }
    }
}
