//! Replicas behind a DNS name.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Endpoint;
use super::known::{Answer, Known};
use super::lookup::Lookup;
use crate::pause::{Backoff, rng};

/// The pause after the first failure.
const RETRY_FIRST: Duration = Duration::from_millis(500);

/// A name that is asked for again and again.
///
/// A change is noticed within `refresh_max + timeout`, or the record's TTL where that is less; the
/// end of an outage of DNS within `retry_max + timeout`.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsSource {
    /// What is asked.
    pub question: DnsQuestion,
    /// DNS server to ask, over UDP and TCP; `None` takes the system's.
    pub resolver: Option<SocketAddr>,
    /// How long one answer may take, with all its tries.
    pub timeout: Duration,
    /// The name is asked for again at the TTL of its records, but no sooner than this.
    pub refresh_min: Duration,
    /// And no later than this.
    pub refresh_max: Duration,
    /// Longest pause after answers that failed or were empty.
    pub retry_max: Duration,
    /// A set that is known is emptied only by answers that say so for this long. Covers a
    /// deployment that takes the old ones out before the new ones come.
    pub empty_grace: Duration,
}

/// What is asked of DNS. A name without a dot at its end is completed as the system does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsQuestion {
    /// A, and AAAA where there is no A: each address is a replica.
    Address {
        /// The name.
        name: String,
        /// The port of all of them.
        port: u16,
    },
    /// SRV: each record is a replica, with its port and weight. Priorities are ignored.
    Service {
        /// The name, e.g. `_http._tcp.models.example.com.`.
        name: String,
    },
}

impl DnsQuestion {
    /// The name that is asked for.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Address { name, .. } | Self::Service { name } => name,
        }
    }
}

impl DnsSource {
    /// Asks the system's DNS server, at the TTL within 1 s to 30 s.
    #[must_use]
    pub fn new(question: DnsQuestion) -> Self {
        Self {
            question,
            resolver: None,
            timeout: Duration::from_secs(2),
            refresh_min: Duration::from_secs(1),
            refresh_max: Duration::from_secs(30),
            retry_max: Duration::from_secs(5),
            empty_grace: Duration::from_secs(30),
        }
    }

    /// Asks until `stop`, or until nobody listens, on the runtime of the caller. The value is
    /// `None` until something is known, and then in order and without repetitions.
    #[must_use]
    pub fn watch(
        self,
        tasks: &TaskTracker,
        seed: u64,
        stop: CancellationToken,
    ) -> watch::Receiver<Option<Vec<Endpoint>>> {
        let (sender, receiver) = watch::channel(None);
        tasks.spawn(async move {
            tokio::select! {
                () = self.run(&sender, seed) => {}
                () = sender.closed() => {}
                () = stop.cancelled() => {}
            }
        });
        receiver
    }

    async fn run(&self, sender: &watch::Sender<Option<Vec<Endpoint>>>, seed: u64) {
        let mut rng = rng(seed, self.question.name());
        let mut backoff = Backoff::new(RETRY_FIRST.min(self.retry_max), self.retry_max);
        let mut known = Known::new(self.empty_grace);
        let mut lookup = Lookup::new(self);
        let mut was_failing = false;
        loop {
            let asking = Box::pin(lookup.ask(&self.question));
            let answer = timeout(self.timeout, asking).await.unwrap_or(Answer::Failed);
            let pause = match &answer {
                Answer::Endpoints(_, ttl) => {
                    backoff.reset();
                    // Up to a tenth sooner, so that many nodes do not ask at once.
                    let sooner = 1.0 - 0.1 * rng.f64();
                    (*ttl)
                        .clamp(self.refresh_min, self.refresh_max.max(self.refresh_min))
                        .mul_f64(sooner)
                }
                Answer::Empty => backoff.next(&mut rng),
                Answer::Failed => {
                    if !was_failing {
                        let name = self.question.name();
                        tracing::warn!(name, "no answer from DNS; the last known set stays in use");
                    }
                    // What it knew of its servers, or which they were, may be the reason.
                    lookup = Lookup::new(self);
                    backoff.next(&mut rng)
                }
            };
            was_failing = answer == Answer::Failed;
            if let Some(endpoints) = known.note(answer, Instant::now()) {
                let (name, count) = (self.question.name(), endpoints.len());
                tracing::info!(name, count, "DNS names other replicas");
                sender.send_replace(Some(endpoints));
            }
            sleep(pause).await;
        }
    }
}
