//! Sample of a large group: the candidates that a decision weighs in place of all.

use std::ops::{ControlFlow, RangeInclusive};

use crate::Candidate;
use crate::field::Field;
use crate::rendezvous::mix;

/// Runs of neighbours that a key draws, and candidates in each. More runs spread a sample better.
/// Longer ones change it less when a candidate comes or goes: that shifts the beginnings of runs by
/// one at most, so that seven of eight candidates stay.
const RUNS: u64 = 8;
const RUN: usize = 8;

/// Order of a group from which samples are drawn without a look at each candidate.
///
/// It is the order of identities, which is random, and the same on every node.
#[derive(Debug)]
pub(super) struct Sample {
    /// Indexes of the candidates, by identity.
    by_identity: Box<[u32]>,
    /// True if the candidates are in the order of their slots, so that a slot is soon found.
    is_by_slot: bool,
}

impl Sample {
    /// Prepares to draw from these candidates.
    pub(super) fn of(candidates: &[Candidate]) -> Self {
        let mut by_identity: Box<[u32]> = (0..candidates.len() as u32).collect();
        by_identity.sort_unstable_by_key(|&index| (candidates[index as usize].identity, index));
        Self { by_identity, is_by_slot: candidates.is_sorted_by_key(|one| one.slot) }
    }

    /// Returns the indexes of about 64 candidates that `key` draws, each with the same probability;
    /// an index may come twice.
    pub(super) fn draw(&self, key: u64) -> impl Iterator<Item = usize> {
        let len = self.by_identity.len();
        (0..RUNS).flat_map(move |run| {
            // The high bits of the product are a number below `len`.
            let start = ((u128::from(mix(key, run)) * len as u128) >> u64::BITS) as usize;
            (start..start + RUN).map(move |place| {
                let place = if place < len { place } else { place - len };
                self.by_identity[place] as usize
            })
        })
    }

    /// Returns the index of the candidate with this identity.
    pub(super) fn of_identity(&self, field: &Field<'_>, identity: u64) -> Option<usize> {
        let identity_at = |&index: &u32| field.identity(index as usize);
        let place = self.by_identity.binary_search_by_key(&identity, identity_at).ok()?;
        Some(self.by_identity[place] as usize)
    }

    /// Calls `visit` with the index of each candidate that has so many blocks of the prompt cached,
    /// until it breaks. The range lies above 0.
    pub(super) fn visit_cached(
        &self,
        field: &Field<'_>,
        blocks: RangeInclusive<u32>,
        mut visit: impl FnMut(usize) -> ControlFlow<()>,
    ) {
        let is_told = self.is_by_slot && field.visit_cached(blocks.clone(), &mut visit);
        if is_told {
            return;
        }
        // These loads can't visit by cached blocks, so each candidate is looked at.
        for index in 0..field.len() {
            if blocks.contains(&field.cached_blocks_at(index)) && visit(index).is_break() {
                return;
            }
        }
    }
}
