//! Prequal: of the replicas with few requests in flight, the one with the lowest latency.

use std::collections::{BTreeMap, VecDeque};

use super::rates::median;
use super::rule::{News, Rule};
use super::view::{Choice, View};

/// Probes in the pool: the paper's `m`.
const POOL: usize = 16;

/// Quantile of requests in flight beyond which a replica is hot: the lower end of the range that
/// the paper found good. Its own 2^-0.25 makes hardly a replica of so few hot.
const HOT_QUANTILE: f64 = 0.6;

/// Latencies that each replica is assumed to have seen that were neither fast nor slow.
const USUAL: f64 = 96.0;

/// Least growth of the latency with each request in flight, as a part of that of an idle replica.
const GROWTH_MIN: f64 = 0.1;

/// Latencies that each replica remembers, and their age in milliseconds: older ones are ignored, so
/// that a replica that was slow once gets requests again.
const LATENCIES_MAX: usize = 64;
const AGE_MS_MAX: u64 = 30_000;

/// Rule of Prequal (Wydrowski et al., "Load is not what you should balance: Introducing Prequal",
/// NSDI 2024, arXiv 2312.10172).
///
/// A replica is hot if it has more requests in flight than the quantile of the pool. Of the others
/// the one with the lowest latency at its number in flight is taken.
///
/// In the paper a server reports the median of recent latencies that were seen at about its present
/// number in flight. It serves thousands of queries a second. A replica serves one or two a second,
/// so few that the median would reflect other prompts rather than another load: implemented like
/// this, the rule had half of round robin's goodput where nothing could be reused. So the growth of
/// the latency (up to the first token) with the number in flight is learned from all replicas
/// together. Each replica then gets a factor for how much slower it is: the median of its recent
/// latencies relative to usual ones.
///
/// The paper's pool has answers of up to a second ago, each used a few times. Here the number in
/// flight is that of the moment, by the node's own count, which favours the rule. Reports of engines
/// would lack the requests that came during their last step, which the paper's servers count.
#[derive(Debug)]
pub(super) struct Prequal {
    seen: Vec<VecDeque<Seen>>,
    /// Requests in flight that each request met, until its reply begins.
    met: BTreeMap<usize, f64>,
}

/// Latency of a request.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at_ms: u64,
    /// Requests in flight at the replica when the request was sent.
    in_flight: f64,
    latency_ms: f64,
}

/// Latency as a straight line over the requests in flight.
#[derive(Clone, Copy, Debug)]
struct Line {
    idle_ms: f64,
    each_ms: f64,
}

impl Line {
    /// Returns the line with the least squares; one that rises by the least growth at least.
    fn through(seen: &[Seen]) -> Self {
        let count = seen.len().max(1) as f64;
        let mean = |value: fn(&Seen) -> f64| seen.iter().map(value).sum::<f64>() / count;
        let in_flight = mean(|one| one.in_flight);
        let latency_ms = mean(|one| one.latency_ms).max(1.0);
        let spread: f64 = seen.iter().map(|one| (one.in_flight - in_flight).powi(2)).sum();
        let common: f64 = seen
            .iter()
            .map(|one| (one.in_flight - in_flight) * (one.latency_ms - latency_ms))
            .sum();
        // The line goes through the means, and so the least growth has this slope.
        let least_ms = GROWTH_MIN * latency_ms / (1.0 + GROWTH_MIN * in_flight);
        let each_ms = if spread > 0.0 { (common / spread).max(least_ms) } else { least_ms };
        let idle_ms = (latency_ms - each_ms * in_flight).max(0.1 * latency_ms);
        Self { idle_ms, each_ms }
    }

    fn at(self, in_flight: f64) -> f64 {
        self.idle_ms + self.each_ms * in_flight
    }
}

impl Prequal {
    pub(super) fn new(replicas: usize) -> Self {
        Self { seen: vec![VecDeque::new(); replicas], met: BTreeMap::new() }
    }

    fn forget(&mut self, now_ms: u64) {
        for seen in &mut self.seen {
            while seen.pop_front_if(|one| one.at_ms + AGE_MS_MAX < now_ms).is_some() {}
        }
    }

    /// Returns the factor by which a replica is slower than all together.
    fn slowness(&self, replica: usize, line: Line) -> f64 {
        let seen = &self.seen[replica];
        let factors = seen.iter().map(|one| one.latency_ms / line.at(one.in_flight)).collect();
        let count = seen.len() as f64;
        (median(factors).unwrap_or(1.0) * count + USUAL) / (count + USUAL)
    }
}

/// Returns the number of requests in flight up to which a replica is cold.
fn cold_max(pool: &[(usize, f64)]) -> f64 {
    let mut loads: Vec<f64> = pool.iter().map(|(_, in_flight)| *in_flight).collect();
    loads.sort_unstable_by(f64::total_cmp);
    let rank = (loads.len() as f64 * HOT_QUANTILE).ceil() as usize;
    loads.get(rank.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
}

impl Rule for Prequal {
    fn choose(&mut self, view: &View<'_>, rng: &mut fastrand::Rng) -> Choice {
        self.forget(view.sight.now_ms);
        let mut drawn: Vec<usize> = view.open().collect();
        rng.shuffle(&mut drawn);
        drawn.truncate(POOL);
        let probe = |replica| (replica, f64::from(view.load(replica)));
        let pool: Vec<(usize, f64)> = drawn.into_iter().map(probe).collect();
        let cold_max = cold_max(&pool);
        let all: Vec<Seen> = self.seen.iter().flatten().copied().collect();
        let line = Line::through(&all);
        let latency_ms =
            |&(replica, load): &(usize, f64)| self.slowness(replica, line) * line.at(load);
        // The pool is in random order, so that equals are drawn.
        let cold = pool.into_iter().filter(|(_, load)| *load <= cold_max);
        let fastest = cold.min_by(|a, b| latency_ms(a).total_cmp(&latency_ms(b)));
        let Some((replica, in_flight)) = fastest else { return Choice::Stay };
        self.met.insert(view.ask.number, in_flight);
        Choice::Replica(replica)
    }

    fn note(&mut self, news: &News<'_>) {
        match news {
            News::Replied(replied) => {
                let Some(in_flight) = self.met.remove(&replied.request) else { return };
                let seen = &mut self.seen[replied.replica];
                if seen.len() == LATENCIES_MAX {
                    seen.pop_front();
                }
                let (at_ms, latency_ms) = (replied.now_ms, replied.first_token_ms);
                seen.push_back(Seen { at_ms, in_flight, latency_ms });
            }
            News::Left(request) => {
                self.met.remove(request);
            }
            News::Sent(_) | News::Ended(_) | News::Forwarded(_) => {}
        }
    }
}
