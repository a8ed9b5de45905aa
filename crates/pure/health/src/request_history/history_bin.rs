//! Figures of the requests of a few seconds, which can be added up over nodes.

use serde::{Deserialize, Serialize};
use spillway_types::Outcome;

use super::first_token_histogram::FirstTokenHistogram;
use super::{BIN, HistoryPoint};

/// Figures of the requests that ended within one bin.
///
/// Percentiles can't be added up, so a bin has the histogram that they are read from. An older node
/// may leave fields out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryBin {
    requests: u32,
    failed: u32,
    refused: u32,
    forwarded: u32,
    received: u32,
    tokens: u64,
    first_token: FirstTokenHistogram,
}

impl HistoryBin {
    /// Counts a request.
    pub(super) fn record(&mut self, outcome: &Outcome) {
        self.requests += 1;
        self.forwarded += u32::from(outcome.region.is_some());
        self.received += u32::from(outcome.is_guest);
        self.tokens = self.tokens.saturating_add(outcome.tokens.completion);
        if let Some(time) = outcome.first_token() {
            self.first_token.record(time);
        }
        match (outcome.shed, outcome.failure()) {
            (Some(_), _) => self.refused += 1,
            (None, Some(_)) => self.failed += 1,
            (None, None) => {}
        }
    }

    /// Adds the figures of other requests of the same seconds.
    pub fn add(&mut self, other: &Self) {
        let sum = |one: &mut u32, other: u32| *one = one.saturating_add(other);
        sum(&mut self.requests, other.requests);
        sum(&mut self.failed, other.failed);
        sum(&mut self.refused, other.refused);
        sum(&mut self.forwarded, other.forwarded);
        sum(&mut self.received, other.received);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.first_token.add(&other.first_token);
    }

    /// Returns the figures for a chart.
    #[must_use]
    pub fn point(&self) -> HistoryPoint {
        let per_s = |number: u32| f64::from(number) / BIN.as_secs_f64();
        HistoryPoint {
            requests_per_s: per_s(self.requests),
            failed_per_s: per_s(self.failed),
            refused_per_s: per_s(self.refused),
            forwarded_per_s: per_s(self.forwarded),
            received_per_s: per_s(self.received),
            tokens_per_s: self.tokens as f64 / BIN.as_secs_f64(),
            first_token_p50_ms: self.first_token.quantile_ms(0.5),
            first_token_p95_ms: self.first_token.quantile_ms(0.95),
        }
    }
}

/// Adds up the bins of several nodes, each with its oldest bin first.
///
/// Bins are matched by their age. Nodes begin their bins at different moments, so a sum mixes requests
/// that are up to [`BIN`] apart. A node that has just started has fewer bins.
#[must_use]
pub fn sum_bins(nodes: impl IntoIterator<Item = Vec<HistoryBin>>) -> Vec<HistoryBin> {
    let mut newest_first: Vec<HistoryBin> = Vec::new();
    for bins in nodes {
        for (age, bin) in bins.iter().rev().enumerate() {
            match newest_first.get_mut(age) {
                Some(sum) => sum.add(bin),
                None => newest_first.push(bin.clone()),
            }
        }
    }
    newest_first.reverse();
    newest_first
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn bin(requests: u32, first_tokens_ms: &[u64]) -> HistoryBin {
        let mut bin = HistoryBin { requests, ..HistoryBin::default() };
        first_tokens_ms.iter().for_each(|ms| bin.first_token.record(Duration::from_millis(*ms)));
        bin
    }

    #[test]
    fn bins_of_nodes_are_matched_by_their_age() {
        let long = vec![bin(1, &[]), bin(2, &[]), bin(4, &[])];
        let sums = sum_bins([long.clone(), vec![bin(10, &[])], Vec::new()]);
        let requests: Vec<u32> = sums.iter().map(|bin| bin.requests).collect();
        assert_eq!(requests, [1, 2, 14]);
        assert_eq!(sum_bins([vec![bin(10, &[])], long]), sums);
        assert!(sum_bins([]).is_empty());
    }

    #[test]
    fn a_percentile_of_several_nodes_is_that_of_all_their_requests() {
        // The mean of the two medians would be 550 ms.
        let sums = sum_bins([vec![bin(9, &[100; 9])], vec![bin(1, &[1_000])]]);
        let median = sums[0].point().first_token_p50_ms.unwrap();
        assert!((80.0..120.0).contains(&median), "{median}");
    }

    #[test]
    fn a_bin_can_be_sent_and_an_older_node_may_leave_fields_out() {
        let sent = bin(7, &[3, 500]);
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<HistoryBin>(&text).unwrap(), sent);
        assert!(text.len() < 150, "{text}");
        let older: HistoryBin = serde_json::from_str("{\"requests\":7}").unwrap();
        assert_eq!(older, bin(7, &[]));
        // A newer node may have more buckets.
        let newer = "{\"first_token\":[[250,4]]}";
        assert!(
            serde_json::from_str::<HistoryBin>(newer).unwrap().point().first_token_p50_ms.is_some()
        );
    }
}
