//! Waits for a lead that is being handed over.

use std::time::{Duration, Instant};

use spillway_consensus::{Consensus, Role, Status};

use crate::machine::Replica;

/// How long a write or read waits for a lead that is being handed over: one that is refused without
/// need is one that every client has to repeat.
const LIMIT: Duration = Duration::from_secs(2);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// Who has heard no leader for so long has none. With one more look that is less than the longest
/// lease (1.5 s), by whose end everything has to be refused at once.
const LED_LATELY: Duration = Duration::from_millis(1_400);

/// Waits for a lead that is being handed over, which takes some round trips.
#[derive(Debug)]
pub(crate) struct Settling {
    by: Instant,
}

impl Settling {
    /// Waits at most for `limit`, and not longer than a hand-over takes.
    pub(crate) fn until(limit: Duration) -> Self {
        Self { by: Instant::now() + limit.min(LIMIT) }
    }

    /// After a refusal for want of a quorum: waits, and says whether another try makes sense.
    /// Nothing was written.
    pub(crate) async fn wait(&self, log: &Consensus<Replica>) -> bool {
        if Instant::now() >= self.by || !was_led(&log.status()) {
            return false;
        }
        tokio::time::sleep(PAUSE).await;
        true
    }
}

/// Whether this node heard a leader, or led with a quorum, a moment ago.
fn was_led(status: &Status) -> bool {
    match status.role {
        Role::Stopped | Role::IsolatedLeader => false,
        // One that has just been elected has heard no quorum yet.
        Role::Leader => status.age.is_none_or(|age| age < LED_LATELY),
        _ => status.age.is_some_and(|age| age < LED_LATELY),
    }
}

#[cfg(test)]
mod tests {
    use spillway_consensus::DiskId;

    use super::*;

    #[test]
    fn only_who_was_led_a_moment_ago_waits() {
        let status = |role, age_ms: Option<u64>| Status {
            role,
            age: age_ms.map(Duration::from_millis),
            ..Status::outside(DiskId(1))
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
}
