//! Map from a block and one of its several holders to the writer's record.

use super::pairs::{NO_PAIR, Pairs};

/// Smallest number of slots.
const PLACES_MIN: usize = 1_024;

/// Table of records by block and replica, for blocks with several holders. Takes 5 to 6 bytes per
/// record, because block and replica are read from the record itself.
#[derive(Debug)]
pub(super) struct PairMap {
    places: Vec<u32>,
    used: usize,
}

impl PairMap {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), used: 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<u32>()
    }

    /// Returns the bytes that the next insert adds while the map grows; 0 if it has room.
    pub(super) fn growth_bytes(&self) -> usize {
        if self.is_full() { (self.grown() - self.places.len()) * size_of::<u32>() } else { 0 }
    }

    pub(super) fn find(&self, pairs: &Pairs, key: u64, holder: u16) -> Option<u32> {
        let place = self.place(pairs, key, holder)?;
        self.places.get(place).copied().filter(|pair| *pair != NO_PAIR)
    }

    /// Adds a record that is not in the map.
    pub(super) fn insert(&mut self, pairs: &Pairs, pair: u32) {
        if self.is_full() {
            self.grow(pairs);
        }
        self.put(pairs, pair);
        self.used += 1;
    }

    /// Removes a record if it is in the map.
    pub(super) fn remove(&mut self, pairs: &Pairs, key: u64, holder: u16) {
        let Some(mut hole) = self.place(pairs, key, holder) else { return };
        if self.places[hole] == NO_PAIR {
            return;
        }
        self.used -= 1;
        let mut next = hole;
        loop {
            next = (next + 1) % self.places.len();
            let pair = self.places[next];
            if pair == NO_PAIR {
                break;
            }
            // A record that lies behind the hole because its own slot was taken moves up.
            let home = self.home_of(pairs, pair);
            let distance =
                |from: usize, to: usize| (to + self.places.len() - from) % self.places.len();
            if distance(home, next) >= distance(hole, next) {
                self.places[hole] = pair;
                hole = next;
            }
        }
        self.places[hole] = NO_PAIR;
    }

    /// Returns the slot of the record, or the empty slot where it belongs; `None` in an empty map.
    fn place(&self, pairs: &Pairs, key: u64, holder: u16) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let mut place = self.home(key, holder);
        loop {
            let pair = self.places[place];
            if pair == NO_PAIR {
                return Some(place);
            }
            let record = pairs.at(pair);
            if record.key == key && record.holder == holder {
                return Some(place);
            }
            place = (place + 1) % self.places.len();
        }
    }

    fn put(&mut self, pairs: &Pairs, pair: u32) {
        let mut place = self.home_of(pairs, pair);
        while self.places[place] != NO_PAIR {
            place = (place + 1) % self.places.len();
        }
        self.places[place] = pair;
    }

    fn is_full(&self) -> bool {
        // At most 80 % full.
        (self.used + 1) * 5 > self.places.len() * 4
    }

    fn grown(&self) -> usize {
        (self.places.len() + self.places.len() / 4).max(PLACES_MIN)
    }

    fn grow(&mut self, pairs: &Pairs) {
        let places = vec![NO_PAIR; self.grown()];
        let before = std::mem::replace(&mut self.places, places);
        for pair in before.into_iter().filter(|pair| *pair != NO_PAIR) {
            self.put(pairs, pair);
        }
    }

    fn home_of(&self, pairs: &Pairs, pair: u32) -> usize {
        let record = pairs.at(pair);
        self.home(record.key, record.holder)
    }

    fn home(&self, key: u64, holder: u16) -> usize {
        let mixed = (key ^ u64::from(holder).wrapping_mul(0xD6E8_FEB8_6659_FD93))
            .rotate_left(32)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(mixed) * self.places.len() as u128) >> 64) as usize
    }
}
