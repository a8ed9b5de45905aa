//! SkyWalker: requests are pushed only to where nothing waits, and kept otherwise.

use super::forwards::Forwards;
use super::ring::Ring;
use super::rule::{News, Rule};
use super::view::{Choice, View, share};
use crate::router::{NodePosition, RemoteRegion};

/// Part of a prompt that has to match for the tree to decide: `cache_threshold` of the code.
const MATCH_MIN: f64 = 0.5;

/// Rule of SkyWalker (Xia et al., "SkyWalker: A Locality-Aware Cross-Region Load Balancer for LLM
/// Inference", EuroSys 2026, arXiv 2505.24095; code in skypilot-org/skypilot, branch
/// `serve-multi-region-lb`, `sky/serve/load_balancer.py` and `load_balancing_policies.py`).
///
/// Available are the own replicas at which nothing waits by the last probe. If there are none, the
/// other regions are considered that have such a replica, and whose queue is no longer than the own
/// one, with this request, and than `waiting_max` (tau in the paper, which gives no value; the code
/// has 10). Queues are those of balancers; what waits in engines does not count there. A request for which nothing is
/// available is kept, first come, first served. Guests are not sent on.
///
/// Among the available ones the longest match decides if it is more than half of the prompt, and
/// otherwise the fewest requests. Of other regions only this node's own forwards are known. The
/// code descends its tree only as long as some available target has the text, which finds the same.
#[derive(Debug)]
pub(super) struct SkyWalker {
    way: Way,
    waiting_max: u32,
    forwards: Forwards,
}

/// Ways of choosing among the available targets.
#[derive(Debug)]
enum Way {
    /// Prefix trees.
    Tree,
    /// Consistent hashing of the session, over the own replicas and over the regions.
    Hash { replicas: Ring, regions: Ring },
}

impl SkyWalker {
    /// Returns the rule that follows matches.
    pub(super) fn tree(position: &NodePosition, waiting_max: u32) -> Self {
        Self { way: Way::Tree, waiting_max, forwards: Forwards::new(position.regions) }
    }

    /// Returns the rule that follows sessions: SkyWalker-CH.
    pub(super) fn hash(position: &NodePosition, waiting_max: u32) -> Self {
        let (replicas, regions) = (Ring::new(position.replicas), Ring::new(position.regions));
        let way = Way::Hash { replicas, regions };
        Self { way, waiting_max, forwards: Forwards::new(position.regions) }
    }

    fn replica(&self, view: &View<'_>, available: &[usize]) -> Option<usize> {
        if let Way::Hash { replicas, .. } = &self.way {
            return replicas.next(view.key(), |replica| available.contains(&replica));
        }
        let load = |replica| f64::from(view.load(replica));
        let most = available.iter().map(|&replica| view.cached[replica]).max()?;
        let is_match = share(most, view.chain().len()) > MATCH_MIN;
        let matching = |replica: &usize| !is_match || view.cached[*replica] == most;
        view.cheapest(available.iter().copied().filter(matching), load)
    }

    fn region(&self, view: &View<'_>, available: &[&RemoteRegion]) -> Option<usize> {
        let is_available = |region| available.iter().any(|other| other.region == region);
        if let Way::Hash { regions, .. } = &self.way {
            return regions.next(view.key(), is_available);
        }
        let blocks = |other: &RemoteRegion| self.forwards.blocks(other.region);
        let most = available.iter().map(|other| blocks(other)).max()?;
        let is_match = share(most, view.chain().len()) > MATCH_MIN;
        let matching = available.iter().filter(|other| !is_match || blocks(other) == most);
        matching.map(|other| other.region).min_by_key(|&region| self.forwards.count(region))
    }
}

impl Rule for SkyWalker {
    fn choose(&mut self, view: &View<'_>, _rng: &mut fastrand::Rng) -> Choice {
        let waits = |replica: usize| view.sight.replicas[replica].signals.queued.value > 0.0;
        let available: Vec<usize> = view.open().filter(|&replica| !waits(replica)).collect();
        if let Some(replica) = self.replica(view, &available) {
            return Choice::Replica(replica);
        }
        let own = view.sight.queue.len() + usize::from(view.ask.ticket.is_none());
        let waiting_max = self.waiting_max.min(u32::try_from(own).unwrap_or(u32::MAX));
        let is_available =
            |other: &&RemoteRegion| other.available > 0 && other.waiting <= waiting_max;
        let available: Vec<_> = view.regions().iter().filter(is_available).collect();
        self.forwards.look_up(view.chain());
        let Some(region) = self.region(view, &available) else { return Choice::Stay };
        self.forwards.send(view.ask.number, region, view.chain());
        Choice::Region(region)
    }

    fn note(&mut self, news: &News<'_>) {
        self.forwards.note(news);
    }
}
