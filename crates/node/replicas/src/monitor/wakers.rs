//! Notifications that end the pause of a monitor's identity check.

use std::time::Duration;

use tokio::select;
use tokio::sync::Notify;
use tokio::time::sleep;

/// Notifications for one monitor.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    identify: Notify,
    read_models: Notify,
}

/// Part of the identity check that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The parts that are due by their time.
    ByTime,
    /// The models.
    Models,
    /// All of it.
    All,
}

impl Wakers {
    /// Has the whole identity check made at once.
    pub(super) fn identify(&self) {
        self.identify.notify_one();
    }

    /// Has the models read at once.
    pub(super) fn read_models(&self) {
        self.read_models.notify_one();
    }

    /// Waits for `length` or a notification, and returns what is to be made then.
    pub(super) async fn rest(&self, length: Duration) -> Due {
        select! {
            biased;
            () = self.identify.notified() => Due::All,
            () = self.read_models.notified() => Due::Models,
            () = sleep(length) => Due::ByTime,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_notification_that_came_before_the_pause_ends_it() {
        let wakers = Wakers::default();
        let hour = Duration::from_secs(3600);
        wakers.read_models();
        wakers.identify();
        assert_eq!(wakers.rest(hour).await, Due::All);
        assert_eq!(wakers.rest(hour).await, Due::Models);
        assert_eq!(wakers.rest(hour).await, Due::ByTime);
    }
}
