//! What a look-up found.

use spillway_types::Holder;

use super::payload::{Crowd, Form};

/// Bits of a rank: at most 255 different depths in one look-up.
const RANK_BITS: usize = 8;
const RANK_MAX: u32 = (1 << RANK_BITS) - 1;

/// How many leading blocks of one prompt each replica holds. Made once and used for many look-ups.
///
/// Each depth that occurs has a rank, and the rank of each replica is written across eight words
/// that hold one bit of it for 64 replicas each. So a set of a thousand replicas is noted in
/// sixteen steps, and none of them costs anything that nobody asks for.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    ranks: Vec<[u64; RANK_BITS]>,
    /// Depth by rank; the first rank is 1, for 0 is that of replicas that hold nothing.
    depths: Vec<u32>,
    /// Replicas that do not count, if there are any.
    pub(super) hidden: Vec<u64>,
    /// A set that is being read.
    pub(super) words: Vec<u64>,
}

impl Matches {
    /// Nothing found yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Leading blocks at `holder`; 0 if none are known.
    #[must_use]
    pub fn blocks(&self, holder: Holder) -> u32 {
        let Some(word) = self.ranks.get(holder.index() / 64) else { return 0 };
        let bits_used = (u32::BITS - (self.depths.len() as u32).leading_zeros()) as usize;
        let bit = |plane: usize| (word[plane] >> (holder.0 % 64) & 1) << plane;
        let rank: u64 = (0..bits_used.min(RANK_BITS)).map(bit).sum();
        rank.checked_sub(1).and_then(|at| self.depths.get(at as usize)).copied().unwrap_or(0)
    }

    /// Leading blocks at the replica that holds most of them.
    #[must_use]
    pub fn longest(&self) -> u32 {
        match self.hidden.is_empty() {
            true => self.depths.last().copied().unwrap_or(0),
            false => self.iter().map(|(_, blocks)| blocks).max().unwrap_or(0),
        }
    }

    /// Each replica that holds any, by its number, with its leading blocks.
    #[must_use]
    pub fn iter(&self) -> MatchesIter<'_> {
        MatchesIter { matches: self, word: 0, left: self.holders_in(0) }
    }

    /// Forgets what was found; keeps the memory.
    pub fn clear(&mut self) {
        self.ranks.clear();
        self.depths.clear();
        self.hidden.clear();
    }

    /// Makes room for numbers in so many words of 64.
    pub(super) fn begin(&mut self, words: usize) {
        self.ranks.clear();
        self.depths.clear();
        self.ranks.resize(words, [0; RANK_BITS]);
    }

    /// Notes that `holder` holds `depth` blocks, no less than what was noted before.
    pub(super) fn note_one(&mut self, depth: u32, holder: u16) {
        let rank = self.rank(depth);
        self.mark(usize::from(holder / 64), 1 << (holder % 64), rank);
    }

    /// Notes that a set of replicas, written in [`Matches::words`], holds `depth` blocks, no less
    /// than what was noted before.
    pub(super) fn note_crowd(&mut self, depth: u32, crowd: Crowd) {
        let rank = self.rank(depth);
        let words = std::mem::take(&mut self.words);
        match crowd.form {
            Form::List => {
                for at in 0..usize::from(crowd.count) {
                    let Some(word) = words.get(at / 4) else { break };
                    let holder = (word >> (16 * (at % 4))) as u16;
                    self.mark(usize::from(holder / 64), 1 << (holder % 64), rank);
                }
            }
            Form::Bits => {
                for (word, bits) in words.iter().enumerate().take(self.ranks.len()) {
                    self.mark(word, *bits, rank);
                }
            }
        }
        self.words = words;
    }

    /// Writes a rank for the replicas of some bits of a word.
    fn mark(&mut self, word: usize, bits: u64, rank: u32) {
        let bits = bits & !self.hidden.get(word).copied().unwrap_or(0);
        let Some(planes) = self.ranks.get_mut(word) else { return };
        // Ranks only grow: no higher bit was ever set.
        let planes_used = (u32::BITS - rank.leading_zeros()) as usize;
        for (plane, planes) in planes.iter_mut().take(planes_used).enumerate() {
            let is_set = 0_u64.wrapping_sub(u64::from(rank >> plane & 1));
            *planes = *planes & !bits | bits & is_set;
        }
    }

    /// The rank of a depth, which is no less than any before. When all ranks are used, what is
    /// deeper counts as the deepest that has one.
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

impl<'a> IntoIterator for &'a Matches {
    type Item = (Holder, u32);
    type IntoIter = MatchesIter<'a>;

    fn into_iter(self) -> MatchesIter<'a> {
        self.iter()
    }
}

/// Goes through the replicas of [`Matches`].
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
