//! Observations of replicas, and the channel that carries them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spillway_types::{LoadReport, ModelsPage, ReplicaName};
use tokio::sync::mpsc;

use crate::health_check::{CheckKind, CheckResult};
use crate::http::RequestError;
use crate::identity::Engine;
use crate::read_room::ReadHold;
use crate::scrape::{AdapterReport, CacheReport};

/// Observation of a replica, made outside of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Name of the observed replica.
    pub replica: ReplicaName,
    /// Time of the observation: the end of the check or scrape.
    pub at: Instant,
    /// Content of the observation.
    pub kind: FactKind,
    /// Room that the content takes, until the fact is dropped.
    pub hold: FactHold,
}

/// Part of the room of everything that is read from replicas. All are equal.
#[derive(Clone, Debug, Default)]
pub struct FactHold {
    _hold: Option<Arc<ReadHold>>,
}

impl FactHold {
    /// Holds `bytes`; `None` if there is no room.
    pub(crate) fn of(bytes: usize) -> Option<Self> {
        let mut hold = ReadHold::default();
        hold.resize(bytes).then(|| Self { _hold: Some(Arc::new(hold)) })
    }
}

impl PartialEq for FactHold {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Content of a fact.
#[derive(Clone, Debug, PartialEq)]
pub enum FactKind {
    /// A check ended.
    Check {
        /// Kind of check.
        kind: CheckKind,
        /// Result of the check.
        result: CheckResult,
        /// Time that the check took, connecting included.
        took: Duration,
    },
    /// Load of the replica, read from a page. A number that this page lacks is `None`; another page
    /// may have it.
    Report {
        /// Position in [`crate::ReplicaTarget::scrapes`].
        page: usize,
        /// Load that the page reports.
        report: LoadReport,
        /// Figures of the caches that the page reports.
        cache: CacheReport,
        /// Adapters that the page names; `None` if it does not mention adapters.
        adapters: Option<AdapterReport>,
        /// Time that the scrape took: the numbers are no older than this.
        took: Duration,
    },
    /// A page could not be read. Earlier reports stay and get older.
    ScrapeFailed {
        /// Position in [`crate::ReplicaTarget::scrapes`].
        page: usize,
        /// Reason of the failure.
        failure: RequestError,
    },
    /// Server software that the replica's pages show; `None` if they don't. Sent after each look.
    Engine(Option<Engine>),
    /// Models on the replica's page; `None` if it answered and has no page that can be read. Sent
    /// after each reading.
    Models(Option<Arc<ModelsPage>>),
    /// The replica demands another credential for its page of models, with this status.
    ModelsDenied(u16),
    /// The replica did not answer when it was asked for its models.
    ModelsUnread,
    /// The machine is about to be taken away. Sent again after every check that finds the notice.
    Notice,
    /// The earlier notice is gone.
    NoticeWithdrawn,
}

impl FactKind {
    /// Returns true if the replica was asked for its models, whatever it answered.
    #[must_use]
    pub fn is_about_models(&self) -> bool {
        matches!(self, Self::Models(_) | Self::ModelsUnread)
    }
}

/// Sender of facts that never waits. If the channel is full, the fact is dropped and counted: a
/// newer one follows soon, and a monitor that waits would not look at its replica.
#[derive(Clone, Debug)]
pub struct FactSender {
    channel: mpsc::Sender<Fact>,
    dropped: Arc<AtomicU64>,
}

impl FactSender {
    /// Makes a sender into `channel`. Clones share the count of dropped facts.
    #[must_use]
    pub fn new(channel: mpsc::Sender<Fact>) -> Self {
        Self { channel, dropped: Arc::default() }
    }

    /// Returns the number of dropped facts, because the channel was full or closed.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn send(&self, fact: Fact) {
        if self.channel.try_send(fact).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact() -> Fact {
        Fact {
            replica: "a".into(),
            at: Instant::now(),
            kind: FactKind::Notice,
            hold: FactHold::default(),
        }
    }

    #[test]
    fn a_fact_that_finds_the_channel_full_is_dropped_and_counted() {
        let (channel, mut facts) = mpsc::channel(1);
        let sender = FactSender::new(channel);
        sender.send(fact());
        sender.send(fact());
        sender.send(fact());
        assert_eq!(sender.dropped(), 2);
        assert_eq!(facts.try_recv().map(|fact| fact.kind), Ok(FactKind::Notice));
        sender.send(fact());
        assert_eq!(sender.dropped(), 2);
    }
}
