//! Discovery of replicas behind a DNS name.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::DiscoveredEndpoint;
use super::known::{DiscoveryAnswer, Known};
use super::lookup::AddressLookup;
use crate::pause::{Backoff, rng};

/// Pause after the first failure.
const RETRY_FIRST: Duration = Duration::from_millis(500);

/// DNS name that is looked up again and again.
///
/// A change is noticed within `refresh_max + timeout`, or within the record's TTL if that is less.
/// The end of a DNS outage is noticed within `retry_max + timeout`.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsSource {
    /// Question to DNS.
    pub question: DnsQuestion,
    /// DNS server to ask, over UDP and TCP; `None` uses the system's.
    pub resolver: Option<SocketAddr>,
    /// Time limit of one answer, with all its tries.
    pub timeout: Duration,
    /// Shortest pause between two look-ups. The pause is the TTL of the records, within this limit
    /// and the next.
    pub refresh_min: Duration,
    /// Longest pause between two look-ups.
    pub refresh_max: Duration,
    /// Longest pause after answers that failed or were empty.
    pub retry_max: Duration,
    /// Time for which all answers must be empty before a known set is emptied. Covers a deployment
    /// that removes the old replicas before the new ones come.
    pub empty_grace: Duration,
}

/// Question to DNS. A name without a dot at its end is completed as the system does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsQuestion {
    /// A records, or AAAA records if there are no A records: each address is a replica.
    Address {
        /// Name to look up.
        name: String,
        /// Port of all these replicas.
        port: u16,
    },
    /// SRV records: each record is a replica, with its port and weight. Priorities are ignored.
    Service {
        /// Name to look up, e.g. `_http._tcp.models.example.com.`.
        name: String,
    },
}

impl DnsQuestion {
    /// Returns the name to look up.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Address { name, .. } | Self::Service { name } => name,
        }
    }
}

impl DnsSource {
    /// Makes a source that asks the system's DNS server, at the TTL within 1 s to 30 s.
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

    /// Looks the name up until `stop`, or until the receiver is dropped, on the runtime of the
    /// caller. The value is `None` until a first answer, and then sorted and without repetitions.
    #[must_use]
    pub fn watch(
        self,
        tasks: &TaskTracker,
        seed: u64,
        stop: CancellationToken,
    ) -> watch::Receiver<Option<Vec<DiscoveredEndpoint>>> {
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

    async fn run(&self, sender: &watch::Sender<Option<Vec<DiscoveredEndpoint>>>, seed: u64) {
        let mut rng = rng(seed, self.question.name());
        let mut backoff = Backoff::new(RETRY_FIRST.min(self.retry_max), self.retry_max);
        let mut known = Known::new(self.empty_grace);
        let mut lookup = AddressLookup::new(self);
        let mut was_failing = false;
        loop {
            let asking = Box::pin(lookup.ask(&self.question));
            let answer = timeout(self.timeout, asking).await.unwrap_or(DiscoveryAnswer::Failed);
            let pause = match &answer {
                DiscoveryAnswer::Endpoints(_, ttl) => {
                    backoff.reset();
                    // Up to a tenth sooner, so that many nodes do not ask at the same moment.
                    let sooner = 1.0 - 0.1 * rng.f64();
                    (*ttl)
                        .clamp(self.refresh_min, self.refresh_max.max(self.refresh_min))
                        .mul_f64(sooner)
                }
                // An empty answer may be a gap in a deployment, so the next look-up comes soon.
                DiscoveryAnswer::Empty => backoff.next(&mut rng),
                DiscoveryAnswer::Failed => {
                    if !was_failing {
                        let name = self.question.name();
                        tracing::warn!(name, "no answer from DNS; the last known set stays in use");
                    }
                    // A new look-up reads the list of DNS servers again, and forgets what it knew
                    // of them: either may be the reason.
                    lookup = AddressLookup::new(self);
                    backoff.next(&mut rng)
                }
            };
            was_failing = answer == DiscoveryAnswer::Failed;
            if let Some(endpoints) = known.note(answer, Instant::now()) {
                let (name, count) = (self.question.name(), endpoints.len());
                tracing::info!(name, count, "DNS names other replicas");
                sender.send_replace(Some(endpoints));
            }
            sleep(pause).await;
        }
    }
}
