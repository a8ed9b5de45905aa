//! Opens the log again after a fault of its disk, by the code of a start.
//!
//! A full disk that has room again, a disk that is mounted again, a file system that was made
//! writable: the node goes on without a restart, which its clients would notice.

use std::sync::Weak;
use std::time::{Duration, Instant};

use spillway_raft::{DiskError, RaftStartError, Role};

use crate::control_plane::ControlPlane;
use crate::start::TakingUp;

/// Time between two looks at a log that runs.
const LOOK: Duration = Duration::from_millis(250);
/// Pause before the first attempt to open the log, doubled after each that fails.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Longest pause between two attempts. An attempt reads the whole log.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Pause after a fault that usually needs an operator.
const RARELY: Duration = Duration::from_secs(60);
/// Time for which a node whose state differs from its cluster's still reports this to the others.
const TELL: Duration = Duration::from_secs(3);
/// Time that a log has to run before the next fault counts as a new one.
const CALM: Duration = Duration::from_secs(60);

/// Begins, for a node whose folder could not be used at its start: by the attempt that still waits
/// for the disk, if there is one, and by others.
pub(crate) async fn begin(control_plane: Weak<ControlPlane>, mut attempt: Option<TakingUp>) {
    let mut pauses = Pauses::default();
    let mut pause = PAUSE_MIN;
    loop {
        let taking_up = match attempt.take() {
            Some(taking_up) => taking_up,
            None => {
                tokio::time::sleep(pause).await;
                let Some(this) = control_plane.upgrade() else { return };
                this.taking_up()
            }
        };
        let taken_up = taking_up.await;
        let Some(this) = control_plane.upgrade() else { return };
        match taken_up {
            Ok(()) => return this.resume(),
            Err(error) => {
                this.halt(&error);
                pause = pauses.after(&error);
            }
        }
    }
}

/// Watches the log, and opens it again when it has stopped.
pub(crate) async fn run(control_plane: Weak<ControlPlane>) {
    let mut pauses = Pauses::default();
    let mut opened = Instant::now();
    while let Some(this) = control_plane.upgrade() {
        let Some(log) = this.log() else { return };
        let status = log.status();
        let is_removed = *this.removed.borrow();
        if status.role != Role::Stopped || is_removed {
            drop((this, log));
            tokio::time::sleep(LOOK).await;
            continue;
        }
        if opened.elapsed() > CALM {
            pauses = Pauses::default();
        }
        this.halt(status.fault.as_deref().unwrap_or("it has ended"));
        drop(this);
        if log.is_apart() {
            // To open it again would change nothing: an operator has to decide.
            tokio::time::sleep(TELL).await;
            return log.shutdown().await;
        }
        // At once: until then openraft logs each message that other nodes send to it.
        log.shutdown().await;
        let mut pause = pauses.next();
        loop {
            tokio::time::sleep(pause).await;
            let Some(this) = control_plane.upgrade() else { return };
            match Box::pin(this.reopen(&log)).await {
                Ok(()) => break this.resume(),
                Err(error) => {
                    this.halt(&error);
                    pause = pauses.after(&error);
                }
            }
        }
        opened = Instant::now();
    }
}

impl ControlPlane {
    fn resume(&self) {
        self.halted.store(None);
        tracing::info!("the replicated log continues: its disk works again");
    }
}

/// Pauses between attempts to open the log, longer from one to the next.
#[derive(Debug, Default)]
struct Pauses(Option<Duration>);

impl Pauses {
    /// Returns the pause after an attempt that failed like this.
    fn after(&mut self, error: &RaftStartError) -> Duration {
        use DiskError::{Damaged, Newer, Replaced};
        match error {
            RaftStartError::Disk(Damaged { .. } | Newer { .. } | Replaced { .. }) => RARELY,
            _ => self.next(),
        }
    }

    fn next(&mut self) -> Duration {
        let pause = self.0.map_or(PAUSE_MIN, |last| (last * 2).min(PAUSE_MAX));
        self.0 = Some(pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut pauses = Pauses::default();
        let first: Vec<u64> = (0..7).map(|_| pauses.next().as_millis() as u64).collect();
        assert_eq!(first, [500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
    }
}
