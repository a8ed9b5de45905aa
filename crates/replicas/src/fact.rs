//! What was seen of a replica, and the channel that carries it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spillway_types::{LoadReport, ModelsPage, ReplicaName};
use tokio::sync::mpsc;

use crate::check::{CheckKind, CheckResult};
use crate::http::Failure;
use crate::identity::Engine;
use crate::scrape::CacheReport;

/// One observation made outside of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Of whom.
    pub replica: ReplicaName,
    /// When it was known: the end of the check or scrape.
    pub at: Instant,
    /// What was seen.
    pub kind: FactKind,
}

/// What a fact says.
#[derive(Clone, Debug, PartialEq)]
pub enum FactKind {
    /// A check ended.
    Check {
        /// Which one.
        kind: CheckKind,
        /// What it showed.
        result: CheckResult,
        /// How long it took, connecting included.
        took: Duration,
    },
    /// The replica's load. What this page does not tell is `None`, and may stand on another page.
    Report {
        /// Position in [`crate::Target::scrapes`].
        page: usize,
        /// What it told.
        report: LoadReport,
        /// What it told of caches.
        cache: CacheReport,
        /// How long the scrape took: the numbers are no older than this.
        took: Duration,
    },
    /// A page could not be read. Reports made before it only get older.
    ScrapeFailed {
        /// Position in [`crate::Target::scrapes`].
        page: usize,
        /// Why.
        failure: Failure,
    },
    /// Its pages were looked at, and it is this software; `None` if they do not tell. Told with each look.
    Engine(Option<Engine>),
    /// Its page of models was asked for and it answered; `None` if it has none that can be read. Told
    /// with each reading.
    Models(Option<Arc<ModelsPage>>),
    /// The machine is about to be taken away. Told again with every check that says so.
    Notice,
    /// The notice was there before and is no more.
    NoticeWithdrawn,
}

/// Hands facts over without ever waiting: when the channel is full, the fact is dropped and
/// counted. A newer one follows soon, and a monitor that waits would not look at its replica.
#[derive(Clone, Debug)]
pub struct FactSender {
    channel: mpsc::Sender<Fact>,
    dropped: Arc<AtomicU64>,
}

impl FactSender {
    /// Sends into `channel`. Clones share the count of dropped facts.
    #[must_use]
    pub fn new(channel: mpsc::Sender<Fact>) -> Self {
        Self { channel, dropped: Arc::default() }
    }

    /// Facts that found the channel full, or nobody at its end.
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
        Fact { replica: "a".into(), at: Instant::now(), kind: FactKind::Notice }
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
