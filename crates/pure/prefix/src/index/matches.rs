//! Result of a look-up.

use std::iter;
use std::ops::RangeInclusive;

use spillway_types::Holder;

use super::payload::{HolderSet, PayloadForm};

/// Number of bits of a rank: at most 255 different depths in one look-up.
const RANK_BITS: usize = 8;
const RANK_MAX: u32 = (1 << RANK_BITS) - 1;

/// Number of leading blocks of one prompt at each replica. Create it once and use it for many
/// look-ups.
///
/// Each depth that occurs has a rank. The rank of each replica is spread over eight words; each of
/// them holds one bit of the rank for 64 replicas. A set of a thousand replicas is therefore noted
/// in sixteen steps, and nothing is computed for replicas that no caller asks about.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    ranks: Vec<[u64; RANK_BITS]>,
    /// Depth by rank. The first rank is 1; rank 0 means that a replica holds nothing.
    depths: Vec<u32>,
    /// Bit set of hidden replicas; empty if none is hidden.
    pub(super) hidden: Vec<u64>,
    /// Copy of the set that is being read.
    pub(super) words: Vec<u64>,
}

impl Matches {
    /// Creates an empty result.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of leading blocks at `holder`; 0 if none is known.
    #[must_use]
    pub fn blocks(&self, holder: Holder) -> u32 {
        let Some(word) = self.ranks.get(holder.index() / 64) else { return 0 };
        // Higher planes are zero: ranks do not exceed the number of depths.
        let bits_used = (u32::BITS - (self.depths.len() as u32).leading_zeros()) as usize;
        let bit = |plane: usize| (word[plane] >> (holder.0 % 64) & 1) << plane;
        let rank: u64 = (0..bits_used.min(RANK_BITS)).map(bit).sum();
        rank.checked_sub(1).and_then(|at| self.depths.get(at as usize)).copied().unwrap_or(0)
    }

    /// Returns the number of leading blocks at the replica that holds most of them.
    #[must_use]
    pub fn longest(&self) -> u32 {
        match self.hidden.is_empty() {
            true => self.depths.last().copied().unwrap_or(0),
            false => self.iter().map(|(_, blocks)| blocks).max().unwrap_or(0),
        }
    }

    /// Iterates over the replicas that hold at least one block, by number, with their leading
    /// blocks.
    #[must_use]
    pub fn iter(&self) -> MatchesIter<'_> {
        MatchesIter { matches: self, word: 0, left: self.holders_in(0) }
    }

    /// Iterates over the replicas that hold so many leading blocks, by number. 64 replicas are
    /// compared at a time, so that the others cost next to nothing. The range lies above 0.
    pub fn holders(&self, blocks: RangeInclusive<u32>) -> impl Iterator<Item = Holder> {
        // The ranks of these depths: the first rank is 1.
        let first = self.depths.partition_point(|depth| depth < blocks.start()) as u32 + 1;
        let last = self.depths.partition_point(|depth| depth <= blocks.end()) as u32;
        let words = if first <= last { self.ranks.as_slice() } else { &[] };
        words.iter().enumerate().flat_map(move |(word, planes)| {
            let mut left = at_least(planes, first) & !at_least(planes, last + 1);
            iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(Holder((word * 64) as u16 + bit as u16))
            })
        })
    }

    /// Removes the results; keeps the memory.
    pub fn clear(&mut self) {
        self.ranks.clear();
        self.depths.clear();
        self.hidden.clear();
    }

    /// Prepares for replicas in `words` words of 64 bits.
    pub(super) fn begin(&mut self, words: usize) {
        self.ranks.clear();
        self.depths.clear();
        self.ranks.resize(words, [0; RANK_BITS]);
    }

    /// Notes that `holder` holds `depth` blocks; `depth` must not fall from call to call.
    pub(super) fn note_one(&mut self, depth: u32, holder: u16) {
        let rank = self.rank(depth);
        self.mark(usize::from(holder / 64), 1 << (holder % 64), rank);
    }

    /// Notes that the set of replicas in [`Matches::words`] holds `depth` blocks; `depth` must not
    /// fall from call to call.
    pub(super) fn note_holder_set(&mut self, depth: u32, holder_set: HolderSet) {
        let rank = self.rank(depth);
        let words = std::mem::take(&mut self.words);
        match holder_set.form {
            PayloadForm::List => {
                for at in 0..usize::from(holder_set.count) {
                    let Some(word) = words.get(at / 4) else { break };
                    let holder = (word >> (16 * (at % 4))) as u16;
                    self.mark(usize::from(holder / 64), 1 << (holder % 64), rank);
                }
            }
            PayloadForm::Bits => {
                for (word, bits) in words.iter().enumerate().take(self.ranks.len()) {
                    self.mark(word, *bits, rank);
                }
            }
        }
        self.words = words;
    }

    /// Sets the rank of the replicas whose bits are set in `bits`.
    fn mark(&mut self, word: usize, bits: u64, rank: u32) {
        // Replicas that were flushed keep rank 0.
        let bits = bits & !self.hidden.get(word).copied().unwrap_or(0);
        let Some(planes) = self.ranks.get_mut(word) else { return };
        // Ranks only grow, so no higher bit was ever set.
        let planes_used = (u32::BITS - rank.leading_zeros()) as usize;
        for (plane, planes) in planes.iter_mut().take(planes_used).enumerate() {
            let is_set = 0_u64.wrapping_sub(u64::from(rank >> plane & 1));
            *planes = *planes & !bits | bits & is_set;
        }
    }

    /// Returns the rank of a depth, which must be no less than any before. When all ranks are used,
    /// a deeper one counts as the deepest that has a rank.
    fn rank(&mut self, depth: u32) -> u32 {
        let is_new = self.depths.last() != Some(&depth);
        if is_new && (self.depths.len() as u32) < RANK_MAX {
            self.depths.push(depth);
        }
        self.depths.len() as u32
    }

    fn holders_in(&self, word: usize) -> u64 {
        self.ranks.get(word).map_or(0, |planes| planes.iter().fold(0, |all, plane| all | plane))
    }
}

/// Returns the bits of the replicas of one word that have at least this rank.
fn at_least(planes: &[u64; RANK_BITS], rank: u32) -> u64 {
    if rank > RANK_MAX {
        return 0;
    }
    // From the highest plane on: ranks that are equal so far, and those that are above.
    let (mut equal, mut above) = (u64::MAX, 0);
    for (plane, &bits) in planes.iter().enumerate().rev() {
        if rank >> plane & 1 == 1 {
            equal &= bits;
        } else {
            above |= equal & bits;
            equal &= !bits;
        }
    }
    equal | above
}

impl<'a> IntoIterator for &'a Matches {
    type Item = (Holder, u32);
    type IntoIter = MatchesIter<'a>;

    fn into_iter(self) -> MatchesIter<'a> {
        self.iter()
    }
}

/// Iterator over the replicas of [`Matches`].
#[derive(Clone, Debug)]
pub struct MatchesIter<'a> {
    matches: &'a Matches,
    word: usize,
    left: u64,
}

impl Iterator for MatchesIter<'_> {
    type Item = (Holder, u32);

    fn next(&mut self) -> Option<(Holder, u32)> {
        while self.left == 0 {
            self.word += 1;
            if self.word >= self.matches.ranks.len() {
                return None;
            }
            self.left = self.matches.holders_in(self.word);
        }
        let bit = self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        let holder = Holder((self.word * 64 + bit) as u16);
        Some((holder, self.matches.blocks(holder)))
    }
}
