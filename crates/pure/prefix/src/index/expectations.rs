//! Beliefs of the index about requests that have no reply yet.

/// Largest number of remembered requests: 1.5 MiB. More requests in flight overwrite each other.
const PLACES_MAX: usize = 16_384;
/// Number of stretches of a chain with different stamps that are kept apart.
const RUNS: usize = 4;

/// Beliefs at the time of sending, by replica and prompt.
#[derive(Debug)]
pub(super) struct Expectations {
    /// Slots by hash; empty until the first request.
    places: Vec<Expectation>,
    places_max: usize,
}

/// Number of leading blocks of a prompt that a replica was believed to hold, and the last use of
/// each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expectation {
    holder: u16,
    runs: u8,
    last: u64,
    /// Stamp of the request itself.
    pub(super) sent: u64,
    /// Stamp up to which requests had been answered when this one was sent.
    pub(super) answered: u64,
    /// End of each stretch of blocks, and the stamp of their last use; stamps fall with depth.
    stretches: [(u32, u64); RUNS],
}

impl Expectation {
    pub(super) fn new(holder: u16, chain: &[u64], sent: u64, answered: u64) -> Self {
        let last = chain.last().copied().unwrap_or(0);
        Self { holder, runs: 0, last, sent, answered, stretches: Default::default() }
    }

    /// Adds the next leading block, last used at `stamp`.
    pub(super) fn add(&mut self, depth: u32, stamp: u64) {
        let runs = usize::from(self.runs);
        match self.stretches[..runs].last_mut() {
            // With too many stretches, the last one gets the stamp of its oldest block. The index
            // then concludes less than it could, never too much.
            Some(run) if run.1 == stamp || runs == RUNS => *run = (depth, stamp.min(run.1)),
            _ => {
                self.stretches[runs] = (depth, stamp);
                self.runs += 1;
            }
        }
    }

    /// Returns the number of leading blocks that the replica was believed to hold.
    pub(super) fn blocks(&self) -> u32 {
        self.stretches().last().map_or(0, |run| run.0)
    }

    /// Returns the stamp of the last use of the block at `depth`; `None` beyond the believed
    /// blocks.
    pub(super) fn stamp(&self, depth: u32) -> Option<u64> {
        self.stretches().iter().find(|run| run.0 >= depth).map(|run| run.1)
    }

    fn stretches(&self) -> &[(u32, u64)] {
        &self.stretches[..usize::from(self.runs)]
    }
}

impl Expectations {
    /// Creates an empty store of at most `bytes_max`.
    pub(super) fn new(bytes_max: usize) -> Self {
        let places_max = (bytes_max / size_of::<Expectation>()).clamp(1, PLACES_MAX);
        Self { places: Vec::new(), places_max }
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Expectation>()
    }

    /// Remembers a belief; it replaces an earlier one for the same prompt and replica.
    pub(super) fn put(&mut self, expectation: Expectation) {
        if self.places.is_empty() {
            self.places = vec![Expectation::default(); self.places_max];
        }
        let place = self.place(expectation.holder, expectation.last);
        self.places[place] = expectation;
    }

    /// Removes and returns the belief from when `chain` was sent to `holder`.
    pub(super) fn take(&mut self, holder: u16, chain: &[u64]) -> Option<Expectation> {
        let last = *chain.last()?;
        let place = self.place(holder, last);
        let found = self.places.get_mut(place)?;
        // The slot may hold another request; `sent` is 0 in an empty slot.
        let is_it = found.holder == holder && found.last == last && found.sent > 0;
        is_it.then(|| std::mem::take(found))
    }

    pub(super) fn clear(&mut self) {
        self.places.fill(Expectation::default());
    }

    fn place(&self, holder: u16, last: u64) -> usize {
        let mixed = (last ^ u64::from(holder).wrapping_mul(0xD6E8_FEB8_6659_FD93))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(mixed) * self.places_max as u128) >> 64) as usize
    }
}
