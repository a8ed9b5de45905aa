//! Age of the agreed cluster state at this node, readable by every request.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// Marks a node that belongs to no cluster.
const APART: i64 = i64::MIN;
/// Marks a node of a cluster that never learned the age of its state.
const UNKNOWN: i64 = i64::MIN + 1;

/// Greatest possible age of the agreed state. One task writes it a few times a second, any reply
/// reads it.
#[derive(Debug)]
pub struct ControlAge {
    born: Instant,
    /// Milliseconds from `born` to the moment when the state was known to be complete, negative
    /// before `born`; or one of the two marks above.
    whole_ms: AtomicI64,
}

/// Knowledge about the age of the agreed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlState {
    /// This node belongs to no cluster, so there is no agreed state.
    Apart,
    /// The state may be of any age: no quorum has answered since this node started.
    Unknown,
    /// The state is no older than this.
    Aged(Duration),
}

impl ControlAge {
    /// Returns the age at a node that belongs to no cluster, until the first note.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { born: now, whole_ms: AtomicI64::new(APART) }
    }

    /// Notes the greatest possible age of the state at this moment.
    pub fn note(&self, state: ControlState, now: Instant) {
        let whole_ms = match state {
            ControlState::Apart => APART,
            ControlState::Unknown => UNKNOWN,
            ControlState::Aged(age) => {
                let passed = now.saturating_duration_since(self.born);
                // No time may equal one of the two marks.
                (milliseconds(passed) - milliseconds(age)).max(UNKNOWN + 1)
            }
        };
        self.whole_ms.store(whole_ms, Ordering::Relaxed);
    }

    /// Returns the greatest possible age at `now`. Without a further note it only grows.
    #[must_use]
    pub fn at(&self, now: Instant) -> ControlState {
        match self.whole_ms.load(Ordering::Relaxed) {
            APART => ControlState::Apart,
            UNKNOWN => ControlState::Unknown,
            whole_ms => {
                let passed = milliseconds(now.saturating_duration_since(self.born));
                let age_ms = u64::try_from(passed.saturating_sub(whole_ms)).unwrap_or(0);
                ControlState::Aged(Duration::from_millis(age_ms))
            }
        }
    }
}

fn milliseconds(time: Duration) -> i64 {
    // Half of the range, so that differences do not overflow.
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).min(i64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_time_until_something_newer_is_noted() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let aged = |ms| ControlState::Aged(Duration::from_millis(ms));
        let age = ControlAge::new(start);
        assert_eq!(age.at(after(5)), ControlState::Apart);
        age.note(ControlState::Unknown, after(5));
        assert_eq!(age.at(after(9_000)), ControlState::Unknown);
        age.note(aged(60_000), after(10));
        assert_eq!(age.at(after(10)), aged(60_000), "older than the node itself");
        assert_eq!(age.at(after(510)), aged(60_500));
        age.note(aged(0), after(600));
        assert_eq!(age.at(after(650)), aged(50));
        assert_eq!(age.at(after(100)), aged(0), "a clock of another thread may be a little behind");
        age.note(ControlState::Aged(Duration::MAX), after(700));
        assert!(matches!(age.at(after(700)), ControlState::Aged(_)));
        age.note(ControlState::Apart, after(800));
        assert_eq!(age.at(after(900)), ControlState::Apart);
    }
}
