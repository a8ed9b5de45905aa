//! Mapping from the metrics on a page to a load report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_types::LoadReport;

use super::adapters::{AdapterMapping, AdapterReport};
use super::cache_report::CacheReport;
use super::selector::Selector;
use super::text::{Labels, Sample, samples};

/// Metrics for each field of a report. A field without a mapping is not on the page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Mapping {
    /// Requests that wait in the server.
    pub queued: Option<FieldMapping>,
    /// Requests in progress.
    pub running: Option<FieldMapping>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_use: Option<FieldMapping>,
    /// Share of time the GPU was busy, 0 to 1.
    pub gpu_use: Option<FieldMapping>,
    /// Share of the GPU's memory in use, 0 to 1.
    pub gpu_memory_use: Option<FieldMapping>,
    /// Work ahead of a new request, in the server's own unit.
    pub pending: Option<FieldMapping>,
    /// Capacity of the KV cache in tokens.
    pub cache_tokens: Option<FieldMapping>,
    /// Prompt tokens ever looked up in the prefix cache.
    pub cache_queries: Option<FieldMapping>,
    /// Prompt tokens found in the prefix cache, out of those looked up.
    pub cache_hits: Option<FieldMapping>,
    /// Start time of the process in seconds since 1970; a new time means that its caches are empty.
    pub started_s: Option<FieldMapping>,
    /// Metrics that name the adapters in the server's memory. The first one that the page has is used.
    pub adapters: Vec<AdapterMapping>,
}

/// Source of one number on a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldMapping {
    /// Metrics to read. The first one that the page has is used, because names change between
    /// versions.
    pub metrics: Vec<Selector>,
    /// Rule for combining several samples, such as those of several models or GPUs.
    #[serde(default)]
    pub combine: Combine,
    /// Factor for the value; 0.01 converts a percentage to a share.
    #[serde(default = "one")]
    pub scale: f64,
    /// Metrics whose sum divides the sum of the samples, such as the total in used / total. All of
    /// them must be on the page.
    #[serde(default)]
    pub ratio_to: Vec<Selector>,
    /// Labels whose numbers, multiplied, replace the sample's value: some servers report constants
    /// as labels.
    #[serde(default)]
    pub labels: Vec<String>,
}

/// Rule for several samples of one metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Combine {
    /// Sum of the samples: right for counts.
    #[default]
    Sum,
    /// Mean of the samples: right for shares.
    Mean,
}

impl FieldMapping {
    /// Makes the sum of the samples of the first of these metrics that the page has.
    pub(crate) fn sum(metrics: impl IntoIterator<Item = Selector>) -> Self {
        let metrics = metrics.into_iter().collect();
        let (ratio_to, labels) = (Vec::new(), Vec::new());
        Self { metrics, combine: Combine::Sum, scale: 1.0, ratio_to, labels }
    }

    /// Makes the mean of the samples of the first of these metrics that the page has, times
    /// `scale`.
    pub(crate) fn mean(metrics: impl IntoIterator<Item = Selector>, scale: f64) -> Self {
        Self { combine: Combine::Mean, scale, ..Self::sum(metrics) }
    }

    /// Makes the sum, over the samples of a metric, of the product of these labels.
    pub(crate) fn product(metric: Selector, labels: &[&str]) -> Self {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Self { labels, ..Self::sum([metric]) }
    }

    /// Makes the sum of `part` divided by the sum of `whole`.
    pub(crate) fn ratio(part: Selector, whole: impl IntoIterator<Item = Selector>) -> Self {
        Self { ratio_to: whole.into_iter().collect(), ..Self::sum([part]) }
    }

    fn selectors(&self) -> impl Iterator<Item = &Selector> {
        self.metrics.iter().chain(&self.ratio_to)
    }
}

impl Mapping {
    /// Reads a page; never fails. A number that is missing or not valid is `None`. Shares are
    /// limited to 0 to 1; samples below 0 are left out.
    #[must_use]
    pub fn read(&self, page: &[u8]) -> (LoadReport, CacheReport) {
        let mut tallies: Vec<MappingTally<'_>> =
            self.fields().flat_map(MappingTally::of_field).collect();
        let is_wanted = |name: &[u8]| {
            self.fields()
                .flat_map(FieldMapping::selectors)
                .any(|wanted| wanted.name().as_bytes() == name)
        };
        for sample in samples(page, is_wanted) {
            for tally in &mut tallies {
                let selector = tally.selector;
                if selector.name().as_bytes() == sample.name && selector.matches(sample.labels) {
                    tally.take(&sample);
                }
            }
        }
        let exact = |field: &Option<FieldMapping>| field.as_ref()?.evaluate(&tallies);
        let read = |field| {
            // The cast saturates, which no sensible number reaches.
            let value = exact(field)? as f32;
            value.is_finite().then_some(value)
        };
        let share = |field| read(field).map(|value| value.min(1.0));
        let load = LoadReport {
            queued: read(&self.queued),
            running: read(&self.running),
            kv_use: share(&self.kv_use),
            gpu_use: share(&self.gpu_use),
            gpu_memory_use: share(&self.gpu_memory_use),
            pending: read(&self.pending),
        };
        let cache = CacheReport {
            tokens: exact(&self.cache_tokens),
            queries: exact(&self.cache_queries),
            hits: exact(&self.cache_hits),
            started_s: exact(&self.started_s),
        };
        (load, cache)
    }

