//! Metrics with the labels route and model, found without building label strings.
//!
//! The feedback task records every request; looking up labels in the registry for each of them cost
//! about 3 % of the node's CPU at 1 KB requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use spillway_types::{End, ModelName, Outcome, RouteName};

use crate::catalog::{MetricSpec, caches, requests};
use crate::prediction_error::PredictionError;
use crate::register::{Labels, metric, registered};
use crate::stream_gaps::StreamGaps;

/// A histogram per label set.
pub(crate) type Histograms = Family<Labels, Histogram, fn() -> Histogram>;
/// A histogram per label set that names a recorded trace for each of its buckets.
type TracedHistograms = Family<Labels, TracedHistogram, fn() -> TracedHistogram>;
type TracedHistogram = HistogramWithExemplars<Vec<(&'static str, String)>>;
/// A gauge of seconds or shares per label set.
type Quantiles = Family<Labels, Gauge<f64, AtomicU64>>;
/// Route and model of a request, as far as known.
type Key = (Option<RouteName>, Option<ModelName>);

/// Label value of a route or model that the config does not name.
const UNKNOWN: &str = "unknown";
/// Values of the label `kind` of tokens.
const TOKEN_KINDS: [&str; 4] = ["prompt", "completion", "cached", "estimated"];
/// Values of the label `kind` of estimates of cached tokens.
const ESTIMATE_KINDS: [&str; 2] = ["expected", "reported"];
/// Quantiles of prediction errors that are shown.
const QUANTILES: [(&str, f64); 2] = [("0.5", 0.5), ("0.9", 0.9)];
/// Number of predictions after which all earlier ones count half, so that the quantiles describe
/// the last few thousand.
const PREDICTIONS_MAX: u64 = 4_096;

registered! {
    /// Metrics with the labels route and model.
    #[derive(Debug)]
    pub(crate) struct RouteModelFamilies {
        requests: Family<Labels, Counter> = metric(requests::REQUESTS),
        first_token: TracedHistograms = traced_seconds(requests::FIRST_TOKEN),
        reply: TracedHistograms = traced_seconds(requests::REPLY),
        duration: TracedHistograms = traced_seconds(requests::DURATION),
        overhead: Histograms = seconds(requests::OVERHEAD),
        tokens: Family<Labels, Counter> = metric(requests::TOKENS),
        prediction_error: Quantiles = metric(caches::PREDICTION_ERROR),
        prediction_ratio: Quantiles = metric(caches::PREDICTION_ERROR_RATIO),
        cache_estimate: Family<Labels, Counter> = metric(caches::CACHE_ESTIMATE),
        gaps: Arc<StreamGaps> = stream_gaps(),
    }
}

/// Routes and models seen so far; the config bounds their number.
#[derive(Debug, Default)]
pub(crate) struct RouteModels(BTreeMap<Key, RouteModelMetrics>);

impl RouteModels {
    pub(crate) fn of(
        &mut self,
        outcome: &Outcome,
        families: &RouteModelFamilies,
    ) -> &mut RouteModelMetrics {
        let key = (outcome.route.clone(), outcome.model.clone());
        self.0.entry(key).or_insert_with_key(|(route, model)| {
            let route = route.as_ref().map_or(UNKNOWN, |name| name.as_str());
            let model = model.as_ref().map_or(UNKNOWN, |name| name.as_str());
            RouteModelMetrics::new(route, model, families)
        })
    }
}

impl RouteModels {
    /// Updates the metrics that the registry itself does not keep.
    pub(crate) fn show(&self, families: &RouteModelFamilies) {
        self.0.values().for_each(|place| place.show(families));
    }
}

/// Metrics of one route and model.
#[derive(Debug)]
pub(crate) struct RouteModelMetrics {
    route: String,
    model: String,
    requests: BTreeMap<(u16, End), Counter>,
    /// Counters in the order of [`TOKEN_KINDS`]; each is made at its first token, so that none
    /// shows a zero.
    tokens: [Option<Counter>; TOKEN_KINDS.len()],
    first_token: TracedHistogram,
    reply: TracedHistogram,
    duration: TracedHistogram,
    overhead: Histogram,
    /// Counters in the order of [`ESTIMATE_KINDS`], made at the first comparison.
    cache_estimate: Option<[Counter; 2]>,
    /// Errors of predictions; made at the first prediction.
    predictions: Option<Box<PredictionError>>,
}

impl RouteModelMetrics {
    fn new(route: &str, model: &str, families: &RouteModelFamilies) -> Self {
        let labels = vec![("route", route.to_owned()), ("model", model.to_owned())];
        Self {
            first_token: families.first_token.get_or_create_owned(&labels),
            reply: families.reply.get_or_create_owned(&labels),
            duration: families.duration.get_or_create_owned(&labels),
            overhead: families.overhead.get_or_create_owned(&labels),
            requests: BTreeMap::new(),
            tokens: [const { None }; TOKEN_KINDS.len()],
            cache_estimate: None,
            predictions: None,
            route: route.to_owned(),
            model: model.to_owned(),
        }
    }

    pub(crate) fn record(&mut self, outcome: &Outcome, families: &RouteModelFamilies) {
        let ending = (outcome.status, outcome.end);
        // The registry is asked only once for each status and end.
        if let Some(counter) = self.requests.get(&ending) {
            counter.inc();
        } else {
            let counter = self.counter_of(outcome.status, outcome.end, families);
            counter.inc();
            self.requests.insert(ending, counter);
        }
        let exemplar = || {
            let trace = outcome.trace.filter(|trace| trace.is_sampled)?;
            Some(vec![("trace_id", format!("{:032x}", trace.trace))])
        };
        self.duration.observe(outcome.duration.as_secs_f64(), exemplar(), None);
        // Without an attempt there is no time before the first one.
        if outcome.replica.is_some() {
            self.overhead.observe(outcome.overhead.as_secs_f64());
        }
        if let Some(first_token) = outcome.first_token() {
            self.first_token.observe(first_token.as_secs_f64(), exemplar(), None);
        }
        if let Some(reply) = outcome.whole_reply() {
            self.reply.observe(reply.as_secs_f64(), exemplar(), None);
        }
        if let Some(gaps) = &outcome.gaps {
            families.gaps.merge(&self.route, &self.model, gaps);
        }
        self.record_tokens(outcome, families);
        self.record_prediction(outcome, families);
    }

    fn counter_of(&self, status: u16, end: End, families: &RouteModelFamilies) -> Counter {
        let labels = self.labels([("status", status.to_string()), ("end", end.name().to_owned())]);
        families.requests.get_or_create_owned(&labels)
    }

    fn record_tokens(&mut self, outcome: &Outcome, families: &RouteModelFamilies) {
        let tokens = outcome.tokens;
        let estimated = outcome.estimate.map_or(0, |estimate| estimate.tokens);
        let counts = [tokens.prompt, tokens.completion, tokens.cached, estimated];
        for (index, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            if self.tokens[index].is_none() {
                let labels = self.labels([("kind", TOKEN_KINDS[index].to_owned())]);
                self.tokens[index] = Some(families.tokens.get_or_create_owned(&labels));
            }
            if let Some(counter) = &self.tokens[index] {
                counter.inc_by(count);
            }
        }
    }

    /// Compares a prediction with the reply. The time to first token counts for streams only: other
    /// replies do not show it.
    fn record_prediction(&mut self, outcome: &Outcome, families: &RouteModelFamilies) {
        let Some(predicted) = &outcome.predicted else { return };
        // Failed and broken replies say nothing about the prediction.
        if outcome.end != End::Complete || outcome.status != 200 {
            return;
        }
        if let Some(seen) = outcome.reply_time.filter(|_| outcome.gaps.is_some()) {
            let predictions = self.predictions.get_or_insert_default();
            predictions.note(predicted.first_token_ms, seen.as_secs_f32() * 1_000.0);
            if predictions.count() > PREDICTIONS_MAX {
                predictions.halve();
            }
        }
        // Only replies that report their usage can be compared.
        if outcome.tokens.prompt > 0 && outcome.estimate.is_none() {
            let tokens = [u64::from(predicted.cached_tokens), outcome.tokens.cached];
            let counters = match &self.cache_estimate {
                Some(counters) => counters,
                None => &*self.cache_estimate.insert(ESTIMATE_KINDS.map(|kind| {
                    let labels = self.labels([("kind", kind.to_owned())]);
                    families.cache_estimate.get_or_create_owned(&labels)
                })),
            };
            for (counter, tokens) in counters.iter().zip(tokens) {
                counter.inc_by(tokens);
            }
        }
    }

    fn show(&self, families: &RouteModelFamilies) {
        let Some(predictions) = &self.predictions else { return };
        for (quantile, share) in QUANTILES {
            let labels = self.labels([("quantile", quantile.to_owned())]);
            let error_s = predictions.absolute_ms(share).map(|error_ms| error_ms / 1_000.0);
            for (family, value) in [
                (&families.prediction_error, error_s),
                (&families.prediction_ratio, predictions.relative(share)),
            ] {
                if let Some(value) = value {
                    family.get_or_create(&labels).set(f64::from(value));
                }
            }
        }
    }

    fn labels<const N: usize>(&self, more: [(&'static str, String); N]) -> Labels {
        let mut labels = vec![("route", self.route.clone()), ("model", self.model.clone())];
        labels.extend(more);
        labels
    }
}

/// Returns bounds from 0.25 ms to about 9 minutes, doubling: a reply can take 50 ms or 30 minutes.
fn bounds() -> impl Iterator<Item = f64> {
    exponential_buckets(0.000_25, 2.0, 22)
}

pub(crate) fn seconds(registry: &mut Registry, spec: &MetricSpec) -> Histograms {
    let family = Histograms::new_with_constructor(|| Histogram::new(bounds()));
    registry.register(spec.name, spec.help(), family.clone());
    family
}

fn traced_seconds(registry: &mut Registry, spec: &MetricSpec) -> TracedHistograms {
    let family = TracedHistograms::new_with_constructor(|| HistogramWithExemplars::new(bounds()));
    registry.register(spec.name, spec.help(), family.clone());
    family
}

/// Registers the collector of gaps between tokens, which has its metric of the catalog itself.
fn stream_gaps(registry: &mut Registry) -> Arc<StreamGaps> {
    let gaps = Arc::new(StreamGaps::default());
    registry.register_collector(Box::new(Arc::clone(&gaps)));
    gaps
}
