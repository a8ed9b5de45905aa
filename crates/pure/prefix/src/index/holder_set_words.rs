//! Words that store sets of replicas, shared by the writer and the readers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::payload::{HolderSet, PayloadForm};

/// Number of words that are allocated together: 32 KiB, four times the largest set.
pub(super) const CHUNK_WORDS: usize = 4_096;
/// Class of the largest set: a bit for each of 65,536 numbers.
pub(super) const CLASS_MAX: u8 = 10;

/// Memory that grows without moving, so that readers keep their addresses.
///
/// A reader may see words that were given to another set during the read. It therefore reads the
/// block's slot again afterwards, and believes the words only if the slot has not changed.
#[derive(Debug)]
pub(super) struct HolderSetWords {
    chunks: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl HolderSetWords {
    pub(super) fn new(chunks_max: usize) -> Self {
        Self { chunks: (0..chunks_max).map(|_| OnceLock::new()).collect() }
    }

    pub(super) fn chunks_max(&self) -> usize {
        self.chunks.len()
    }

    /// Allocates a chunk if it is not allocated yet.
    pub(super) fn open_chunk(&self, chunk: usize) {
        if let Some(place) = self.chunks.get(chunk) {
            place.get_or_init(|| (0..CHUNK_WORDS).map(|_| AtomicU64::new(0)).collect());
        }
    }

    /// Returns the members of a list, or the words of a bit set.
    pub(super) fn read(&self, holder_set: HolderSet) -> HolderSetReading<'_> {
        let words = self.words(holder_set);
        match holder_set.form {
            PayloadForm::List => HolderSetReading::List(words, usize::from(holder_set.count)),
            PayloadForm::Bits => HolderSetReading::Bits(words),
        }
    }

    /// Starts to load the first words of a set.
    pub(super) fn warm(&self, holder_set: HolderSet) {
        if let Some(word) = self.words(holder_set).first() {
            std::hint::black_box(word.load(Ordering::Relaxed));
        }
    }

    fn words(&self, holder_set: HolderSet) -> &[AtomicU64] {
        let (chunk, at) =
            (holder_set.start as usize / CHUNK_WORDS, holder_set.start as usize % CHUNK_WORDS);
        let words = self.chunks.get(chunk).and_then(OnceLock::get).map_or(&[][..], |words| words);
        words.get(at..at + (1 << holder_set.class)).unwrap_or(&[])
    }
}

/// Set of replicas as stored in memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum HolderSetReading<'a> {
    /// Words with this number of members, four to a word.
    List(&'a [AtomicU64], usize),
    /// Words with one bit for each number.
    Bits(&'a [AtomicU64]),
}

impl HolderSetReading<'_> {
    /// Copies the words that hold members.
    pub(super) fn copy_to(self, copy: &mut Vec<u64>) {
        let words = match self {
            Self::List(words, count) => &words[..words.len().min(count.div_ceil(4))],
            Self::Bits(words) => words,
        };
        copy.clear();
        copy.extend(words.iter().map(|word| word.load(Ordering::Acquire)));
    }

    /// Calls `take` for each member.
    pub(super) fn for_each(self, mut take: impl FnMut(u16)) {
        match self {
            Self::List(words, count) => {
                (0..count).filter_map(|at| entry(words, at)).for_each(take);
            }
            Self::Bits(words) => {
                for (word, bits) in (0_u16..).zip(words) {
                    let mut bits = bits.load(Ordering::Acquire);
                    while bits != 0 {
                        take(word * 64 + bits.trailing_zeros() as u16);
                        bits &= bits - 1;
                    }
                }
            }
        }
    }

    /// Adds a member behind the others. The count in the block's slot makes it valid.
    pub(super) fn add(self, holder: u16) {
        match self {
            Self::List(words, count) => set_entry(words, count, holder),
            Self::Bits(words) => {
                let word = &words[usize::from(holder / 64)];
                word.store(word.load(Ordering::Relaxed) | 1 << (holder % 64), Ordering::Release);
            }
        }
    }

    /// Removes a member; in a list, the last member takes its place.
    pub(super) fn remove(self, holder: u16) {
        match self {
            Self::List(words, count) => {
                let place = (0..count).find(|at| entry(words, *at) == Some(holder));
                let last = count.checked_sub(1).and_then(|at| entry(words, at));
                if let (Some(place), Some(last)) = (place, last) {
                    set_entry(words, place, last);
                }
            }
            Self::Bits(words) => {
                let word = &words[usize::from(holder / 64)];
                word.store(word.load(Ordering::Relaxed) & !(1 << (holder % 64)), Ordering::Release);
            }
        }
    }

    /// Removes all members.
    pub(super) fn erase(self) {
        let (Self::List(words, _) | Self::Bits(words)) = self;
        words.iter().for_each(|word| word.store(0, Ordering::Release));
    }
}

fn entry(words: &[AtomicU64], at: usize) -> Option<u16> {
    words.get(at / 4).map(|word| (word.load(Ordering::Acquire) >> (16 * (at % 4))) as u16)
}

fn set_entry(words: &[AtomicU64], at: usize, holder: u16) {
    let (word, shift) = (&words[at / 4], 16 * (at % 4));
    let others = word.load(Ordering::Relaxed) & !(0xFFFF << shift);
    word.store(others | u64::from(holder) << shift, Ordering::Release);
}
