//! Promises of a follower to its leader to vote for no other node for a while. Pure: time is an
//! argument, counted from any fixed moment.
//!
//! A promise is made when entries are answered and runs from when they came. Votes take time too,
//! so one that is being given forbids promises, and a promise that was made forbids votes: whichever
//! is first.

use std::time::Duration;

/// The longest promise that any version makes. A node that starts with a log that is not empty
/// keeps such a promise, as it can't know what it has promised before.
pub(crate) const PROMISE_MAX: Duration = Duration::from_millis(1_500);

/// Promises of a follower.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promise {
    until: Duration,
    /// Votes that were begun so far.
    votes: u64,
    /// Votes of which it is not known yet whether they are given.
    under_way: u32,
}

/// Receipt of entries: decides what may be promised when they are answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    at: Duration,
    votes: u64,
    is_voting: bool,
}

impl Promise {
    /// Returns the promises of a node that starts now. With a log that is not empty, the node may
    /// have made a promise before its restart.
    pub(crate) fn of_start(now: Duration, is_blank: bool) -> Self {
        let until = if is_blank { now } else { now + PROMISE_MAX };
        Self { until, ..Self::default() }
    }

    /// Returns the receipt of entries that come now.
    #[must_use]
    pub(crate) fn received(&self, now: Duration) -> Receipt {
        Receipt { at: now, votes: self.votes, is_voting: self.under_way > 0 }
    }

    /// Promises the leader that sent the message of `receipt` to vote for no other node for
    /// `length` from its arrival. Returns the length of the promise, which may be zero.
    #[must_use]
    pub(crate) fn make(&mut self, receipt: Receipt, length: Duration) -> Duration {
        // A vote that was begun since the entries came may go to another node.
        if receipt.is_voting || receipt.votes != self.votes {
            return Duration::ZERO;
        }
        let length = length.min(PROMISE_MAX);
        self.until = self.until.max(receipt.at + length);
        length
    }

    /// Returns true if no promise forbids a vote.
    pub(crate) fn is_free(&self, now: Duration) -> bool {
        now >= self.until
    }

    /// Begins a vote if it may be given; then [`Self::end_vote`] has to follow.
    #[must_use]
    pub(crate) fn begin_vote(&mut self, now: Duration) -> bool {
        if self.is_free(now) {
            self.begin_wanted_vote();
        }
        self.is_free(now)
    }

    /// Begins a vote that the leader itself wants.
    pub(crate) fn begin_wanted_vote(&mut self) {
        self.votes += 1;
        self.under_way += 1;
    }

    /// The vote was given, or not.
    pub(crate) fn end_vote(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn promised(at: u64, length: u64) -> Promise {
        let mut promise = Promise::default();
        let receipt = promise.received(ms(at));
        assert_eq!(promise.make(receipt, ms(length)), ms(length));
        promise
    }

    #[test]
    fn no_vote_is_given_until_the_promise_ends_which_counts_from_the_receipt() {
        let mut promise = promised(100, 1_000);
        assert!(!promise.begin_vote(ms(1_099)));
        assert!(promise.begin_vote(ms(1_100)));
    }

    #[test]
    fn a_shorter_promise_does_not_end_a_longer_one() {
        let mut promise = promised(100, 1_000);
        let receipt = promise.received(ms(200));
        assert_eq!(promise.make(receipt, ms(300)), ms(300));
        assert!(!promise.is_free(ms(1_099)) && promise.is_free(ms(1_100)));
    }

    #[test]
    fn nobody_promises_longer_than_a_restart_waits() {
        let mut promise = Promise::default();
        let receipt = promise.received(ms(0));
        assert_eq!(promise.make(receipt, ms(60_000)), PROMISE_MAX);
        assert!(promise.is_free(PROMISE_MAX));
        let restarted = Promise::of_start(ms(500), false);
        assert!(!restarted.is_free(ms(500) + PROMISE_MAX - ms(1)));
        assert!(restarted.is_free(ms(500) + PROMISE_MAX));
        assert!(Promise::of_start(ms(500), true).is_free(ms(500)));
    }

    #[test]
    fn a_vote_that_was_begun_between_receipt_and_answer_forbids_the_promise() {
        let mut promise = Promise::default();
        let before = promise.received(ms(0));
        assert!(promise.begin_vote(ms(1)));
        let during = promise.received(ms(2));
        assert_eq!(promise.make(before, ms(1_000)), ms(0));
        assert_eq!(promise.make(during, ms(1_000)), ms(0));
        promise.end_vote();
        assert_eq!(promise.make(before, ms(1_000)), ms(0));
        assert_eq!(promise.make(during, ms(1_000)), ms(0));
        let after = promise.received(ms(3));
        assert_eq!(promise.make(after, ms(1_000)), ms(1_000));
        assert!(!promise.begin_vote(ms(1_002)));
    }

    #[test]
    fn what_the_leader_wants_is_voted_in_spite_of_a_promise() {
        let mut promise = promised(0, 1_000);
        let receipt = promise.received(ms(10));
        promise.begin_wanted_vote();
        assert_eq!(promise.make(receipt, ms(1_000)), ms(0));
        promise.end_vote();
        assert!(!promise.is_free(ms(999)));
    }
}
