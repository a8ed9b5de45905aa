//! GORGO: network, prompt and queue in one unit.

use super::forwards::Forwards;
use super::ledger::Ledger;
use super::rates::Rates;
use super::rule::{News, Rule};
use super::view::{Choice, View};
use crate::router::{NodePosition, RemoteRegion};
use crate::text::BLOCK_TOKENS;

/// Requests at the own replica from which on other regions are considered, as in the code.
const REQUESTS_BEFORE: u32 = 5;

/// Weights of the network and of the requests before, where one of the prompt to read is 1: those
/// that the authors' search found for the central proxy (`W_rtt`, `W_queue` of the third version).
const CENTRAL_WEIGHTS: (f64, f64) = (0.276, 0.5);

/// Weights of the first version, in which regions decide.
const LOCAL_WEIGHTS: (f64, f64) = (1.0, 1.0);

/// Rule of GORGO (arXiv 2602.11688; atoniolo76/GORGO, `gorgo/policy/gorgo.py`, `route_gorgo_2d`):
/// the least weighted sum of the network's milliseconds, the milliseconds of reading what is not
/// cached, and those of reading the prompts of requests before.
///
/// The central proxy counts the whole prompts of all requests that are not complete. In its first
/// version, without a center, a node compares its own best replica with other regions once five
/// requests are there. A region costs the network and what this node never sent there of the
/// prompt; its load is not in the cost, but it must have a replica at which nothing waits. A region
/// without any of the prompt is considered only if none has some. There requests count until their
/// reply begins, which is an option of the code (`load_release_at_ttft`): if they count to its end,
/// a region costs less than any own replica with five requests, and four in five requests leave.
#[derive(Debug)]
pub(super) struct Gorgo {
    is_central: bool,
    rates: Rates,
    ledger: Ledger,
    /// Prompt tokens of the requests at each replica.
    tokens: Vec<u64>,
    forwards: Forwards,
}

impl Gorgo {
    pub(super) fn new(position: &NodePosition) -> Self {
        Self {
            is_central: position.is_central,
            rates: Rates::default(),
            ledger: Ledger::default(),
            tokens: vec![0; position.replicas],
            forwards: Forwards::new(position.regions),
        }
    }

    /// Returns the milliseconds that a request would cost at an own replica.
    fn cost_ms(&self, view: &View<'_>, replica: usize) -> f64 {
        let sight = &view.sight.replicas[replica];
        let (network, queue, before) = if self.is_central {
            // Work of other nodes is known as tokens that still have to be read.
            let before = self.tokens[replica] as f64 + f64::from(sight.pending_elsewhere);
            (CENTRAL_WEIGHTS.0, CENTRAL_WEIGHTS.1, before)
        } else {
            (LOCAL_WEIGHTS.0, LOCAL_WEIGHTS.1, f64::from(view.pending_tokens(replica)))
        };
        let tokens = f64::from(view.uncached_tokens(replica)) + queue * before;
        network * f64::from(sight.rtt_ms) + tokens * self.rates.prefill_ms()
    }

    /// Returns the cheapest region with its cost in milliseconds.
    fn cheapest_region(&self, view: &View<'_>) -> Option<(usize, f64)> {
        let is_open = |other: &&RemoteRegion| other.available > 0;
        let knows_some = |other: &RemoteRegion| self.forwards.blocks(other.region) > 0;
        let is_one_known = view.regions().iter().filter(is_open).any(knows_some);
        let cost_ms = |other: &RemoteRegion| {
            let cached = self.forwards.blocks(other.region) * BLOCK_TOKENS;
            let rest = view.ask.prompt_tokens.saturating_sub(cached);
            f64::from(other.rtt_ms) + f64::from(rest) * self.rates.prefill_ms()
        };
        let considered = view.regions().iter().filter(is_open);
        let considered = considered.filter(|other| !is_one_known || knows_some(other));
        let costs = considered.map(|other| (other.region, cost_ms(other)));
        costs.min_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

impl Rule for Gorgo {
    fn choose(&mut self, view: &View<'_>, _rng: &mut fastrand::Rng) -> Choice {
        let own = view.cheapest(view.open(), |replica| self.cost_ms(view, replica));
        let Some(replica) = own else { return Choice::Stay };
        if view.load(replica) < REQUESTS_BEFORE || view.regions().is_empty() {
            return Choice::Replica(replica);
        }
        self.forwards.look_up(view.chain());
        let own_ms = self.cost_ms(view, replica);
        match self.cheapest_region(view).filter(|(_, cost_ms)| *cost_ms < own_ms) {
            Some((region, _)) => {
                self.forwards.send(view.ask.number, region, view.chain());
                Choice::Region(region)
            }
            None => Choice::Replica(replica),
        }
    }

    fn note(&mut self, news: &News<'_>) {
        self.rates.note(news);
        self.forwards.note(news);
        let tokens = |chain: &[u64]| chain.len() as u64 * u64::from(BLOCK_TOKENS);
        let (came, went) = self.ledger.note(news);
        if let Some(entry) = came {
            self.tokens[entry.replica] += tokens(&entry.chain);
        }
        if let Some(entry) = went {
            self.tokens[entry.replica] -= tokens(&entry.chain);
        }
    }
}
