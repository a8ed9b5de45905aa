//! llm-d's hub: the cluster with the least predicted time to first token, from the replies seen so
//! far.

use std::collections::BTreeMap;

use super::llmd::LlmD;
use super::rule::{News, Rule};
use super::seen_curve::SeenCurve;
use super::view::{Choice, View};
use crate::router::{NodePosition, Stage};

/// Probability that a request probes a cluster of which too little was seen: `explorationRate`.
const PROBES: f64 = 0.1;

/// Rule of llm-d's hub with `latency-observation-scorer-hub` (llm-d/llm-d-router, alpha), in each
/// region, with the own region as one of the clusters: the cluster with the least time to first token
/// that its [`SeenCurve`] has for the requests of this hub that are in flight there. In the region
/// llm-d's picker decides.
///
/// A cluster without a trusted curve gets one request in ten, once another one has a curve. The hub
/// knows nothing of prompts or caches: with its prefix scorer it would be another rule, for which no
/// weights are published.
#[derive(Debug)]
pub(super) struct LlmDHub {
    region: usize,
    curves: Vec<SeenCurve>,
    /// Requests of this hub in flight at each cluster.
    in_flight: Vec<u32>,
    requests: BTreeMap<usize, Dispatched>,
}

/// Request that the hub sent to a cluster.
#[derive(Clone, Copy, Debug)]
struct Dispatched {
    region: usize,
    at_ms: u64,
    /// Requests in flight there before this one.
    met: u32,
    has_begun: bool,
}

impl LlmDHub {
    pub(super) fn new(position: &NodePosition) -> Self {
        Self {
            region: position.region,
            curves: (0..position.regions).map(|_| SeenCurve::default()).collect(),
            in_flight: vec![0; position.regions],
            requests: BTreeMap::new(),
        }
    }

    /// Returns the cluster with the highest score; of equals the own one, then the nearest.
    fn pick(&self, view: &View<'_>, rng: &mut fastrand::Rng) -> usize {
        let is_there =
            |other: &&crate::router::RemoteRegion| other.report.is_some() && other.replicas > 0;
        let mut others: Vec<_> = view.regions().iter().filter(is_there).collect();
        others.sort_by(|a, b| a.rtt_ms.total_cmp(&b.rtt_ms));
        let clusters = [self.region].into_iter().chain(others.iter().map(|other| other.region));
        let predicted: Vec<(usize, Option<f64>)> = clusters
            .map(|at| (at, self.curves[at].predict(view.sight.now_ms, self.in_flight[at])))
            .collect();
        let has_trusted = predicted.iter().any(|(_, ms)| ms.is_some());
        let least_ms = predicted.iter().filter_map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min);
        let mut score = |ms: Option<f64>| match ms {
            // Scores are scaled from the worst cluster to the best one, which leaves their order.
            Some(ms) => -ms,
            None if !has_trusted => 0.0,
            None if rng.f64() < PROBES => -least_ms,
            None => f64::NEG_INFINITY,
        };
        let scored: Vec<(usize, f64)> = predicted.iter().map(|&(at, ms)| (at, score(ms))).collect();
        let best = scored.iter().map(|(_, score)| *score).fold(f64::NEG_INFINITY, f64::max);
        // Where nothing is known yet, and where a probe equals the best, chance decides.
        let equals: Vec<usize> =
            scored.iter().filter(|(_, score)| *score == best).map(|(at, _)| *at).collect();
        equals[rng.usize(..equals.len())]
    }

    fn dispatch(&mut self, request: usize, region: usize, now_ms: u64) {
        self.forget(request);
        let met = self.in_flight[region];
        let dispatched = Dispatched { region, at_ms: now_ms, met, has_begun: false };
        self.requests.insert(request, dispatched);
        self.in_flight[region] += 1;
    }

    fn begun(&mut self, request: usize, now_ms: u64) {
        let Some(one) = self.requests.get_mut(&request) else { return };
        if !one.has_begun {
            one.has_begun = true;
            self.curves[one.region].see(now_ms, (now_ms - one.at_ms) as f64, one.met);
        }
    }

    fn forget(&mut self, request: usize) {
        if let Some(one) = self.requests.remove(&request) {
            self.in_flight[one.region] -= 1;
        }
    }
}

impl Rule for LlmDHub {
    fn choose(&mut self, view: &View<'_>, rng: &mut fastrand::Rng) -> Choice {
        // Guests, and retries within the region, are the picker's alone.
        if view.may_leave && view.tried.is_empty() {
            let region = self.pick(view, rng);
            self.dispatch(view.ask.number, region, view.sight.now_ms);
            if region != self.region {
                return Choice::Region(region);
            }
        }
        LlmD.choose(view, rng)
    }

    fn note(&mut self, news: &News<'_>) {
        match news {
            News::Replied(replied) => self.begun(replied.request, replied.now_ms),
            News::Ended(ended) => self.forget(ended.request),
            News::Forwarded(forwarded) => match forwarded.stage {
                Stage::Sent => {}
                Stage::Replied { .. } => self.begun(forwarded.request, forwarded.now_ms),
                Stage::Ended { .. } | Stage::Refused => self.forget(forwarded.request),
            },
            News::Left(request) => {
                if self.requests.get(request).is_some_and(|one| !one.has_begun) {
                    self.forget(*request);
                }
            }
            News::Sent(_) => {}
        }
    }
}
