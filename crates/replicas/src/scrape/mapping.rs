//! From the numbers on a page to a load report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_types::LoadReport;

use super::selector::Selector;
use super::text::samples;

/// Where each field of a report stands on a page. A field without a mapping is not on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Mapping {
    /// Requests that wait for their turn.
    pub queued: Option<FieldMapping>,
    /// Requests being worked on.
    pub running: Option<FieldMapping>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_use: Option<FieldMapping>,
    /// Share of time the GPU was busy, 0 to 1.
    pub gpu_use: Option<FieldMapping>,
    /// Share of the GPU's memory in use, 0 to 1.
    pub gpu_memory_use: Option<FieldMapping>,
    /// Work ahead of a new request, in the server's own unit.
    pub pending: Option<FieldMapping>,
}

/// Where one number stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldMapping {
    /// The metric. Of several, the first that the page has: names change between versions.
    pub metrics: Vec<Selector>,
    /// What becomes of several samples, as of several models or GPUs.
    #[serde(default)]
    pub combine: Combine,
    /// Multiplied with the number: 0.01 makes a share of a percentage.
    #[serde(default = "one")]
    pub scale: f64,
    /// Divides the sum of the samples by the sum of all these, as used by total. All of them must
    /// be on the page.
    #[serde(default)]
    pub ratio_to: Vec<Selector>,
}

/// What becomes of several samples of one metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Combine {
    /// Their sum: right for counts.
    #[default]
    Sum,
    /// Their mean: right for shares.
    Mean,
}

impl FieldMapping {
    /// The sum of the samples of the first of these metrics that the page has.
    pub(super) fn sum(metrics: impl IntoIterator<Item = Selector>) -> Self {
        let metrics = metrics.into_iter().collect();
        Self { metrics, combine: Combine::Sum, scale: 1.0, ratio_to: Vec::new() }
    }

    /// Their mean, times `scale`.
    pub(super) fn mean(metrics: impl IntoIterator<Item = Selector>, scale: f64) -> Self {
        Self { combine: Combine::Mean, scale, ..Self::sum(metrics) }
    }

    /// The sum of `part` by the sum of `whole`.
    pub(super) fn ratio(part: Selector, whole: impl IntoIterator<Item = Selector>) -> Self {
        Self { ratio_to: whole.into_iter().collect(), ..Self::sum([part]) }
    }

    fn selectors(&self) -> impl Iterator<Item = &Selector> {
        self.metrics.iter().chain(&self.ratio_to)
    }
}

impl Mapping {
    /// Reads a page, never failing: what is not on it, or is no number, is `None`. Shares are cut
    /// to 0 to 1; samples below 0 are garbage to every field and left out.
    #[must_use]
    pub fn read(&self, page: &[u8]) -> LoadReport {
        let mut tallies: Vec<Tally<'_>> =
            self.fields().flat_map(FieldMapping::selectors).map(Tally::new).collect();
        let is_wanted = |name: &[u8]| {
            self.fields()
                .flat_map(FieldMapping::selectors)
                .any(|wanted| wanted.name().as_bytes() == name)
        };
        for sample in samples(page, is_wanted) {
            for tally in &mut tallies {
                let selector = tally.selector;
                if selector.name().as_bytes() == sample.name && selector.matches(sample.labels) {
                    tally.add(sample.value);
                }
            }
        }
        let read = |field: &Option<FieldMapping>| {
            let value = field.as_ref()?.evaluate(&tallies)?;
            // Saturates, and no number that is worth anything does.
            let value = value as f32;
            value.is_finite().then_some(value)
        };
        let share = |field| read(field).map(|value| value.min(1.0));
        LoadReport {
            queued: read(&self.queued),
            running: read(&self.running),
            kv_use: share(&self.kv_use),
            gpu_use: share(&self.gpu_use),
            gpu_memory_use: share(&self.gpu_memory_use),
            pending: read(&self.pending),
        }
    }

    /// Reads only samples that have this label too: the GPUs of one replica on a page of all of
    /// its machine's.
    #[must_use]
    pub fn with(mut self, label: &str, value: &str) -> Self {
        let fields = [
            &mut self.queued,
            &mut self.running,
            &mut self.kv_use,
            &mut self.gpu_use,
            &mut self.gpu_memory_use,
            &mut self.pending,
        ];
        for field in fields.into_iter().flatten() {
            for selector in field.metrics.iter_mut().chain(&mut field.ratio_to) {
                *selector = selector.clone().with(label, value);
            }
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
        ];
        fields.into_iter().flatten()
    }
}

impl FieldMapping {
    fn evaluate(&self, tallies: &[Tally<'_>]) -> Option<f64> {
        let of = |selector: &Selector| {
            tallies.iter().find(|tally| tally.selector == selector && tally.samples > 0.0)
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
        (whole > 0.0).then(|| self.scale * found.sum / whole)
    }
}

/// What was seen of one selector.
#[derive(Debug)]
struct Tally<'a> {
    selector: &'a Selector,
    sum: f64,
    samples: f64,
}

impl<'a> Tally<'a> {
    fn new(selector: &'a Selector) -> Self {
        Self { selector, sum: 0.0, samples: 0.0 }
    }

    fn add(&mut self, value: f64) {
        if value >= 0.0 {
            self.sum += value;
            self.samples += 1.0;
        }
    }
}

fn one() -> f64 {
    1.0
}

#[cfg(test)]
#[path = "mapping_test.rs"]
mod mapping_test;
