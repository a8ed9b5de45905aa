//! Gap histograms of many streams, summed per route and model.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use spillway_types::GapHistogram;

use crate::catalog;

/// Route and model.
type Key = (String, String);

/// Collector of histograms that arrive already counted, which the library's own type can't take.
#[derive(Debug, Default)]
pub(crate) struct StreamGaps {
    // Locked by the feedback task and by a scrape, never by a request.
    by_key: Mutex<BTreeMap<Key, GapHistogram>>,
}

impl StreamGaps {
    /// Adds the gaps of one stream.
    pub(crate) fn merge(&self, route: &str, model: &str, gaps: &GapHistogram) {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        by_key.entry((route.to_owned(), model.to_owned())).or_default().merge(gaps);
    }
}

impl Collector for StreamGaps {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let mut family = encoder.encode_descriptor(
            catalog::requests::TOKEN_GAP.name,
            &catalog::requests::TOKEN_GAP.help(),
            None,
            MetricType::Histogram,
        )?;
        for ((route, model), gaps) in &*by_key {
            let labels = [("route", route.as_str()), ("model", model.as_str())];
            let metric = family.encode_family(&labels)?;
            Encoded(gaps).encode(metric)?;
        }
        Ok(())
    }
}

/// A gap histogram in the form of the metrics library.
struct Encoded<'a>(&'a GapHistogram);

impl EncodeMetric for Encoded<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        // Each bucket with its own count: the library adds them up.
        let buckets: Vec<(f64, u64)> = self.0.buckets().collect();
        // There are no exemplars, but the library wants to know their type.
        let no_labels: Option<&std::collections::HashMap<_, _>> = None;
        encoder.encode_histogram::<[(&str, &str); 0]>(
            self.0.sum().as_secs_f64(),
            self.0.count(),
            &buckets,
            no_labels,
        )
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
