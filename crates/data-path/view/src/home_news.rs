//! Homes of stored responses, sessions and conversations that this node has to send to other nodes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use spillway_types::{RegionName, RouteName};
use tokio::sync::Notify;

use crate::session_homes::{SessionHome, SessionKey};
use crate::stored_responses::StoredResponse;

/// Most news that wait to be taken. They are taken within milliseconds, so that only a node whose
/// other tasks hang drops any.
const WAITING_MAX: usize = 8_192;

/// Home that this node sends to the other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeNews {
    /// A response was stored, and its client may ask any node for it.
    Response {
        /// Id of the response.
        id: Arc<str>,
        /// Response as this node knows it.
        response: StoredResponse,
    },
    /// A session by header began, or moved.
    Session {
        /// Route of the session.
        route: RouteName,
        /// Key of the session, equal at all nodes.
        key: SessionKey,
        /// Home of the session as this node knows it.
        home: SessionHome,
    },
    /// A region served a turn of a conversation.
    Conversation {
        /// Last block of the prompt.
        block: u64,
        /// The region; `None` for the own one.
        region: Option<RegionName>,
    },
}

/// News that wait to be sent. A short lock guards them, and a node without a cluster keeps none.
#[derive(Debug, Default)]
pub struct HomeOutbox {
    is_open: AtomicBool,
    waiting: Mutex<Vec<HomeNews>>,
    filled: Notify,
    dropped: AtomicU64,
    missed: AtomicU64,
}

impl HomeOutbox {
    /// Begins to keep news, since there are other nodes to send them to.
    pub fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Returns true if there are other nodes to send news to.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Adds news, if there are other nodes to send them to.
    pub fn push(&self, news: impl FnOnce() -> HomeNews) {
        if !self.is_open() {
            return;
        }
        let news = news();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= WAITING_MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.push(news);
        let is_first = waiting.len() == 1;
        drop(waiting);
        if is_first {
            self.filled.notify_one();
        }
    }

    /// Returns once news were added since the last call of [`HomeOutbox::take`]. For one task.
    pub async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Takes all news, the oldest first.
    pub fn take(&self) -> Vec<HomeNews> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that other nodes will not get news, since too many wait for them: as many as there are news
    /// and nodes that lack them.
    pub fn note_missed(&self, count: u64) {
        self.missed.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the number of news that other nodes did not get since the start of the node, by the queue
    /// that had no room: of this `node`, or for a `peer`.
    pub fn dropped(&self) -> Vec<(&'static str, u64)> {
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![("node", total(&self.dropped)), ("peer", total(&self.missed))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(block: u64) -> HomeNews {
        HomeNews::Conversation { block, region: None }
    }

    #[tokio::test]
    async fn news_wait_for_a_task_that_tells_them() {
        let outbox = HomeOutbox::default();
        outbox.push(|| turn(1));
        assert!(outbox.take().is_empty(), "there is no other node");
        outbox.open();
        outbox.push(|| turn(2));
        outbox.push(|| turn(3));
        outbox.filled().await;
        assert_eq!(outbox.take(), [turn(2), turn(3)]);
        for block in 0..=WAITING_MAX as u64 {
            outbox.push(|| turn(block));
        }
        outbox.note_missed(2);
        assert_eq!(outbox.take().len(), WAITING_MAX);
        assert_eq!(outbox.dropped(), [("node", 1), ("peer", 2)]);
    }
}
