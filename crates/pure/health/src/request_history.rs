//! Requests of the last ten minutes and of the last hour: figures for charts, and the findings that
//! requests fail or are refused.

mod cause;
mod finding;
mod first_token_histogram;
mod history_bin;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spillway_route::ShedReason;
use spillway_types::Outcome;

pub use cause::{ClientName, FailureSite, LimitedClient, RequestCause};
pub use finding::{RequestFinding, RequestTrouble};
pub use history_bin::{HistoryBin, sum_bins};

use self::finding::{BadShare, Finder};

/// Length of a bin: a burst of ten seconds shows in a chart, and ten minutes are 120 points.
pub const BIN: Duration = Duration::from_secs(5);
/// Bins that are kept: ten minutes.
const BINS_MAX: usize = 120;
/// Minutes that are kept for comparison: an hour.
const MINUTES_MAX: usize = 60;
const BINS_PER_MINUTE: u64 = 60 / BIN.as_secs();
/// Causes that a bin distinguishes; further ones are counted as [`RequestCause::Other`].
const CAUSES_MAX: usize = 16;
/// Clients, and clients over their limits, that a bin distinguishes; further ones are not counted.
/// A client with most of the requests is among the first ones of nearly every bin.
const CLIENTS_MAX: usize = 16;
/// Refusals per second from which on a client is named: fewer are what limits are for.
const LIMITED_PER_S: f64 = 1.0;
/// Bins over which the refusals of a client are counted: half a minute.
const LIMITED_BINS: usize = 6;

/// Requests of a node by the time of their end.
///
/// Time is given as the time since any fixed moment. Memory is bounded: about 60 KiB, and as much
/// again while requests fail for many reasons.
#[derive(Debug, Default)]
pub struct RequestHistory {
    /// Number of the newest bin since the fixed moment.
    number: u64,
    /// Bins up to that number, the newest last. Only the newest is not complete.
    bins: VecDeque<Bin>,
    /// Minutes up to the one of the newest bin, which is not among them.
    minutes: VecDeque<Counts>,
    minute: Counts,
    failing: Finder,
    refusing: Finder,
}

/// Figures of one bin, for a chart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HistoryPoint {
    /// Requests that ended, per second.
    pub requests_per_s: f64,
    /// Requests among these that failed after they were admitted.
    pub failed_per_s: f64,
    /// Requests among these that the node refused: for lack of room, or for a limit of the client.
    pub refused_per_s: f64,
    /// Requests among these that another region served.
    pub forwarded_per_s: f64,
    /// Requests among these that another region forwarded here.
    pub received_per_s: f64,
    /// Generated tokens per second.
    pub tokens_per_s: f64,
    /// Median time to first token of streams that went well, in milliseconds; `None` without any.
    pub first_token_p50_ms: Option<f64>,
    /// 95th percentile of that time.
    pub first_token_p95_ms: Option<f64>,
}

/// Requests that bins are asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountedRequests {
    /// All requests that ended on the node.
    #[default]
    All,
    /// Requests of the node's own clients. The sum over all nodes has each request once.
    OfClients,
}

/// Requests of a bin.
#[derive(Clone, Debug, Default)]
struct Bin {
    counts: Counts,
    /// Figures of requests of this node's own clients.
    of_clients: HistoryBin,
    /// Figures of requests that other regions forwarded here.
    of_regions: HistoryBin,
    failures: BTreeMap<RequestCause, u32>,
    refusals: BTreeMap<RequestCause, u32>,
    clients: BTreeMap<ClientName, u32>,
    limited_clients: BTreeMap<LimitedClient, u32>,
}

/// Numbers of requests. Those that a limit of the client refused are not among `refused`: they are
/// no sign of trouble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    requests: u32,
    failed: u32,
    refused: u32,
}

