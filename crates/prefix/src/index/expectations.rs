//! What the index believed about requests that have not been answered yet.

/// Most requests that are remembered: 1.5 MiB. More in flight at once overwrite each other.
const PLACES_MAX: usize = 16_384;
/// Stretches of a chain with different stamps that are told apart.
const RUNS: usize = 4;

/// Beliefs at the time of sending, by replica and prompt.
#[derive(Debug)]
pub(super) struct Expectations {
    /// Empty until the first request.
    places: Vec<Expectation>,
    places_max: usize,
}

/// How many leading blocks of a prompt were believed to be at a replica, and when each of them had
/// been used last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expectation {
    holder: u16,
    runs: u8,
    last: u64,
    /// Stamp of this request itself.
    pub(super) sent: u64,
    /// Requests up to this stamp had been answered when it was sent.
    pub(super) answered: u64,
    /// End of each stretch of blocks, and when they had been used; stamps fall.
    stretches: [(u32, u64); RUNS],
}

impl Expectation {
    pub(super) fn new(holder: u16, chain: &[u64], sent: u64, answered: u64) -> Self {
        let last = chain.last().copied().unwrap_or(0);
        Self { holder, runs: 0, last, sent, answered, stretches: Default::default() }
    }

    /// Adds the next leading block, used last at `stamp`.
    pub(super) fn add(&mut self, depth: u32, stamp: u64) {
        let runs = usize::from(self.runs);
        match self.stretches[..runs].last_mut() {
            // With too many stretches the last is taken to be as old as its oldest block: what is
            // older than that is less than what could be concluded from the others.
            Some(run) if run.1 == stamp || runs == RUNS => *run = (depth, stamp.min(run.1)),
            _ => {
                self.stretches[runs] = (depth, stamp);
                self.runs += 1;
            }
        }
    }

    /// Leading blocks that were believed to be there.
    pub(super) fn blocks(&self) -> u32 {
        self.stretches().last().map_or(0, |run| run.0)
    }

    /// When the block at `depth` had been used last.
    pub(super) fn stamp(&self, depth: u32) -> Option<u64> {
        self.stretches().iter().find(|run| run.0 >= depth).map(|run| run.1)
    }

    fn stretches(&self) -> &[(u32, u64)] {
        &self.stretches[..usize::from(self.runs)]
    }
}

impl Expectations {
    /// Nothing is remembered yet, and never more than `bytes_max`.
    pub(super) fn new(bytes_max: usize) -> Self {
        let places_max = (bytes_max / size_of::<Expectation>()).clamp(1, PLACES_MAX);
        Self { places: Vec::new(), places_max }
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Expectation>()
    }

    /// Remembers one; it takes the place of an earlier one for the same prompt.
    pub(super) fn put(&mut self, expectation: Expectation) {
        if self.places.is_empty() {
            self.places = vec![Expectation::default(); self.places_max];
        }
        let place = self.place(expectation.holder, expectation.last);
        self.places[place] = expectation;
    }

    /// Takes out what was believed when `chain` was sent to `holder`.
    pub(super) fn take(&mut self, holder: u16, chain: &[u64]) -> Option<Expectation> {
        let last = *chain.last()?;
        let place = self.place(holder, last);
        let found = self.places.get_mut(place)?;
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
