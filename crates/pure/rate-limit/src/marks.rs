//! Marks of limits that requests used, so that a look finds these without going through all.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Scope;

/// Number of words of marks: 8 KiB, a mark for each of 65,536 limits. A look reads all of them.
const WORDS: usize = 1 << 10;

/// A mark for each limit. Requests set marks and never wait; one task takes them.
#[derive(Debug)]
pub(crate) struct Marks {
    words: Box<[AtomicU64]>,
}

/// Place of the mark of a limit. It depends only on the name of the limit, so that a request in
/// flight marks the right one even if limits have changed since it started. Two limits may share a
/// mark: then both are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MarkPosition {
    word: u16,
    bit: u8,
}

/// Numbers of limits by the places of their marks.
#[derive(Debug, Default)]
pub(crate) struct MarkedLimits {
    /// Ordered by place.
    limits: Vec<(MarkPosition, u32)>,
    /// Start of the limits of each word in [`Self::limits`].
    begins: Vec<u32>,
}

impl Default for Marks {
    fn default() -> Self {
        Self { words: (0..WORDS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Marks {
    /// Sets a mark. Call this after the change that the mark announces.
    ///
    /// Changes of meters and these operations are in one order for all threads. So a thread that
    /// finds the mark set changed the meter before the mark is taken, and the look reads the change
    /// after that. Most requests find the mark set, and write nothing.
    pub(crate) fn set(&self, place: MarkPosition) {
        let (word, mark) = (&self.words[usize::from(place.word)], 1 << place.bit);
        if word.load(Ordering::SeqCst) & mark == 0 {
            word.fetch_or(mark, Ordering::SeqCst);
        }
    }

    /// Takes all marks, and calls `each` for the limits that have one.
    pub(crate) fn take(&self, limits: &MarkedLimits, mut each: impl FnMut(usize)) {
        for (word, bounds) in self.words.iter().zip(limits.begins.windows(2)) {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let taken = word.swap(0, Ordering::SeqCst);
            for (place, limit) in &limits.limits[bounds[0] as usize..bounds[1] as usize] {
                if taken >> place.bit & 1 == 1 {
                    each(*limit as usize);
                }
            }
        }
    }
}

impl MarkPosition {
    /// Returns the place of the mark of a limit.
    pub(crate) fn of(scope: &Scope) -> Self {
        let mut hasher = DefaultHasher::new();
        scope.hash(&mut hasher);
        let hash = hasher.finish();
        Self { word: (hash as usize % WORDS) as u16, bit: (hash >> 58) as u8 }
    }
}

impl MarkedLimits {
    /// Numbers limits in the given order.
    pub(crate) fn new<'a>(scopes: impl Iterator<Item = &'a Scope>) -> Self {
        let mut limits: Vec<(MarkPosition, u32)> = scopes.map(MarkPosition::of).zip(0..).collect();
        limits.sort_unstable();
        let begin = |word: usize| limits.partition_point(|(at, _)| usize::from(at.word) < word);
        let begins = (0..=WORDS).map(|word| begin(word) as u32).collect();
        Self { limits, begins }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(marks: &Marks, limits: &MarkedLimits) -> Vec<usize> {
        let mut taken = Vec::new();
        marks.take(limits, |limit| taken.push(limit));
        taken.sort_unstable();
        taken
    }

    #[test]
    fn marks_are_taken_once_also_where_two_limits_share_one() {
        let scopes: Vec<Scope> = (0..3_000).map(|n| Scope::Key(format!("key-{n}"))).collect();
        let (marks, limits) = (Marks::default(), MarkedLimits::new(scopes.iter()));
        for marked in [5, 77, 2_999, 77] {
            marks.set(MarkPosition::of(&scopes[marked]));
        }
        let places: Vec<MarkPosition> = scopes.iter().map(MarkPosition::of).collect();
        let is_marked = |n: &usize| [5, 77, 2_999].iter().any(|it| places[*it] == places[*n]);
        assert_eq!(taken(&marks, &limits), (0..3_000).filter(is_marked).collect::<Vec<_>>());
        assert!(taken(&marks, &limits).is_empty());
        let mut distinct = places.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert!((2_850..3_000).contains(&distinct.len()), "{}", distinct.len());
    }
}
