//! Decides whether a write or read that failed is tried again. Pure: times are arguments.

use std::time::Duration;

use spillway_raft::{ProposeError, ReadError, Role, Status};

/// Longest time that a write or read waits for a leader while nothing of it is in a log. Without
/// the wait, every client would have to repeat its request during a hand-over.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(2);
/// Time between two attempts.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);
/// A node that has received nothing from a leader for so long has none. With one more attempt, this
/// is shorter than the longest lease (1.5 s): when a lease ends, everything has to be refused at
/// once.
const LED_LATELY: Duration = Duration::from_millis(1_400);

/// Kinds of failed attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptFailure {
    /// No leader took it, so no log has it. Another attempt may find one.
    Leaderless,
    /// No log has it, and another attempt would fail like this one.
    Refused,
    /// A leader may have it in its log, and has not reported the outcome.
    Unknown,
}

impl From<&ProposeError> for AttemptFailure {
    fn from(error: &ProposeError) -> Self {
        match error {
            error if error.may_be_written() => Self::Unknown,
            ProposeError::NoQuorum { .. } => Self::Leaderless,
            _ => Self::Refused,
        }
    }
}

impl From<&ReadError> for AttemptFailure {
    fn from(error: &ReadError) -> Self {
        match error {
            ReadError::NoQuorum { .. } => Self::Leaderless,
            ReadError::TimedOut | ReadError::Stopped(_) => Self::Refused,
        }
    }
}

/// Decision after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptStep {
    /// Try again after [`PAUSE`].
    Again,
    /// Give up with the failure of the last attempt.
    Fail,
    /// Give up without knowing the outcome: an earlier attempt may be carried out.
    Unknown,
}

/// Attempts of one write or read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempts {
    limit: Duration,
    waits_for_leader: bool,
    is_repeatable: bool,
    is_open: bool,
}

impl Attempts {
    /// Returns the attempts of a read that may take `limit` in all.
    pub(crate) fn of_read(limit: Duration) -> Self {
        Self { limit, waits_for_leader: true, is_repeatable: false, is_open: false }
    }

    /// Returns the attempts of a write that may take `limit` in all. One that does not wait for a
    /// leader is proposed again by its proposer, later and with newer contents. One that is
    /// repeatable has a request id: however often it is proposed, it is carried out once.
    pub(crate) fn of_write(limit: Duration, waits_for_leader: bool, is_repeatable: bool) -> Self {
        Self { limit, waits_for_leader, is_repeatable, is_open: false }
    }

    /// Returns true once an attempt may have left the command in a log. From then on only the log
    /// shows the outcome.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Decides what follows an attempt that failed `elapsed` after the first one began. `is_led` is
    /// true if this node had a leader a moment ago, see [`was_led`].
    pub(crate) fn after(
        &mut self,
        failure: AttemptFailure,
        elapsed: Duration,
        is_led: bool,
    ) -> AttemptStep {
        let has_time = |limit: Duration| elapsed + PAUSE < limit;
        self.is_open |= failure == AttemptFailure::Unknown;
        match failure {
            // The next leader answers the same request id with what became of it, so it is asked
            // until the time is up.
            _ if self.is_open && self.is_repeatable && has_time(self.limit) => AttemptStep::Again,
            _ if self.is_open => AttemptStep::Unknown,
            AttemptFailure::Leaderless
                if self.waits_for_leader && is_led && has_time(self.limit.min(HAND_OVER_LIMIT)) =>
            {
                AttemptStep::Again
            }
            _ => AttemptStep::Fail,
        }
    }
}

/// Returns true if the node of `status` had contact with a leader, or led with a quorum, a moment
/// ago.
pub(crate) fn was_led(status: &Status) -> bool {
    match status.role {
        Role::Stopped | Role::IsolatedLeader => false,
        // A leader that has just been elected has no answer of a quorum yet.
        Role::Leader => status.age.is_none_or(|age| age < LED_LATELY),
        _ => status.age.is_some_and(|age| age < LED_LATELY),
    }
}

#[cfg(test)]
mod tests {
    use super::AttemptFailure::{Leaderless, Refused, Unknown};
    use super::*;