impl RequestHistory {
    /// Counts a request that ended now. Call [`RequestHistory::advance`] with the same time before.
    pub fn record(&mut self, outcome: &Outcome) {
        if self.bins.is_empty() {
            self.bins.push_back(Bin::default());
        }
        let Some(bin) = self.bins.back_mut() else { return };
        let mut counts = Counts { requests: 1, ..Counts::default() };
        if outcome.is_guest { &mut bin.of_regions } else { &mut bin.of_clients }.record(outcome);
        count(&mut bin.clients, ClientName::of(outcome), CLIENTS_MAX, None);
        if let Some(shed) = outcome.shed {
            if is_limit(shed.reason) {
                let client = ClientName::of(outcome);
                let limited = LimitedClient { client, reason: shed.reason };
                count(&mut bin.limited_clients, limited, CLIENTS_MAX, None);
            } else {
                counts.refused = 1;
                count_cause(&mut bin.refusals, RequestCause::Refused(shed.reason));
            }
        } else if let Some(failure) = outcome.failure() {
            counts.failed = 1;
            count_cause(&mut bin.failures, RequestCause::of_failure(outcome, failure));
        }
        bin.counts.add(counts);
        self.minute.add(counts);
    }

    /// Goes on to this time since the fixed moment, and looks for trouble in the bins that are
    /// complete then. Call it before each group of requests, and once a second without any.
    pub fn advance(&mut self, since: Duration) {
        let number = since.as_secs() / BIN.as_secs();
        // After a pause of many bins, such as of a machine that slept, only the last ones count.
        let first = number.saturating_sub(BINS_MAX as u64).max(self.number);
        if first > self.number {
            self.bins.clear();
            self.number = first;
        }
        while self.number < number {
            self.number += 1;
            if self.number.is_multiple_of(BINS_PER_MINUTE) {
                push(&mut self.minutes, std::mem::take(&mut self.minute), MINUTES_MAX);
            }
            self.look();
            push(&mut self.bins, Bin::default(), BINS_MAX);
        }
    }

    /// Returns what is found: changes when a bin is complete.
    #[must_use]
    pub fn findings(&self) -> Vec<RequestFinding> {
        let failing = self.failing.state().map(|state| {
            let causes = self.causes(state.bins, |bin| &bin.failures);
            RequestFinding {
                trouble: RequestTrouble::Failing,
                usual: state.usual,
                share: state.share,
                causes,
            }
        });
        let refusing = self.refusing.state().map(|state| {
            let causes = self.causes(state.bins, |bin| &bin.refusals);
            RequestFinding {
                trouble: RequestTrouble::Refused,
                usual: state.usual,
                share: state.share,
                causes,
            }
        });
        failing.into_iter().chain(refusing).collect()
    }

    /// Returns the clients that are refused at least once a second for a limit of their own, with
    /// refusals per second, the most refused first.
    #[must_use]
    pub fn limited_clients(&self) -> Vec<(LimitedClient, f64)> {
        let mut sums: BTreeMap<&LimitedClient, u32> = BTreeMap::new();
        for bin in self.complete().rev().take(LIMITED_BINS) {
            for (client, refused) in &bin.limited_clients {
                *sums.entry(client).or_default() += refused;
            }
        }
        let seconds = BIN.as_secs_f64() * LIMITED_BINS as f64;
        let rates =
            sums.into_iter().map(|(client, sum)| (client.clone(), f64::from(sum) / seconds));
        let mut rates: Vec<_> = rates.filter(|(_, rate)| *rate >= LIMITED_PER_S).collect();
        rates.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        rates
    }

    /// Returns the client with most requests in the last half minute, and its share of them; `None`
    /// without requests.
    #[must_use]
    pub fn busiest_client(&self) -> Option<(ClientName, f64)> {
        let mut sums: BTreeMap<&ClientName, u32> = BTreeMap::new();
        let mut all: u32 = 0;
        for bin in self.bins.iter().rev().take(LIMITED_BINS) {
            all = all.saturating_add(bin.counts.requests);
            for (client, requests) in &bin.clients {
                *sums.entry(client).or_default() += requests;
            }
        }
        let (client, most) = sums.into_iter().max_by_key(|(_, sum)| *sum)?;
        Some((client.clone(), f64::from(most) / f64::from(all.max(1))))
    }

    /// Returns the figures of the complete bins, the oldest first.
    #[must_use]
    pub fn points(&self) -> Vec<HistoryPoint> {
        self.complete().map(|bin| bin.all().point()).collect()
    }

