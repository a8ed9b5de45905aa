//! Another region, as a whole.

use std::time::Instant;

use crate::contact::heard_code;
use crate::time::{ms, ms_since};

/// Whether a request can go to a region and its answer come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// It is heard, and hears us. => (Silent | Deaf)
    Both,
    /// It is heard, but says that it does not hear us. => (Both | Silent)
    Deaf,
    /// It is not heard. => (Both | Deaf)
    Silent,
}

/// What its nodes together let us hear.
#[derive(Debug)]
pub(crate) struct Region {
    heard_at: Option<Instant>,
    /// What the last datagram said on how long ago its sender heard our region, milliseconds.
    word_ms: Option<u32>,
    reach: Reach,
    /// Since when it is [`Reach::Both`].
    since: Option<Instant>,
}

impl Region {
    pub(crate) fn new() -> Self {
        Self { heard_at: None, word_ms: None, reach: Reach::Silent, since: None }
    }

    pub(crate) fn hear(&mut self, now: Instant, word_ms: Option<u32>) {
        self.heard_at = Some(now);
        self.word_ms = word_ms;
    }

    pub(crate) fn heard_code(&self, now: Instant) -> u32 {
        heard_code(self.heard_at, now)
    }

    pub(crate) fn age_ms(&self, now: Instant) -> Option<u32> {
        self.heard_at.map(|at| ms_since(at, now))
    }

    /// How it can be reached at `now`. Without another datagram it is silent from
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

    /// Since when it is reached both ways.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// The reach that was last settled.
    pub(crate) fn settled(&self) -> Reach {
        self.reach
    }

    /// Settles the reach; what it was if it changed.
    pub(crate) fn settle(&mut self, now: Instant, silence_ms: u32) -> Option<Reach> {
        let reach = self.reach(now, silence_ms);
        if reach == self.reach {
            return None;
        }
        self.since = (reach == Reach::Both).then_some(now);
        Some(std::mem::replace(&mut self.reach, reach))
    }
}
