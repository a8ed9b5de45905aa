//! Rules without any knowledge of prompts: chance, turns, and the least load.

use super::rule::Rule;
use super::view::{Choice, View};

/// Rule that draws a replica.
#[derive(Debug)]
pub(super) struct Random;

impl Rule for Random {
    fn choose(&mut self, view: &View<'_>, rng: &mut fastrand::Rng) -> Choice {
        let open: Vec<usize> = view.open().collect();
        rng.choice(open).map_or(Choice::Stay, Choice::Replica)
    }
}

/// Rule that takes one replica after the other.
#[derive(Debug)]
pub(super) struct RoundRobin;

impl Rule for RoundRobin {
    fn choose(&mut self, view: &View<'_>, _rng: &mut fastrand::Rng) -> Choice {
        view.cheapest(view.open(), |_| 0.0).map_or(Choice::Stay, Choice::Replica)
    }
}

/// Rule that takes the replica with the fewest requests, by the node's own count and the counts
/// that its neighbours report.
#[derive(Debug)]
pub(super) struct LeastLoad;

impl Rule for LeastLoad {
    fn choose(&mut self, view: &View<'_>, _rng: &mut fastrand::Rng) -> Choice {
        view.least_loaded().map_or(Choice::Stay, Choice::Replica)
    }
}
