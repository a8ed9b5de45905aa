//! Metrics page of a node of this process.

use std::collections::BTreeSet;
use std::ops::Deref;

use spillway_harness::ScrapedPage;
use spillway_telemetry::{GROUPS, MetricSpec};

/// A metrics page that is well-formed.
#[derive(Clone, Debug, Default)]
pub struct Page(ScrapedPage);

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// Returns an error with the first line that OpenMetrics does not allow, and why.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        ScrapedPage::parse(text).map(Self)
    }

    /// Checks that every metric on the page is documented, with this kind and these labels.
    ///
    /// # Panics
    /// Panics with the first metric that is not.
    pub fn is_as_documented(&self) {
        let specs = || GROUPS.iter().flat_map(|group| group.metrics);
        let found = |name: &str| specs().find(|spec| spec.name == name);
        for (name, kind) in &self.types {
            let spec: &MetricSpec = found(name).unwrap_or_else(|| panic!("{name} is unknown"));
            assert_eq!(kind, spec.kind.as_str(), "{name}");
            // The text adds a suffix to the name and, to histograms, the label of their bounds.
            let suffixes = ["", "_total", "_bucket", "_sum", "_count", "_info"];
            let is_of = |sample: &str| suffixes.iter().any(|end| sample == format!("{name}{end}"));
            for sample in self.samples.iter().filter(|sample| is_of(&sample.name)) {
                let labels = sample.labels.keys().map(String::as_str).filter(|it| *it != "le");
                let labels: BTreeSet<&str> = labels.collect();
                assert_eq!(labels, spec.labels.iter().copied().collect(), "{name}");
            }
        }
    }
}

impl Deref for Page {
    type Target = ScrapedPage;

    fn deref(&self) -> &ScrapedPage {
        &self.0
    }
}
