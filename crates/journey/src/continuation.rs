//! Search for a place that continues a stream which broke off.
//!
//! Each try is a [`Journey`](crate::Journey) of its own, without the places that broke the stream off.

use std::time::Duration;

/// Pause before the next round of tries: a killed replica may be back soon, and a busy one may then
/// have a place.
const PAUSE: Duration = Duration::from_millis(100);
/// Rounds beyond the first whose tries may fail before the search is given up.
const ROUNDS_MAX: u32 = 3;

/// Search for one continuation of a stream.
#[derive(Clone, Debug)]
pub struct ContinuationSearch {
    /// Tries in one round at most.
    tries_max: u32,
    /// Places that broke the stream off so far.
    broken: usize,
    tries: u32,
    rounds: u32,
    state: ContinuationState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContinuationState {
    // Trying => (Trying | Pausing | Over)
    Trying(Without),
    // Pausing => Trying
    Pausing,
    Over(SearchEnd),
}

/// Places that a try leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// All places that broke the stream off.
    AllBroken,
    /// The last of them only. A place that broke off earlier and is back is better than none.
    LastBroken,
}

/// Act of the driver of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchStep {
    /// Send the request on a journey without these places, and without those that failed in the same
    /// round of tries.
    Try(Without),
    /// Pause, then report [`SearchEvent::Paused`].
    Pause(Duration),
    /// Nothing more.
    End(SearchEnd),
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEvent {
    /// A reply that continues the stream began.
    Stream,
    /// A reply began that is no stream.
    OtherReply {
        /// True if a replica of this region sent it, so that another one can be asked.
        is_local: bool,
    },
    /// No place is left that could continue the stream, now or later.
    NoPlaceLeft,
    /// A place may be free later.
    NotNow,
    /// The replicas that were asked failed.
    Failed,
    /// The pause is over.
    Paused,
}

/// End of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEnd {
    /// The stream goes on.
    Found,
    /// No place is left that could continue the stream.
    NoPlaceLeft,
    /// The replicas that were asked failed.
    Failed,
}

impl ContinuationSearch {
    /// Creates a search after so many places broke the stream off, with so many tries in one round.
    #[must_use]
    pub fn new(broken: usize, tries_max: u32) -> Self {
        let state = ContinuationState::Trying(Without::AllBroken);
        Self { tries_max, broken, tries: 0, rounds: 0, state }
    }

    /// Returns the next step. Without an event in between it returns that step again.
    #[must_use]
    pub fn next(&self) -> SearchStep {
        match self.state {
            ContinuationState::Trying(without) => SearchStep::Try(without),
            ContinuationState::Pausing => SearchStep::Pause(PAUSE),
            ContinuationState::Over(end) => SearchStep::End(end),
        }
    }

    /// Takes the result of a step. `take_retry` takes one retry from the budget, and is called only
    /// if nothing else forbids one. Returns true if another replica is tried at once, as a retry.
    pub fn on(&mut self, event: SearchEvent, take_retry: impl Fn() -> bool) -> bool {
        match (self.state, event) {
            (ContinuationState::Trying(_), SearchEvent::Stream) => {
                self.state = ContinuationState::Over(SearchEnd::Found);
            }
            (ContinuationState::Trying(_), SearchEvent::OtherReply { is_local }) => {
                self.tries += 1;
                if is_local && take_retry() && self.tries < self.tries_max {
                    return true;
                }
                self.fail(take_retry);
            }
            (ContinuationState::Trying(Without::AllBroken), SearchEvent::NoPlaceLeft)
                if self.broken > 1 =>
            {
                self.try_without(Without::LastBroken);
            }
            (ContinuationState::Trying(_), SearchEvent::NoPlaceLeft) => {
                self.state = ContinuationState::Over(SearchEnd::NoPlaceLeft);
            }
            (ContinuationState::Trying(_), SearchEvent::NotNow) => {
                self.state = ContinuationState::Pausing;
            }
            (ContinuationState::Trying(_), SearchEvent::Failed) => self.fail(take_retry),
            (ContinuationState::Pausing, SearchEvent::Paused) => {
                self.try_without(Without::AllBroken);
            }
            (state, event) => debug_assert!(false, "{event:?} while {state:?}"),
        }
        false
    }

    fn try_without(&mut self, without: Without) {
        self.tries = 0;
        self.state = ContinuationState::Trying(without);
    }

