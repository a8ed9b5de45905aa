//! Ledger of a replica's requests: each request is received once and ends exactly once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use serde::Serialize;

use crate::usage::{TokenUsage, UsageReport, UsageTotals};

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
    /// Value of `x-client-request-id`; `None` if there was none.
    pub client_request_id: Option<String>,
    /// Outcome of the request.
    pub outcome: CallOutcome,
    /// True if the answer reached its own end and the whole reply was handed to the connection.
    /// An answer that a fault ended early is not complete, even if its reply is `Finished`.
    pub is_complete: bool,
    /// Tokens of the request; zeros until it has ended.
    pub usage: TokenUsage,
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
    complete: UsageTotals,
    incomplete: UsageTotals,
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
        let id = |name: &str| headers.get(name)?.to_str().ok().map(chosen_id).map(str::to_owned);
        let record = RequestRecord {
            request_id: id("x-request-id"),
            client_request_id: id("x-client-request-id"),
            outcome: CallOutcome::InFlight,
            is_complete: false,
            usage: TokenUsage::default(),
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
        Ticket {
            ledger: Arc::clone(self),
            number,
            started: AtomicBool::new(false),
            work: Mutex::default(),
            open: true,
        }
    }

    pub(crate) fn counts(&self) -> LedgerCounts {
        self.books().counts
    }

    pub(crate) fn records(&self) -> Vec<RequestRecord> {
        self.books().records.iter().cloned().collect()
    }

    pub(crate) fn usage(&self) -> UsageReport {
        let books = self.books();
        let requests = books.records.iter().cloned().collect();
        UsageReport { complete: books.complete, incomplete: books.incomplete, requests }
    }

    pub(crate) fn last_headers(&self) -> Arc<HeaderMap> {
        Arc::clone(&self.books().last_headers)
    }

    fn close(&self, number: u64, outcome: CallOutcome, work: Work) {
        let mut books = self.books();
        let is_complete = outcome == CallOutcome::Finished && !work.has_early_end;
        match outcome {
            CallOutcome::Finished | CallOutcome::Aborted if !is_complete => {
                books.incomplete.add(work.usage);
            }
            CallOutcome::Finished => books.complete.add(work.usage),
            CallOutcome::InFlight | CallOutcome::Aborted | CallOutcome::Rejected => {}
        }
        match outcome {
            CallOutcome::InFlight => {}
            CallOutcome::Finished => books.counts.finished += 1,
            CallOutcome::Aborted => books.counts.aborted += 1,
            CallOutcome::Rejected => books.counts.rejected += 1,
        }
        // The newest record has the age 1 and is the last one.
        let age = books.counts.received - number;
        // A record that is too old has left the list; its counters remain.
        let at = usize::try_from(age).ok().and_then(|age| books.records.len().checked_sub(age));
        if let Some(record) = at.and_then(|at| books.records.get_mut(at)) {
            record.outcome = outcome;
            record.is_complete = is_complete;
            record.usage = work.usage;
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
    work: Mutex<Work>,
    open: bool,
}

/// Work on a request so far.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    usage: TokenUsage,
    /// True if a fault ended the answer before its own end.
    has_early_end: bool,
}

impl Ticket {
    /// Returns the number of the request at its replica; the first one has 0.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Notes the tokens of the request so far.
    pub(crate) fn note_usage(&self, usage: TokenUsage) {
        self.work().usage = usage;
    }

    /// Notes that a fault ended the answer before its own end.
    pub(crate) fn note_early_end(&self) {
        self.work().has_early_end = true;
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the work on the request has begun. Further calls have no effect.
    pub(crate) fn start(&self) {
        if !self.started.swap(true, Ordering::Relaxed) {
            self.ledger.books().counts.started += 1;
        }
    }

    /// Ends the request with this outcome.
    pub(crate) fn close(mut self, outcome: CallOutcome) {
        self.open = false;
        let work = *self.work();
        self.ledger.close(self.number, outcome, work);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.open {
            let work = *self.work();
            self.ledger.close(self.number, CallOutcome::Aborted, work);
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
#[path = "ledger_test.rs"]
mod ledger_test;
