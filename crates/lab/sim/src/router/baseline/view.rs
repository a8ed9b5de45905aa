//! View of a baseline on one request: the targets that may be chosen, and what is known of them.

use crate::router::{Ask, RemoteRegion, WorldView};
use crate::text::BLOCK_TOKENS;

/// Choice of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Send the request to this own replica.
    Replica(usize),
    /// Send the request to this other region.
    Region(usize),
    /// Keep the request in the node's queue.
    Stay,
}

/// Request with all that a rule may know.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) ask: &'a Ask<'a>,
    pub(super) sight: &'a WorldView<'a>,
    /// Leading blocks of the prompt that each own replica is expected to hold.
    pub(super) cached: &'a [u32],
    /// Own replicas that had no room for the request.
    pub(super) tried: &'a [usize],
    /// True if the request may go to another region: it has not been to one.
    pub(super) may_leave: bool,
    /// Own replica whose turn it is among equals.
    pub(super) turn: usize,
}

impl<'a> View<'a> {
    /// Returns the own replicas that are there and have not turned the request away.
    pub(super) fn open(&self) -> impl Iterator<Item = usize> + use<'a> {
        let (tried, replicas) = (self.tried, self.sight.replicas);
        (0..replicas.len())
            .filter(move |replica| !replicas[*replica].is_away && !tried.contains(replica))
    }

    /// Returns the regions that the request may be sent to.
    pub(super) fn regions(&self) -> &'a [RemoteRegion] {
        if self.may_leave { self.sight.others } else { &[] }
    }

    /// Returns the blocks of the prompt, as a chain of hashes.
    pub(super) fn chain(&self) -> &'a [u64] {
        self.ask.inquiry.prefix.as_slice()
    }

    /// Returns the key of the request's session.
    pub(super) fn key(&self) -> u64 {
        self.ask.inquiry.affinity.unwrap_or_default()
    }

    /// Returns the requests that are at a replica: this node's own count, and the counts that the
    /// region's other nodes report.
    pub(super) fn load(&self, replica: usize) -> u32 {
        let sight = &self.sight.replicas[replica];
        sight.in_flight + sight.elsewhere
    }

    /// Returns the prompt tokens that a replica still has to read for earlier requests.
    pub(super) fn pending_tokens(&self, replica: usize) -> u32 {
        let sight = &self.sight.replicas[replica];
        sight.pending_tokens + sight.pending_elsewhere
    }

    /// Returns the tokens of the prompt that a replica is expected to hold.
    pub(super) fn cached_tokens(&self, replica: usize) -> u32 {
        (self.cached[replica] * BLOCK_TOKENS).min(self.ask.prompt_tokens)
    }

    /// Returns the tokens of the prompt that a replica would have to read; at least one, since the
    /// last token is never taken from a cache.
    pub(super) fn uncached_tokens(&self, replica: usize) -> u32 {
        (self.ask.prompt_tokens - self.cached_tokens(replica)).max(1)
    }

    /// Returns the open replicas that hold the most of the prompt, if any holds some of it.
    pub(super) fn holders(&self) -> Vec<usize> {
        let most = self.open().map(|replica| self.cached[replica]).max().unwrap_or(0);
        self.open().filter(|&replica| most > 0 && self.cached[replica] == most).collect()
    }

    /// Returns the part of the prompt's blocks that a replica is expected to hold, 0 to 1.
    pub(super) fn match_share(&self, replica: usize) -> f64 {
        share(self.cached[replica], self.chain().len())
    }

    /// Returns the cheapest of some own replicas. Equals take turns, as with nginx's `least_conn`,
    /// which spreads requests better at low load than drawing one.
    pub(super) fn cheapest(
        &self,
        replicas: impl Iterator<Item = usize>,
        cost: impl Fn(usize) -> f64,
    ) -> Option<usize> {
        let all = self.sight.replicas.len();
        let turn = |replica: usize| (replica + all - self.turn % all) % all;
        let order = |a: &usize, b: &usize| {
            cost(*a).total_cmp(&cost(*b)).then_with(|| turn(*a).cmp(&turn(*b)))
        };
        replicas.min_by(order)
    }

    /// Returns the open replica with the fewest requests.
    pub(super) fn least_loaded(&self) -> Option<usize> {
        self.cheapest(self.open(), |replica| f64::from(self.load(replica)))
    }
}

/// Returns the part that `blocks` are of all blocks of a prompt, 0 to 1.
pub(super) fn share(blocks: u32, all: usize) -> f64 {
    if all == 0 { 0.0 } else { f64::from(blocks) / all as f64 }
}
