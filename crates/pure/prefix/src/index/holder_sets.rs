//! Sets of replicas on the writer's side: allocation, form, change.

use std::sync::Arc;

use super::holder_set_words::{CHUNK_WORDS, CLASS_MAX, HolderSetReading, HolderSetWords};
use super::payload::{HolderSet, PayloadForm};

/// Allocator of places for sets of replicas, in powers of two of words.
#[derive(Debug)]
pub(super) struct HolderSets {
    words: Arc<HolderSetWords>,
    /// Starts of free places, by class.
    free: [Vec<u32>; CLASS_MAX as usize + 1],
    chunks_used: usize,
    chunks_open: usize,
}

/// Error: no place is left for a set, or no slot for a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoRoom;

impl HolderSets {
    pub(super) fn new(words: Arc<HolderSetWords>) -> Self {
        Self { words, free: Default::default(), chunks_used: 0, chunks_open: 0 }
    }

    /// Returns the bytes of all words and free lists.
    pub(super) fn bytes(&self) -> usize {
        let lists: usize = self.free.iter().map(|list| list.capacity() * size_of::<u32>()).sum();
        self.chunks_open * CHUNK_WORDS * size_of::<u64>() + lists
    }

    /// Frees all places. The memory stays allocated for later sets.
    pub(super) fn clear(&mut self) {
        self.free.iter_mut().for_each(Vec::clear);
        self.chunks_used = 0;
    }

    /// Creates a set of two replicas.
    pub(super) fn pair(&mut self, holders: [u16; 2], universe: u16) -> Result<HolderSet, NoRoom> {
        let mut holder_set = self.allocate(2, universe)?;
        for holder in holders {
            self.words.read(holder_set).add(holder);
            holder_set.count += 1;
        }
        Ok(holder_set)
    }

    /// Returns the set with one more member. With room left, it stays in its place with a new
    /// count, which the caller writes into the slot. Otherwise it moves to a new place; the caller
    /// frees the old one when no slot refers to it any more.
    pub(super) fn with(
        &mut self,
        holder_set: HolderSet,
        holder: u16,
        universe: u16,
    ) -> Result<HolderSet, NoRoom> {
        let has_room = match holder_set.form {
            PayloadForm::List => usize::from(holder_set.count) < 4 << holder_set.class,
            PayloadForm::Bits => usize::from(holder) < 64 << holder_set.class,
        };
        let mut grown = if has_room {
            holder_set
        } else {
            self.copied(holder_set, holder_set.count + 1, universe)?
        };
        self.words.read(grown).add(holder);
        grown.count += 1;
        Ok(grown)
    }

    /// Returns the set without one of its members, in the same place.
    pub(super) fn without(&self, holder_set: HolderSet, holder: u16) -> HolderSet {
        self.words.read(holder_set).remove(holder);
        HolderSet { count: holder_set.count - 1, ..holder_set }
    }

    /// Returns a copy in less memory if the set takes at least four times what it needs; `None`
    /// otherwise.
    pub(super) fn shrunk(&mut self, holder_set: HolderSet, universe: u16) -> Option<HolderSet> {
        let (_, class) = best(holder_set.count, universe);
        if class + 2 > holder_set.class {
            return None;
        }
        self.copied(holder_set, holder_set.count, universe).ok()
    }

    pub(super) fn read(&self, holder_set: HolderSet) -> HolderSetReading<'_> {
        self.words.read(holder_set)
    }

    /// Frees a place.
    pub(super) fn free(&mut self, holder_set: HolderSet) {
        self.free[usize::from(holder_set.class)].push(holder_set.start);
    }

    fn copied(
        &mut self,
        holder_set: HolderSet,
        count: u16,
        universe: u16,
    ) -> Result<HolderSet, NoRoom> {
        let mut copy = self.allocate(count, universe)?;
        self.words.read(holder_set).for_each(|holder| {
            self.words.read(copy).add(holder);
            copy.count += 1;
        });
        Ok(copy)
    }

    /// Creates an empty set with room for `count` members, whose numbers are below `universe`.
    fn allocate(&mut self, count: u16, universe: u16) -> Result<HolderSet, NoRoom> {
        let (form, class) = best(count, universe);
        let start = self.place(class).ok_or(NoRoom)?;
        let holder_set = HolderSet { form, start, class, count: 0 };
        self.words.read(holder_set).erase();
        Ok(holder_set)
    }

    /// Returns a free place of a class: one of that class, a part of a larger one, or of a new
    /// chunk.
    fn place(&mut self, class: u8) -> Option<u32> {
        let larger = (class..=CLASS_MAX).find(|class| !self.free[usize::from(*class)].is_empty());
        let (start, from) = match larger {
            Some(class) => (self.free[usize::from(class)].pop()?, class),
            None => (self.open_chunk()?, CLASS_MAX),
        };
        // The rest of a larger place goes to the free lists of the classes below.
        for class in class..from {
            self.free[usize::from(class)].push(start + (1 << class));
        }
        Some(start)
    }

    /// Returns the first place of a new chunk; its other places become free.
    fn open_chunk(&mut self) -> Option<u32> {
        if self.chunks_used == self.words.chunks_max() {
            return None;
        }
        self.words.open_chunk(self.chunks_used);
        let start = (self.chunks_used * CHUNK_WORDS) as u32;
        let places = (1..CHUNK_WORDS as u32 >> CLASS_MAX).map(|place| start + (place << CLASS_MAX));
        self.free[usize::from(CLASS_MAX)].extend(places);
        self.chunks_used += 1;
        self.chunks_open = self.chunks_open.max(self.chunks_used);
        Some(start)
    }
}

/// Returns the form that takes fewer words for `count` members below `universe`, and its class.
fn best(count: u16, universe: u16) -> (PayloadForm, u8) {
    let class = |words: u32| words.next_power_of_two().trailing_zeros() as u8;
    let list = class(u32::from(count).div_ceil(4));
    let bits = class(u32::from(universe).div_ceil(64));
    // At equal size the bit set wins: it finds a member at once.
    if list < bits { (PayloadForm::List, list) } else { (PayloadForm::Bits, bits) }
}
