//! How old what the cluster agreed on can be at this node, for those who ask while they are served.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// This node takes no part in any agreement.
const APART: i64 = i64::MIN;
/// It does, and never heard how things stand.
const UNKNOWN: i64 = i64::MIN + 1;

/// How old the agreed state can be. Written by one task a few times a second, read by any reply.
#[derive(Debug)]
pub struct ControlAge {
    born: Instant,
    /// Milliseconds from `born` to when the state was known to be whole, negative before; or one of
    /// the two above.
    whole_ms: AtomicI64,
}

/// What is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlState {
    /// There is no agreed state here.
    Apart,
    /// It can be of any age: no quorum was heard since this node started.
    Unknown,
    /// It is no older.
    Aged(Duration),
}

impl ControlAge {
    /// Of a node that takes no part in any agreement, up to the first note.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { born: now, whole_ms: AtomicI64::new(APART) }
    }

    /// Notes how old the state can be at this moment.
    pub fn note(&self, state: ControlState, now: Instant) {
        let whole_ms = match state {
            ControlState::Apart => APART,
            ControlState::Unknown => UNKNOWN,
            ControlState::Aged(age) => {
                let passed = now.saturating_duration_since(self.born);
                (milliseconds(passed) - milliseconds(age)).max(UNKNOWN + 1)
            }
        };
        self.whole_ms.store(whole_ms, Ordering::Relaxed);
    }

    /// How old it can be by now. Without a further note it only becomes older.
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
    // Half of what there is, so that differences fit.
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