    /// Ends a round of tries that failed: with a pause, or with the search.
    fn fail(&mut self, take_retry: impl Fn() -> bool) {
        if self.rounds < ROUNDS_MAX && take_retry() {
            self.rounds += 1;
            self.state = ContinuationState::Pausing;
        } else {
            self.state = ContinuationState::Over(SearchEnd::Failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    const OTHER: SearchEvent = SearchEvent::OtherReply { is_local: true };
    const ELSEWHERE: SearchEvent = SearchEvent::OtherReply { is_local: false };

    /// Holds a search with this budget of retries against its steps; returns what is left of it.
    #[track_caller]
    fn check(broken: usize, budget: u32, steps: &[(&str, Option<SearchEvent>)]) -> u32 {
        let left = Cell::new(budget);
        let take = || left.replace(left.get().saturating_sub(1)) > 0;
        let mut search = ContinuationSearch::new(broken, 3);
        for (number, (expected, event)) in steps.iter().enumerate() {
            let said = match search.next() {
                SearchStep::Try(Without::AllBroken) => "try".to_owned(),
                SearchStep::Try(Without::LastBroken) => "try those that are back".to_owned(),
                SearchStep::Pause(_) => "pause".to_owned(),
                SearchStep::End(end) => format!("{end:?}"),
            };
            assert_eq!(said, *expected, "step {number} of {steps:?}");
            if let Some(event) = event {
                search.on(*event, take);
            }
        }
        left.get()
    }

    #[test]
    fn a_stream_that_begins_ends_the_search() {
        let left = check(1, 5, &[("try", Some(SearchEvent::Stream)), ("Found", None)]);
        assert_eq!(left, 5);
    }

    #[test]
    fn where_no_place_is_open_now_it_looks_again_as_long_as_it_is_let() {
        let now = Some(SearchEvent::NotNow);
        let paused = Some(SearchEvent::Paused);
        let left = check(
            1,
            0,
            &[
                ("try", now),
                ("pause", paused),
                ("try", now),
                ("pause", paused),
                ("try", now),
                ("pause", paused),
                ("try", now),
                ("pause", paused),
                ("try", now),
                ("pause", None),
            ],
        );
        assert_eq!(left, 0);
    }

    #[test]
    fn those_that_broke_off_earlier_are_tried_when_no_other_is_left() {
        let none = Some(SearchEvent::NoPlaceLeft);
        check(1, 5, &[("try", none), ("NoPlaceLeft", None)]);
        let back = "try those that are back";
        check(2, 5, &[("try", none), (back, none), ("NoPlaceLeft", None)]);
        let now = Some(SearchEvent::NotNow);
        let paused = Some(SearchEvent::Paused);
        check(2, 5, &[("try", none), (back, now), ("pause", paused), ("try", None)]);
    }

    #[test]
    fn rounds_that_fail_are_few_and_each_takes_from_the_budget() {
        let failed = Some(SearchEvent::Failed);
        let paused = Some(SearchEvent::Paused);
        let left = check(
            1,
            9,
            &[
                ("try", failed),
                ("pause", paused),
                ("try", failed),
                ("pause", paused),
                ("try", failed),
                ("pause", paused),
                ("try", failed),
                ("Failed", None),
            ],
        );
        assert_eq!(left, 6);
        check(1, 0, &[("try", failed), ("Failed", None)]);
    }

    #[test]
    fn another_reply_is_followed_by_another_try_in_the_same_round() {
        let other = Some(OTHER);
        let left = check(1, 9, &[("try", other), ("try", other), ("try", other), ("pause", None)]);
        assert_eq!(left, 5, "one for each reply, and one for the round");
        assert_eq!(check(1, 1, &[("try", other), ("try", other), ("Failed", None)]), 0);
        check(1, 9, &[("try", Some(ELSEWHERE)), ("pause", None)]);
    }

    proptest! {
        #[test]
        fn no_search_goes_on_for_ever_by_failures_or_beyond_the_budget(
            broken in 1..4_usize,
            budget in 0..20_u32,
            events in prop::collection::vec(0..5_u8, 60),
        ) {
            let left = Cell::new(budget);
            let take = || left.replace(left.get().saturating_sub(1)) > 0;
            let mut search = ContinuationSearch::new(broken, 3);
            let (mut failures, mut retries) = (0, 0);
            for event in events {
                match search.next() {
                    SearchStep::End(_) => break,
                    SearchStep::Pause(_) => {
                        search.on(SearchEvent::Paused, take);
                    }
                    SearchStep::Try(_) => {
                        let event = [SearchEvent::Failed, OTHER, ELSEWHERE, SearchEvent::Failed,
                            SearchEvent::NoPlaceLeft][usize::from(event)];
                        failures += u32::from(event != SearchEvent::NoPlaceLeft);
                        retries += u32::from(search.on(event, take));
                    }
                }
            }
            prop_assert!(matches!(search.next(), SearchStep::End(_)), "{search:?}");
            prop_assert!(failures <= 4 * 2 * 3, "{failures}");
            prop_assert!(retries <= budget);
        }
    }
}