    #[test]
    fn only_who_was_led_a_moment_ago_waits() {
        let status = |role, age_ms: Option<u64>| Status {
            role,
            age: age_ms.map(Duration::from_millis),
            ..Status::outside(spillway_types::DiskId(1))
        };
        for (role, age_ms, expected) in [
            (Role::Follower, Some(200), true),
            (Role::Follower, Some(1_600), false),
            (Role::Follower, None, false),
            (Role::Leader, None, true),
            (Role::Leader, Some(1_600), false),
            (Role::IsolatedLeader, Some(200), false),
            (Role::Stopped, Some(200), false),
        ] {
            assert_eq!(was_led(&status(role, age_ms)), expected, "{role:?} {age_ms:?}");
        }
    }

    /// Runs attempts that fail so many milliseconds after the first one began, on a node that has a
    /// leader, and returns the last decision. All decisions before it are to go on.
    fn last(mut attempts: Attempts, failures: &[(AttemptFailure, u64)]) -> AttemptStep {
        let steps = failures
            .iter()
            .map(|(failure, at_ms)| attempts.after(*failure, Duration::from_millis(*at_ms), true));
        let steps: Vec<_> = steps.collect();
        let (last, before) = steps.split_last().unwrap();
        assert!(before.iter().all(|step| *step == AttemptStep::Again), "{failures:?}");
        *last
    }

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_write_that_no_log_has_waits_for_a_hand_over_and_no_longer() {
        for is_repeatable in [false, true] {
            let write = Attempts::of_write(LIMIT, true, is_repeatable);
            assert_eq!(last(write, &[(Leaderless, 10)]), AttemptStep::Again);
            assert_eq!(last(write, &[(Leaderless, 1_900)]), AttemptStep::Again);
            assert_eq!(last(write, &[(Leaderless, 1_990)]), AttemptStep::Fail);
            assert_eq!(last(write, &[(Leaderless, 10), (Refused, 70)]), AttemptStep::Fail);
            let (mut alone, mut short) = (write, Attempts { limit: PAUSE, ..write });
            assert_eq!(alone.after(Leaderless, PAUSE, false), AttemptStep::Fail);
            assert_eq!(short.after(Leaderless, Duration::ZERO, true), AttemptStep::Fail);
        }
        let hint = Attempts::of_write(LIMIT, false, false);
        assert_eq!(last(hint, &[(Leaderless, 10)]), AttemptStep::Fail);
    }

    #[test]
    fn a_write_that_a_log_may_have_is_repeated_only_under_its_id() {
        let nameless = Attempts::of_write(LIMIT, true, false);
        assert_eq!(last(nameless, &[(Unknown, 10)]), AttemptStep::Unknown);
        let named = Attempts::of_write(LIMIT, true, true);
        assert_eq!(last(named, &[(Unknown, 9_900)]), AttemptStep::Again);
        assert_eq!(last(named, &[(Unknown, 9_990)]), AttemptStep::Unknown);
    }

    /// Whatever later attempts fail with, the first one may still be carried out.
    #[test]
    fn an_open_outcome_is_never_reported_as_a_refusal() {
        let named = Attempts::of_write(LIMIT, true, true);
        for failure in [Leaderless, Refused, Unknown] {
            let asked = [(Unknown, 10), (Leaderless, 5_000), (failure, 9_000)];
            assert_eq!(last(named, &asked), AttemptStep::Again, "{failure:?}");
            let late = [(Unknown, 10), (failure, 9_990)];
            assert_eq!(last(named, &late), AttemptStep::Unknown, "{failure:?}");
            let mut lost = named;
            lost.after(Unknown, PAUSE, true);
            assert_eq!(lost.after(failure, LIMIT / 2, false), AttemptStep::Again, "{failure:?}");
        }
    }

    #[test]
    fn a_read_waits_for_a_leader_alone() {
        let read = Attempts::of_read(LIMIT);
        assert_eq!(last(read, &[(Leaderless, 10)]), AttemptStep::Again);
        assert_eq!(last(read, &[(Refused, 10)]), AttemptStep::Fail);
    }
}
