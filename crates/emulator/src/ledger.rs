//! Ledger of a replica's requests: each request is received once and ends exactly once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use serde::Serialize;

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// The request has not ended.
    InFlight,
    /// The whole reply was handed to the connection.
    Finished,
    /// The client disconnected, or the replica crashed or cut the reply.
    Aborted,
    /// The request was answered with an error.
    Rejected,
}

/// Record of a recent request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestRecord {
    /// Value of `x-request-id` without the suffix that the gateway appends; `None` if there was
    /// none.
    pub request_id: Option<String>,
    /// Outcome of the request.
    pub outcome: CallOutcome,
}

/// Counters of one replica since the emulator started; crashes do not reset them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LedgerCounts {
    pub(crate) received: u64,
    pub(crate) started: u64,
    pub(crate) finished: u64,
    pub(crate) aborted: u64,
    pub(crate) rejected: u64,
    pub(crate) authorization_seen: u64,
}

/// Ledger of a replica's requests.
#[derive(Debug)]
pub(crate) struct CallLedger {
    books: Mutex<Books>,
    records_max: usize,
}

#[derive(Debug, Default)]
struct Books {
    counts: LedgerCounts,
    /// Most recent records; the newest has the number `counts.received - 1`.
    records: VecDeque<RequestRecord>,
    last_headers: Arc<HeaderMap>,
}

impl CallLedger {
    pub(crate) fn new(records_max: usize) -> Self {
        Self { books: Mutex::default(), records_max }
    }

    /// Records a new request. The ticket must be closed once; if it is dropped before, the request
    /// counts as aborted.
    pub(crate) fn receive(self: &Arc<Self>, headers: &Arc<HeaderMap>) -> Ticket {
        let request_id =
            headers.get("x-request-id").and_then(|value| value.to_str().ok()).map(chosen_id);
        let record = RequestRecord {
            request_id: request_id.map(str::to_owned),
            outcome: CallOutcome::InFlight,
        };
        let mut books = self.books();
        let number = books.counts.received;
        books.counts.received += 1;
        books.counts.authorization_seen += u64::from(headers.contains_key("authorization"));
        books.last_headers = Arc::clone(headers);
        books.records.push_back(record);
        if books.records.len() > self.records_max {
            books.records.pop_front();
        }
        Ticket { ledger: Arc::clone(self), number, started: AtomicBool::new(false), open: true }
    }

    pub(crate) fn counts(&self) -> LedgerCounts {
        self.books().counts
    }

    pub(crate) fn records(&self) -> Vec<RequestRecord> {
        self.books().records.iter().cloned().collect()
    }

    pub(crate) fn last_headers(&self) -> Arc<HeaderMap> {
        Arc::clone(&self.books().last_headers)
    }

    fn close(&self, number: u64, outcome: CallOutcome) {
        let mut books = self.books();
        match outcome {
            CallOutcome::InFlight => {}
            CallOutcome::Finished => books.counts.finished += 1,
            CallOutcome::Aborted => books.counts.aborted += 1,
            CallOutcome::Rejected => books.counts.rejected += 1,
        }
        // The newest record has the age 1 and stands last.
        let age = books.counts.received - number;
        // A record that is too old has left the list; its counters remain.
        let at = usize::try_from(age).ok().and_then(|age| books.records.len().checked_sub(age));
        if let Some(record) = at.and_then(|at| books.records.get_mut(at)) {
            record.outcome = outcome;
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // The data are consistent between any two statements that could panic.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ticket of a request that has not ended yet.
#[derive(Debug)]
pub(crate) struct Ticket {
    ledger: Arc<CallLedger>,
    number: u64,
    started: AtomicBool,
    open: bool,
}

impl Ticket {
    /// Notes that the work on the request has begun. Further calls have no effect.
    pub(crate) fn start(&self) {
        if !self.started.swap(true, Ordering::Relaxed) {
            self.ledger.books().counts.started += 1;
        }
    }

    /// Ends the request with this outcome.
    pub(crate) fn close(mut self, outcome: CallOutcome) {
        self.open = false;
        self.ledger.close(self.number, outcome);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.open {
            self.ledger.close(self.number, CallOutcome::Aborted);
        }
    }
}

/// Returns the id that the client chose: the gateway appends a dash and 16 hexadecimal digits to
/// it.
fn chosen_id(id: &str) -> &str {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match id.rsplit_once('-') {
        Some((chosen, random)) if random.len() == 16 && random.bytes().all(is_digit) => chosen,
        _ => id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(id: &str) -> Arc<HeaderMap> {
        let mut headers = HeaderMap::new();
        headers.insert("x-request-id", id.parse().unwrap());
        Arc::new(headers)
    }

    fn outcomes(ledger: &CallLedger) -> Vec<(String, CallOutcome)> {
        let records = ledger.records().into_iter();
        records.map(|record| (record.request_id.unwrap(), record.outcome)).collect()
    }

    #[test]
    fn each_request_ends_once_and_as_told() {
        let ledger = Arc::new(CallLedger::new(10));
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|id| ledger.receive(&headers(id)));
        a.start();
        a.start();
        c.close(CallOutcome::Rejected);
        a.close(CallOutcome::Finished);
        drop(b);
        let expected = [
            ("a".to_owned(), CallOutcome::Finished),
            ("b".to_owned(), CallOutcome::Aborted),
            ("c".to_owned(), CallOutcome::Rejected),
            ("d".to_owned(), CallOutcome::InFlight),
        ];
        assert_eq!(outcomes(&ledger), expected);
        let counts = ledger.counts();
        assert_eq!((counts.received, counts.started), (4, 1));
        assert_eq!((counts.finished, counts.aborted, counts.rejected), (1, 1, 1));
        drop(d);
        assert_eq!(ledger.counts().aborted, 2);
    }

    #[test]
    fn old_records_go_but_their_tickets_still_count() {
        let ledger = Arc::new(CallLedger::new(2));
        let tickets: Vec<Ticket> =
            ["a", "b", "c"].iter().map(|id| ledger.receive(&headers(id))).collect();
        for ticket in tickets {
            ticket.close(CallOutcome::Finished);
        }
        let expected =
            [("b".to_owned(), CallOutcome::Finished), ("c".to_owned(), CallOutcome::Finished)];
        assert_eq!(outcomes(&ledger), expected);
        assert_eq!(ledger.counts().finished, 3);
    }

    #[test]
    fn credentials_are_noticed() {
        let ledger = Arc::new(CallLedger::new(2));
        drop(ledger.receive(&headers("a")));
        assert_eq!(ledger.counts().authorization_seen, 0);
        let mut with = HeaderMap::new();
        with.insert("authorization", "Bearer secret".parse().unwrap());
        drop(ledger.receive(&Arc::new(with)));
        assert_eq!(ledger.counts().authorization_seen, 1);
        assert!(ledger.last_headers().contains_key("authorization"));
    }
}
