//! Requests that a replica reports as received, collected from several reads of its stats.

use serde::{Deserialize, Serialize};

/// Reply to `GET /emulator/stats`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Stats {
    /// Number of inference requests so far.
    pub(crate) received: u64,
    /// Most recent requests, oldest first.
    pub(crate) last_requests: Vec<Receipt>,
}

/// Request as the replica saw it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Receipt {
    /// Header `x-request-id`.
    pub(crate) request_id: Option<String>,
    /// End of the request at the replica.
    pub(crate) outcome: LedgerOutcome,
}

/// End of a request at a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LedgerOutcome {
    /// The request has not ended.
    InFlight,
    /// The whole reply was handed over.
    Finished,
    /// The gateway or the replica went away.
    Aborted,
    /// The replica answered with an error.
    Rejected,
}

/// All requests that one replica received.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestLedger {
    receipts: Vec<Receipt>,
    missed: u64,
}

impl RequestLedger {
    /// Adds the requests of one read. A request that is there already is replaced, because it may
    /// have ended since. Requests that leave the replica's list between two reads are missed, so
    /// reads must be frequent.
    pub(crate) fn absorb(&mut self, stats: Stats) {
        let shown = stats.last_requests.len() as u64;
        let first = stats.received.saturating_sub(shown);
        let known = self.missed + self.receipts.len() as u64;
        // Some requests have left the replica's list since the last read.
        if first > known {
            self.missed += first - known;
            self.receipts.extend(stats.last_requests);
            return;
        }
        let kept = usize::try_from(first.saturating_sub(self.missed)).unwrap_or(usize::MAX);
        // Requests that the list still shows are added again below, since they may have ended since
        // the last read.
        self.receipts.truncate(kept);
        self.receipts.extend(stats.last_requests);
    }

    /// Returns all known requests, oldest first.
    pub(crate) fn receipts(&self) -> &[Receipt] {
        &self.receipts
    }

    /// Returns the number of missed requests. A run with missed requests cannot be counted.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Returns a ledger with these receipts.
    pub(crate) fn ledger(receipts: &[(&str, LedgerOutcome)]) -> RequestLedger {
        let mut ledger = RequestLedger::default();
        ledger.absorb(stats(receipts.len() as u64, receipts));
        ledger
    }

    /// Returns one read with these receipts.
    pub(crate) fn stats(received: u64, shown: &[(&str, LedgerOutcome)]) -> Stats {
        let receipt = |(id, outcome): &(&str, LedgerOutcome)| Receipt {
            request_id: Some((*id).to_owned()),
            outcome: *outcome,
        };
        Stats { received, last_requests: shown.iter().map(receipt).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::stats, *};
    use LedgerOutcome::{Finished, InFlight};

    fn names(ledger: &RequestLedger) -> Vec<(&str, LedgerOutcome)> {
        ledger
            .receipts
            .iter()
            .map(|receipt| (receipt.request_id.as_deref().unwrap(), receipt.outcome))
            .collect()
    }

    #[test]
    fn a_later_look_adds_what_is_new_and_corrects_what_was_under_way() {
        let mut ledger = RequestLedger::default();
        ledger.absorb(stats(2, &[("a", Finished), ("b", InFlight)]));
        ledger.absorb(stats(4, &[("b", Finished), ("c", Finished), ("d", InFlight)]));
        let expected = [("a", Finished), ("b", Finished), ("c", Finished), ("d", InFlight)];
        assert_eq!(names(&ledger), expected);
        assert_eq!(ledger.missed(), 0);
    }

    #[test]
    fn what_fell_out_between_two_looks_is_missed_and_counted_once() {
        let mut ledger = RequestLedger::default();
        ledger.absorb(stats(1, &[("a", Finished)]));
        ledger.absorb(stats(5, &[("d", Finished), ("e", InFlight)]));
        assert_eq!(ledger.missed(), 2);
        ledger.absorb(stats(6, &[("e", Finished), ("f", Finished)]));
        assert_eq!(ledger.missed(), 2);
        let expected = [("a", Finished), ("d", Finished), ("e", Finished), ("f", Finished)];
        assert_eq!(names(&ledger), expected);
    }
}