    /// Reads the adapters that a page names; `None` if it does not mention adapters.
    #[must_use]
    pub fn read_adapters(&self, page: &[u8]) -> Option<AdapterReport> {
        self.adapters.iter().find_map(|adapters| adapters.read(page))
    }

    /// Reads only samples that have this label too, e.g. those of one replica's GPUs on the page of
    /// a whole machine.
    #[must_use]
    pub fn with(mut self, label: &str, value: &str) -> Self {
        let fields = [
            &mut self.queued,
            &mut self.running,
            &mut self.kv_use,
            &mut self.gpu_use,
            &mut self.gpu_memory_use,
            &mut self.pending,
            &mut self.cache_tokens,
            &mut self.cache_queries,
            &mut self.cache_hits,
            &mut self.started_s,
        ];
        for field in fields.into_iter().flatten() {
            for selector in field.metrics.iter_mut().chain(&mut field.ratio_to) {
                *selector = selector.clone().with(label, value);
            }
        }
        for adapters in &mut self.adapters {
            adapters.metric = adapters.metric.clone().with(label, value);
        }
        self
    }

    fn fields(&self) -> impl Iterator<Item = &FieldMapping> {
        let fields = [
            &self.queued,
            &self.running,
            &self.kv_use,
            &self.gpu_use,
            &self.gpu_memory_use,
            &self.pending,
            &self.cache_tokens,
            &self.cache_queries,
            &self.cache_hits,
            &self.started_s,
        ];
        fields.into_iter().flatten()
    }
}

impl FieldMapping {
    fn evaluate(&self, tallies: &[MappingTally<'_>]) -> Option<f64> {
        let of = |selector: &Selector| {
            // One metric may serve two fields, one by its value and one by its labels.
            let is_it = |tally: &&MappingTally<'_>| {
                tally.selector == selector && tally.labels == self.labels && tally.samples > 0.0
            };
            tallies.iter().find(is_it)
        };
        let found = self.metrics.iter().find_map(of)?;
        if self.ratio_to.is_empty() {
            return Some(
                self.scale
                    * match self.combine {
                        Combine::Sum => found.sum,
                        Combine::Mean => found.sum / found.samples,
                    },
            );
        }
        let whole =
            self.ratio_to.iter().map(|selector| Some(of(selector)?.sum)).sum::<Option<f64>>()?;
        // A share of nothing is unknown.
        (whole > 0.0).then(|| self.scale * found.sum / whole)
    }
}

/// Samples of one selector, summed up.
#[derive(Debug)]
struct MappingTally<'a> {
    selector: &'a Selector,
    labels: &'a [String],
    sum: f64,
    samples: f64,
}

impl<'a> MappingTally<'a> {
    fn of_field(field: &'a FieldMapping) -> impl Iterator<Item = Self> {
        let labels = field.labels.as_slice();
        field.selectors().map(move |selector| Self { selector, labels, sum: 0.0, samples: 0.0 })
    }

    fn take(&mut self, sample: &Sample<'_>) {
        if self.labels.is_empty() {
            return self.add(sample.value);
        }
        let number = |label: &String| number_in(sample.labels, label);
        // A sample that lacks a label, or has no number there, is left out.
        if let Some(product) = self.labels.iter().map(number).product() {
            self.add(product);
        }
    }

    fn add(&mut self, value: f64) {
        if value >= 0.0 && value.is_finite() {
            self.sum += value;
            self.samples += 1.0;
        }
    }
}

/// Reads the number in a label.
pub(super) fn number_in(labels: &[u8], wanted: &str) -> Option<f64> {
    let (_, text) = Labels(labels).find(|(label, _)| *label == wanted.as_bytes())?;
    std::str::from_utf8(&text).ok()?.parse().ok()
}

fn one() -> f64 {
    1.0
}

#[cfg(test)]
#[path = "mapping_test.rs"]
mod mapping_test;
