//! Age of a follower's knowledge. Pure: time is an argument, counted from any fixed moment.
//!
//! A leader reports how long ago a quorum confirmed it. Its state at that time is known here once
//! all entries that it had committed by then are applied here.

use std::collections::VecDeque;
use std::time::Duration;

/// Words of leaders that are remembered while the state has not come so far: those of a few
/// seconds. Beyond that the one before the last is forgotten, which only makes the age larger.
const WORDS_MAX: usize = 64;

/// Age of a follower's knowledge.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnowledgeAge {
    /// All that was committed at this time is carried out here.
    as_of: Option<Duration>,
    /// Statements of leaders that are not carried out yet, in the order of coming.
    waiting: VecDeque<KnowledgeStatement>,
}

/// Statement of a leader about the age of its knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnowledgeStatement {
    /// All that was committed at this time …
    pub(crate) as_of: Duration,
    /// … lies before the entry of this index.
    pub(crate) next_index: u64,
}

impl KnowledgeAge {
    /// Notes a statement of a leader. All entries before `applied_next` are applied here.
    pub(crate) fn receive(&mut self, word: KnowledgeStatement, applied_next: u64) {
        self.settle(applied_next);
        if self.waiting.len() == WORDS_MAX {
            self.waiting.pop_back();
        }
        self.waiting.push_back(word);
        self.settle(applied_next);
    }

    /// Returns the latest time of which all that was committed by then is carried out here; `None`
    /// for never.
    pub(crate) fn as_of(&self, applied_next: u64) -> Option<Duration> {
        let done = self.waiting.iter().filter(|word| word.next_index <= applied_next);
        self.as_of.max(done.map(|word| word.as_of).max())
    }

    fn settle(&mut self, applied_next: u64) {
        self.as_of = self.as_of(applied_next);
        self.waiting.retain(|word| word.next_index > applied_next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn word(as_of: u64, next_index: u64) -> KnowledgeStatement {
        KnowledgeStatement { as_of: ms(as_of), next_index }
    }

    #[test]
    fn a_word_counts_once_what_it_speaks_of_is_carried_out() {
        let mut knowledge = KnowledgeAge::default();
        assert_eq!(knowledge.as_of(100), None);
        knowledge.receive(word(50, 10), 10);
        assert_eq!(knowledge.as_of(10), Some(ms(50)));
        knowledge.receive(word(70, 12), 10);
        knowledge.receive(word(80, 13), 11);
        assert_eq!(knowledge.as_of(11), Some(ms(50)));
        assert_eq!(knowledge.as_of(12), Some(ms(70)));
        assert_eq!(knowledge.as_of(13), Some(ms(80)));
    }

    #[test]
    fn an_older_word_does_not_turn_back() {
        let mut knowledge = KnowledgeAge::default();
        knowledge.receive(word(500, 10), 10);
        knowledge.receive(word(400, 10), 10);
        assert_eq!(knowledge.as_of(10), Some(ms(500)));
    }

    #[test]
    fn a_state_that_is_always_behind_still_gets_younger() {
        let mut knowledge = KnowledgeAge::default();
        for at in 0..10_000 {
            knowledge.receive(word(at, at + 20), at);
            let as_of = knowledge.as_of(at);
            assert!(at < 20 || as_of == Some(ms(at - 20)), "{at}: {as_of:?}");
        }
    }

    #[test]
    fn what_is_remembered_has_a_limit_and_the_age_then_errs_upwards() {
        let mut knowledge = KnowledgeAge::default();
        for at in 0..1_000 {
            knowledge.receive(word(at, at + 1), 0);
            assert!(knowledge.waiting.len() <= WORDS_MAX);
        }
        assert_eq!(knowledge.as_of(0), None);
        assert_eq!(knowledge.as_of(30), Some(ms(29)));
        assert_eq!(knowledge.as_of(900), Some(ms(62)));
        assert_eq!(knowledge.as_of(1_000), Some(ms(999)));
    }
}
