//! Records of requests as their clients saw them, and statistics of many.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::quantile::quantile;
use crate::stream::StreamReply;

/// Result of one attempt to send a request.
#[derive(Clone, Debug)]
pub struct LoadAttempt {
    /// Time at which the request was to be sent. Durations count from here, so that a late sender
    /// does not make results better.
    pub due: Instant,
    /// Time at which the client began to send.
    pub sent: Instant,
    /// Time of the first byte of the reply's body.
    pub first_byte: Option<Instant>,
    /// Time of the end.
    pub ended: Instant,
    /// Listener that got the request, or the last one that was tried.
    pub address: SocketAddr,
    /// Emulated time of the path between the client and that listener.
    pub one_way: Duration,
    /// End of the attempt.
    pub end: AttemptEnd,
}

/// End of an attempt.
#[derive(Clone, Debug)]
pub enum AttemptEnd {
    /// A whole reply.
    Whole(LoadReply),
    /// A reply that broke off after its head.
    Cut(LoadReply, AttemptError),
    /// No connection, so no node got the request.
    Unsent(AttemptError),
    /// No reply.
    Nothing(AttemptError),
}

/// Reason why an attempt has no whole reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttemptError {
    /// The client's time limit passed.
    #[error("out of patience")]
    TooLate,
    /// The reply is longer than any should be.
    #[error("too long")]
    TooLong,
    /// The attempt was under way when the load ended.
    #[error("not over at the end")]
    NotOver,
    /// The request or its connection failed.
    #[error("{0}")]
    Broken(String),
}

/// Content of a reply.
#[derive(Clone, Debug, Default)]
pub struct LoadReply {
    /// HTTP status.
    pub status: u16,
    /// Code of the gateway's own error; empty for an answer of a replica.
    pub code: String,
    /// Reason of a refusal, from the gateway's header; else empty.
    pub reason: String,
    /// Time that a refusal asks the client to wait.
    pub retry_after: Option<Duration>,
    /// Region that served the request; empty if the gateway does not name it.
    pub region: String,
    /// Replica that served the request; empty if the gateway does not name it.
    pub replica: String,
    /// Body, as far as it arrived.
    pub body: Bytes,
}

/// Attempts of one request of a client.
#[derive(Clone, Debug)]
pub struct LoadRecord {
    /// Number of the request.
    pub number: u64,
    /// Attempts in their order.
    pub attempts: Vec<LoadAttempt>,
}

impl LoadAttempt {
    /// Returns an attempt that was sent when it was due and ended at once.
    #[must_use]
    pub fn at_once(due: Instant, end: AttemptEnd) -> Self {
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let (first_byte, one_way) = (None, Duration::ZERO);
        Self { due, sent: due, first_byte, ended: due, address, one_way, end }
    }

    /// Returns the time from the due time to the end.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.ended.saturating_duration_since(self.due)
    }

    /// Returns the time from the due time to the end, in milliseconds.
    #[must_use]
    pub fn took_ms(&self) -> f64 {
        self.took().as_secs_f64() * 1e3
    }

    /// Returns the status of a whole reply; 0 for anything else.
    #[must_use]
    pub fn status(&self) -> u16 {
        match &self.end {
            AttemptEnd::Whole(reply) => reply.status,
            AttemptEnd::Cut(..) | AttemptEnd::Unsent(_) | AttemptEnd::Nothing(_) => 0,
        }
    }

    /// Returns true for a whole reply with status 200.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.status() == 200
    }

    /// Returns true if the request was refused for lack of capacity (429, 503 or 504), by the
    /// gateway or a replica.
    #[must_use]
    pub fn is_shed(&self) -> bool {
        matches!(self.status(), 429 | 503 | 504)
    }

    /// Returns the reply, whole or cut; `None` if none began.
    #[must_use]
    pub fn reply(&self) -> Option<&LoadReply> {
        match &self.end {
            AttemptEnd::Whole(reply) | AttemptEnd::Cut(reply, _) => Some(reply),
            AttemptEnd::Unsent(_) | AttemptEnd::Nothing(_) => None,
        }
    }

    /// Names the result for counting: `200`, `503 queue_full`, `200 cut (why)`, `nothing (why)`.
    #[must_use]
    pub fn kind(&self) -> String {
        match &self.end {
            AttemptEnd::Whole(reply) if reply.reason.is_empty() => reply.status.to_string(),
            AttemptEnd::Whole(reply) => format!("{} {}", reply.status, reply.reason),
            AttemptEnd::Cut(reply, why) => format!("{} cut ({why})", reply.status),
            AttemptEnd::Unsent(why) => format!("not sent ({why})"),
            AttemptEnd::Nothing(why) => format!("nothing ({why})"),
        }
    }
}

impl LoadReply {
    /// Reads the body as a stream of chat events, as far as it arrived.
    #[must_use]
    pub fn stream(&self) -> StreamReply {
        StreamReply::read(&self.body)
    }
}

impl LoadRecord {
    /// Returns true if the last attempt was served.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.attempts.last().is_some_and(LoadAttempt::is_good)
    }

    /// Returns true if the second attempt was served; `None` unless the first was refused with a
    /// Retry-After and a second one was made.
    #[must_use]
    pub fn first_retry(&self) -> Option<bool> {
        let (first, second) = (self.attempts.first()?, self.attempts.get(1)?);
        let was_told = first.reply().is_some_and(|reply| reply.retry_after.is_some());
        (first.is_shed() && was_told).then(|| second.is_good())
    }
}

/// Returns the milliseconds that a `share` of the good replies do not exceed; NaN without good
/// replies. Refusals do not count, so quick refusals do not make the figure better.
pub fn good_ms<'a>(attempts: impl IntoIterator<Item = &'a LoadAttempt>, share: f64) -> f64 {
    let good = attempts.into_iter().filter(|attempt| attempt.is_good());
    quantile(good.map(LoadAttempt::took_ms), share).unwrap_or(f64::NAN)
}

/// Counts attempts by kind, the most frequent first: "12 × 200, 3 × 503 queue_full".
pub fn kinds<'a>(attempts: impl IntoIterator<Item = &'a LoadAttempt>) -> String {
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for attempt in attempts {
        *counts.entry(attempt.kind()).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let parts: Vec<_> = counts.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
    parts.join(", ")
}

#[cfg(test)]
#[path = "attempt_test.rs"]
mod tests;
