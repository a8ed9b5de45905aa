//! The end of a node, without losing a request.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use super::Node;

/// Result of a node's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Requests that did not finish in time, guests included: their replies were broken off.
    pub broken_off: u64,
    /// True if every thread ended by itself.
    pub is_clean: bool,
}

impl Stopped {
    /// Returns true if nothing was lost.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.broken_off == 0 && self.is_clean
    }
}

impl Node {
    /// Reports that the node is not ready, hands the lead over, and serves on for the config's
    /// notice. Then stops accepting, lets running requests finish within the config's limit, and
    /// ends. Dropping the future before it is done ends the node at once.
    pub async fn stop(mut self) -> Stopped {
        self.gateway.announce_leaving();
        let hand_over = async {
            if let Some(agreed) = &self.agreed {
                agreed.hand_over().await;
            }
        };
        let ((), deadline) = tokio::join!(hand_over, self.drain_clients());
        if let Some(cluster) = &self.cluster {
            // Guests have the rest of the time.
            cluster.finish_guests(deadline.saturating_duration_since(Instant::now())).await;
        }
        let broken_off = self.gateway.unfinished();
        // Before this node's part in the cluster ends: leases are given back through the log.
        if let Some(division) = &self.division {
            division.leave().await;
        }
        if let Some(agreed) = &self.agreed {
            agreed.shutdown().await;
        }
        if let Some(cluster) = &self.cluster {
            // Guests have had their time.
            cluster.shutdown(Duration::ZERO).await;
        }
        self.stop_workers.cancel();
        self.stop_tasks.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        let threads = std::mem::take(&mut self.threads.handles);
        // Joining blocks, though not for long: the runtimes are told to end.
        let joined = tokio::task::spawn_blocking(move || {
            threads.into_iter().map(JoinHandle::join).all(|thread| thread.is_ok())
        });
        let is_clean = joined.await.unwrap_or(false);
        // Only now have all requests ended.
        let feedback = Arc::clone(&self.feedback);
        let saving = tokio::task::spawn_blocking(move || {
            feedback.collect();
            feedback.usage.save(SystemTime::now());
        });
        let is_saved = saving.await.is_ok();
        Stopped { broken_off, is_clean: is_clean && is_saved }
    }

    /// Serves on for the notice, then lets clients' requests finish. Returns the time by which
    /// everything that is still running has to end.
    async fn drain_clients(&self) -> Instant {
        tokio::time::sleep(self.drain_notice).await;
        self.gateway.start_draining();
        let deadline = Instant::now() + self.drain;
        // The caller counts the requests that are left then.
        drop(tokio::time::timeout_at(deadline.into(), self.gateway.drained()).await);
        deadline
    }
}