    /// Returns the complete bins, the oldest first.
    #[must_use]
    pub fn bins(&self, counted: CountedRequests) -> Vec<HistoryBin> {
        let figures = |bin: &Bin| match counted {
            CountedRequests::All => bin.all(),
            CountedRequests::OfClients => bin.of_clients.clone(),
        };
        self.complete().map(figures).collect()
    }

    /// Returns the bins that are complete, the oldest first.
    fn complete(&self) -> impl DoubleEndedIterator<Item = &Bin> + ExactSizeIterator {
        self.bins.range(..self.bins.len().saturating_sub(1))
    }

    /// Looks at the bins up to the newest, which is complete now.
    fn look(&mut self) {
        let bins: Vec<Counts> = self.bins.iter().rev().map(|bin| bin.counts).collect();
        let look = |finder: &mut Finder, of: fn(&Counts) -> u32| {
            let shares: Vec<_> = bins.iter().map(|it| BadShare::of(of(it), it.requests)).collect();
            finder.look(&shares, |newest| {
                let newest = &bins[..newest.min(bins.len())];
                usual(self.minutes.iter().chain([&self.minute]), newest, of)
            });
        };
        look(&mut self.failing, |it| it.failed);
        look(&mut self.refusing, |it| it.refused);
    }

    /// Returns the causes in the last bins with their shares of the requests that went wrong, the
    /// most frequent first.
    fn causes(
        &self,
        bins: usize,
        of: impl Fn(&Bin) -> &BTreeMap<RequestCause, u32>,
    ) -> Vec<(RequestCause, f64)> {
        let mut sums: BTreeMap<&RequestCause, u32> = BTreeMap::new();
        for bin in self.bins.iter().rev().take(bins + 1) {
            for (cause, number) in of(bin) {
                *sums.entry(cause).or_default() += number;
            }
        }
        let all = f64::from(sums.values().sum::<u32>().max(1));
        let mut causes: Vec<_> =
            sums.into_iter().map(|(cause, sum)| (cause.clone(), f64::from(sum) / all)).collect();
        causes.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        causes
    }
}

impl Bin {
    /// Returns the figures of all requests.
    fn all(&self) -> HistoryBin {
        let mut all = self.of_clients.clone();
        all.add(&self.of_regions);
        all
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.failed = self.failed.saturating_add(other.failed);
        self.refused = self.refused.saturating_add(other.refused);
    }
}

/// Returns the share of bad requests in minutes, without those of the newest bins; `None` without
/// requests.
fn usual<'a>(
    minutes: impl Iterator<Item = &'a Counts>,
    newest: &[Counts],
    bad: fn(&Counts) -> u32,
) -> Option<f64> {
    let add = |(all, sum): (u64, u64), it: &Counts| {
        (all + u64::from(it.requests), sum + u64::from(bad(it)))
    };
    let (all, all_bad) = minutes.fold((0, 0), add);
    let (newest, newest_bad) = newest.iter().fold((0, 0), add);
    let requests = all.saturating_sub(newest);
    (requests > 0).then(|| all_bad.saturating_sub(newest_bad) as f64 / requests as f64)
}

fn is_limit(reason: &str) -> bool {
    ShedReason::ALL.iter().any(|it| it.is_limit() && it.name() == reason)
}

fn count_cause(causes: &mut BTreeMap<RequestCause, u32>, cause: RequestCause) {
    count(causes, cause, CAUSES_MAX, Some(RequestCause::Other));
}

/// Counts `key` in a map of at most `max` keys, and `rest`, if there is one, in place of further keys.
fn count<K: Ord>(map: &mut BTreeMap<K, u32>, key: K, max: usize, rest: Option<K>) {
    let is_full = map.len() >= max && !map.contains_key(&key);
    let Some(key) = (if is_full { rest } else { Some(key) }) else { return };
    *map.entry(key).or_default() += 1;
}

fn push<T>(ring: &mut VecDeque<T>, value: T, max: usize) {
    if ring.len() >= max {
        ring.pop_front();
    }
    ring.push_back(value);
}

#[cfg(test)]
mod request_history_test;
