//! Drain of a node: its end, without losing a request.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use super::Node;

/// Longest wait for the access log at the end: its reader may hang.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// Longest wait for tasks, threads and the last writes at the end: a disk may hang.
const END_LIMIT: Duration = Duration::from_secs(15);

/// Longest wait for orders that are not in the audit trail yet: there may be no leader.
const ORDERS_PATIENCE: Duration = Duration::from_secs(3);

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
    /// Reports that the node is not ready, transfers leadership, and serves on for the config's
    /// notice. Then stops accepting, lets running requests finish within the config's limit, and
    /// ends. Dropping the future before it is done ends the node at once.
    pub async fn stop(mut self) -> Stopped {
        self.core.data_path.gateway.switches.announce_leaving();
        let hand_over = async {
            if let Some(agreed) = &self.joined.agreed {
                agreed.hand_over().await;
            }
        };
        let ((), deadline) = tokio::join!(hand_over, self.drain_clients());
        if let Some(cluster) = &self.joined.cluster {
            // Guests have the rest of the time.
            cluster.finish_guests(deadline.saturating_duration_since(Instant::now())).await;
        }
        let broken_off = self.core.data_path.gateway.counters.unfinished();
        self.core.data_path.gateway.switches.announce_end();
        // Before this node's part in the cluster ends: leases are given back through the log.
        if let Some(division) = &self.joined.division {
            division.leave().await;
        }
        if let Some(audit) = self.audit.take() {
            let left = audit.finish_orders(ORDERS_PATIENCE).await;
            if left > 0 {
                tracing::warn!(
                    left,
                    "orders to this node are in its log alone: there is no leader"
                );
            }
        }
        if let Some(agreed) = &self.joined.agreed {
            agreed.shutdown().await;
        }
        if let Some(cluster) = &self.joined.cluster {
            // Guests have had their time.
            cluster.shutdown(Duration::ZERO).await;
        }
        self.stop_workers.cancel();
        self.core.tasks.stop.cancel();
        self.core.tasks.tracker.close();
        let is_clean = tokio::time::timeout(END_LIMIT, self.end()).await.unwrap_or_else(|_| {
            tracing::error!(
                "a part of the node does not end, as where a disk hangs: it is given up"
            );
            false
        });
        Stopped { broken_off, is_clean }
    }

    /// Waits for the end of tasks and threads, and writes what they leave. Returns true if all have
    /// ended as they should.
    async fn end(&mut self) -> bool {
        self.core.tasks.tracker.wait().await;
        let threads = std::mem::take(&mut self.threads.handles);
        // Joining blocks, though not for long: the runtimes have been asked to end.
        let joined = tokio::task::spawn_blocking(move || {
            threads.into_iter().map(JoinHandle::join).all(|thread| thread.is_ok())
        });
        let is_clean = joined.await.unwrap_or(false);
        // Only now have all requests ended.
        let outcomes = Arc::clone(&self.core.outcomes);
        let saving = tokio::task::spawn_blocking(move || {
            outcomes.collect();
            outcomes.usage.save(SystemTime::now());
            outcomes.requests.flush(LOG_PATIENCE);
        });
        saving.await.is_ok() && is_clean
    }

    /// Serves on for the notice, then lets clients' requests finish. Returns the time by which
    /// everything that is still running has to end.
    async fn drain_clients(&self) -> Instant {
        let polls = &self.core.data_path.gateway.clients.readiness_polls;
        let notice = self.drain_notice.unwrap_or_else(|| polls.notice(Instant::now()));
        if !notice.is_zero() {
            let notice_ms = u64::try_from(notice.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(
                notice_ms,
                "keeps serving until load balancers have noticed the shutdown"
            );
        }
        tokio::time::sleep(notice).await;
        self.core.data_path.gateway.start_draining();
        let deadline = Instant::now() + self.drain;
        // The caller counts the requests that are left then.
        drop(
            tokio::time::timeout_at(deadline.into(), self.core.data_path.gateway.door.drained())
                .await,
        );
        deadline
    }
}
