//! Discovery of replicas behind a DNS name.

use std::net::SocketAddr;
use std::time::Duration;

use spillway_resolver::Resolver;
use spillway_tasks::restarted;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::DiscoveredEndpoint;
use super::known::{DiscoveryAnswer, Known};
use super::lookup::AddressLookup;
use super::source_state::Findings;
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
    /// DNS server to ask, over UDP and TCP; `None` asks as `system` does.
    pub resolver: Option<SocketAddr>,
    /// Resolver of the node, with the system's hosts file and DNS servers.
    pub system: Resolver,
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
            system: Resolver::default(),
            timeout: Duration::from_secs(2),
            refresh_min: Duration::from_secs(1),
            refresh_max: Duration::from_secs(30),
            retry_max: Duration::from_secs(5),
            empty_grace: Duration::from_secs(30),
        }
    }

    /// Looks the name up until `stop`, or until the receiver is dropped, on the runtime of the
    /// caller. Nothing is found until a first answer; then the value is sorted and without
    /// repetitions. Only a change of the value is a change of the watch.
    #[must_use]
    pub fn watch(
        self,
        tasks: &TaskTracker,
        seed: u64,
        stop: CancellationToken,
    ) -> watch::Receiver<Findings<Vec<DiscoveredEndpoint>>> {
        let (sender, receiver) = Findings::channel();
        tasks.spawn(async move {
            tokio::select! {
                () = restarted("discovery by DNS", || self.run(&sender, seed)) => {}
                () = sender.closed() => {}
                () = stop.cancelled() => {}
            }
        });
        receiver
    }

    async fn run(&self, sender: &watch::Sender<Findings<Vec<DiscoveredEndpoint>>>, seed: u64) {
        let mut rng = rng(seed, self.question.name());
        let mut backoff = Backoff::new(RETRY_FIRST.min(self.retry_max), self.retry_max);
        let mut known = Known::new(self.empty_grace);
        let mut lookup = AddressLookup::new(self);
        let mut was_failing = false;
        loop {
            let asking = Box::pin(lookup.ask(&self.question));
            let answer = timeout(self.timeout, asking).await.unwrap_or_else(|_| {
                let why = "the name servers do not answer".to_owned();
                DiscoveryAnswer::Failed(why)
            });
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
                DiscoveryAnswer::Failed(why) => {
                    if !was_failing {
                        self.warn(why, sender.borrow().found.as_ref().map(Vec::len));
                    }
                    // A new look-up reads the list of DNS servers again, and forgets what it knew
                    // of them: either may be the reason.
                    lookup = AddressLookup::new(self);
                    backoff.next(&mut rng)
                }
            };
            was_failing = matches!(answer, DiscoveryAnswer::Failed(_));
            let now = Instant::now();
            sender.send_if_modified(|findings| {
                match &answer {
                    DiscoveryAnswer::Endpoints(..) => findings.state.note_answer(false, now),
                    DiscoveryAnswer::Empty => findings.state.note_answer(true, now),
                    DiscoveryAnswer::Failed(why) => findings.state.note_failure(why.clone()),
                }
                let Some(endpoints) = known.note(answer, now) else { return false };
                let (name, count) = (self.question.name(), endpoints.len());
                tracing::info!(name, count, "DNS returned other replicas");
                findings.found = Some(endpoints);
                true
            });
            sleep(pause).await;
        }
    }

    fn warn(&self, why: &str, known: Option<usize>) {
        let name = self.question.name();
        match known {
            Some(replicas) => tracing::warn!(
                name,
                why,
                replicas,
                "no answer from DNS; the replicas that it named last stay in use"
            ),
            None => tracing::warn!(name, why, "no answer from DNS yet; no replica is known"),
        }
    }
}
