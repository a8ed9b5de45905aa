//! Short waits for a leadership that is being handed over.

use std::time::{Duration, Instant};

use spillway_raft::{Consensus, Role, Status};

use crate::machine::StateMachine;

/// Longest time that a write or read waits for a hand-over. Without the wait, every client would
/// have to repeat the request.
const LIMIT: Duration = Duration::from_secs(2);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// A node that has heard no leader for so long has none. With one more attempt, this is shorter
/// than the longest lease (1.5 s): when a lease ends, everything has to be refused at once.
const LED_LATELY: Duration = Duration::from_millis(1_400);

/// Wait for a leadership that is being handed over, which takes some round trips.
#[derive(Debug)]
pub(crate) struct Settling {
    by: Instant,
}

impl Settling {
    /// Starts a wait of at most `limit`, and no longer than a hand-over takes.
    pub(crate) fn until(limit: Duration) -> Self {
        Self { by: Instant::now() + limit.min(LIMIT) }
    }

    /// Waits after a refusal for lack of a quorum. Returns true if another attempt makes sense; the
    /// refused one wrote nothing.
    pub(crate) async fn wait(&self, log: &Consensus<StateMachine>) -> bool {
        if Instant::now() >= self.by || !was_led(&log.status()) {
            return false;
        }
        tokio::time::sleep(PAUSE).await;
        true
    }
}

/// Returns true if this node heard a leader, or led with a quorum, a moment ago.
fn was_led(status: &Status) -> bool {
    match status.role {
        Role::Stopped | Role::IsolatedLeader => false,
        // A leader that has just been elected has heard no quorum yet.
        Role::Leader => status.age.is_none_or(|age| age < LED_LATELY),
        _ => status.age.is_some_and(|age| age < LED_LATELY),
    }
}

#[cfg(test)]
mod tests {
    use spillway_raft::DiskId;

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
