//! Another region as a whole.

use std::time::Instant;

use crate::failure_detector::heard_code;
use crate::time::{ms, ms_since};

/// Reachability of a region: both ways, one way, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// Datagrams arrive in both directions. => (Silent | Deaf)
    Both,
    /// The region's datagrams arrive, but it reports that ours do not. => (Both | Silent)
    Deaf,
    /// No datagrams arrive from the region. => (Both | Deaf)
    Silent,
}

/// Contact with a region, through any of its nodes.
#[derive(Debug)]
pub(crate) struct RegionContact {
    heard_at: Option<Instant>,
    /// Time since the sender last received a datagram from our region, by its last datagram,
    /// milliseconds.
    word_ms: Option<u32>,
    reach: Reach,
    /// Moment since which the reach is [`Reach::Both`].
    since: Option<Instant>,
}

impl RegionContact {
    pub(crate) fn new() -> Self {
        Self { heard_at: None, word_ms: None, reach: Reach::Silent, since: None }
    }

    pub(crate) fn receive(&mut self, now: Instant, word_ms: Option<u32>) {
        self.heard_at = Some(now);
        self.word_ms = word_ms;
    }

    pub(crate) fn heard_code(&self, now: Instant) -> u32 {
        heard_code(self.heard_at, now)
    }

    pub(crate) fn age_ms(&self, now: Instant) -> Option<u32> {
        self.heard_at.map(|at| ms_since(at, now))
    }

    /// Returns the reach at `now`. Without another datagram it is [`Reach::Silent`] from
    /// [`Self::silent_at`] on.
    pub(crate) fn reach(&self, now: Instant, silence_ms: u32) -> Reach {
        let heard = self.silent_at(silence_ms).is_some_and(|at| now < at);
        match (heard, self.word_ms) {
            (true, Some(word_ms)) if word_ms < silence_ms => Reach::Both,
            (true, _) => Reach::Deaf,
            (false, _) => Reach::Silent,
        }
    }

    pub(crate) fn silent_at(&self, silence_ms: u32) -> Option<Instant> {
        self.heard_at.map(|at| at + ms(silence_ms))
    }

    /// Returns since when the region is reached both ways.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Returns the reach that was last settled.
    pub(crate) fn settled(&self) -> Reach {
        self.reach
    }

    /// Settles the reach. Returns the one before if it changed.
    pub(crate) fn settle(&mut self, now: Instant, silence_ms: u32) -> Option<Reach> {
        let reach = self.reach(now, silence_ms);
        if reach == self.reach {
            return None;
        }
        self.since = (reach == Reach::Both).then_some(now);
        Some(std::mem::replace(&mut self.reach, reach))
    }
}
