//! SGLang's router: the longest match, unless loads differ much.

use std::collections::BTreeMap;

use super::rule::{News, Rule};
use super::view::{Choice, View};

/// Rule of `cache_aware` in SGLang's router (sgl-project/sglang, `sgl-router/src/policies/
/// cache_aware.rs`).
///
/// Loads are unbalanced if the greatest exceeds the least by more than `balance_abs` requests and
/// by more than the factor `balance_rel`: then the least load decides. Otherwise the longest match
/// decides if it is more than `match_min` of the prompt, and the smallest tree if not. The size of
/// a tree is the text that was sent to a replica and not known there; trees are not shrunk here,
/// since the router's own limit of 2^24 to 2^26 characters is not reached in a run. Of several
/// replicas with the longest match the router takes any; here it is the least loaded one.
#[derive(Debug)]
pub(super) struct SgLang {
    match_min: f64,
    balance_abs: u32,
    balance_rel: f64,
    /// Blocks in each replica's tree.
    trees: Vec<u64>,
    /// Blocks that each request adds to its replica's tree, until it is sent.
    adds: BTreeMap<usize, u64>,
}

impl SgLang {
    /// Returns the rule with the constants of the router's Python launcher.
    pub(super) fn first(replicas: usize) -> Self {
        Self::new(replicas, 0.5, 32, 1.0001)
    }

    /// Returns the rule with the constants of later releases and of the vLLM router: `0.3`, `64`,
    /// `1.5`.
    pub(super) fn second(replicas: usize) -> Self {
        Self::new(replicas, 0.3, 64, 1.5)
    }

    fn new(replicas: usize, match_min: f64, balance_abs: u32, balance_rel: f64) -> Self {
        let (trees, adds) = (vec![0; replicas], BTreeMap::new());
        Self { match_min, balance_abs, balance_rel, trees, adds }
    }

    fn is_unbalanced(&self, view: &View<'_>) -> bool {
        let most = view.open().map(|replica| view.load(replica)).max().unwrap_or(0);
        let fewest = view.open().map(|replica| view.load(replica)).min().unwrap_or(0);
        most - fewest > self.balance_abs && f64::from(most) > self.balance_rel * f64::from(fewest)
    }

    fn pick(&self, view: &View<'_>) -> Option<usize> {
        if self.is_unbalanced(view) {
            return view.least_loaded();
        }
        let holders = view.holders();
        let load = |replica| f64::from(view.load(replica));
        let matched = view.cheapest(holders.into_iter(), load);
        matched
            .filter(|&replica| view.match_share(replica) > self.match_min)
            .or_else(|| view.cheapest(view.open(), |replica| self.trees[replica] as f64))
    }
}

impl Rule for SgLang {
    fn choose(&mut self, view: &View<'_>, _rng: &mut fastrand::Rng) -> Choice {
        let Some(replica) = self.pick(view) else { return Choice::Stay };
        let added = view.chain().len() as u64 - u64::from(view.cached[replica]);
        self.adds.insert(view.ask.number, added);
        Choice::Replica(replica)
    }

    fn note(&mut self, news: &News<'_>) {
        if let News::Sent(sent) = news {
            self.trees[sent.replica] += self.adds.remove(&sent.request).unwrap_or(0);
        }
    }
}
