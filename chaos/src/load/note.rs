//! Results of single requests, and statistics of many.

use std::time::{Duration, Instant};

use bytes::Bytes;

/// Result of one attempt.
#[derive(Clone, Debug)]
pub(crate) struct LoadNote {
    /// Time at which the request was to be sent. Durations count from here, so that a late sender
    /// does not make results better.
    pub(crate) due: Instant,
    pub(crate) ended: Instant,
    pub(crate) end: NoteEnd,
}

/// End of an attempt.
#[derive(Clone, Debug)]
pub(crate) enum NoteEnd {
    /// A whole reply.
    Whole(NotedAnswer),
    /// A reply that broke off after its head.
    Cut(NotedAnswer, String),
    /// No connection, so no node got the request.
    Unsent(String),
    /// No reply.
    Nothing(String),
}

/// Content of a reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct NotedAnswer {
    pub(crate) status: u16,
    /// Reason of a refusal, from the gateway's header; else empty.
    pub(crate) reason: String,
    pub(crate) retry_after: Option<Duration>,
    /// Region that served the request; empty if the gateway does not say.
    pub(crate) region: String,
    pub(crate) replica: String,
    pub(crate) body: Bytes,
}

/// Attempts of one request of a client.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) number: u64,
    pub(crate) notes: Vec<LoadNote>,
}

impl LoadNote {
    pub(crate) fn took(&self) -> Duration {
        self.ended.saturating_duration_since(self.due)
    }

    pub(crate) fn took_ms(&self) -> f64 {
        self.took().as_secs_f64() * 1e3
    }

    /// Returns the status of a whole reply; 0 for anything else.
    pub(crate) fn status(&self) -> u16 {
        match &self.end {
            NoteEnd::Whole(answer) => answer.status,
            NoteEnd::Cut(..) | NoteEnd::Unsent(_) | NoteEnd::Nothing(_) => 0,
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.status() == 200
    }

    /// Returns true if the request was refused for lack of capacity (429, 503 or 504), by the
    /// gateway or a replica.
    pub(crate) fn is_shed(&self) -> bool {
        matches!(self.status(), 429 | 503 | 504)
    }

    pub(crate) fn answer(&self) -> Option<&NotedAnswer> {
        match &self.end {
            NoteEnd::Whole(answer) | NoteEnd::Cut(answer, _) => Some(answer),
            NoteEnd::Unsent(_) | NoteEnd::Nothing(_) => None,
        }
    }

    /// Names the result for counting: `200`, `503 queue_full`, `200 cut (why)`, `nothing (why)`.
    pub(crate) fn kind(&self) -> String {
        match &self.end {
            NoteEnd::Whole(answer) if answer.reason.is_empty() => answer.status.to_string(),
            NoteEnd::Whole(answer) => format!("{} {}", answer.status, answer.reason),
            NoteEnd::Cut(answer, why) => format!("{} cut ({why})", answer.status),
            NoteEnd::Unsent(why) => format!("not sent ({why})"),
            NoteEnd::Nothing(why) => format!("nothing ({why})"),
        }
    }
}

impl Story {
    /// Returns true if the last attempt was served.
    pub(crate) fn is_good(&self) -> bool {
        self.notes.last().is_some_and(LoadNote::is_good)
    }

    /// Returns true if the second attempt was served; `None` unless the first was refused with a
    /// Retry-After and a second one was made.
    pub(crate) fn first_retry(&self) -> Option<bool> {
        let (first, second) = (self.notes.first()?, self.notes.get(1)?);
        let was_told = first.answer().is_some_and(|answer| answer.retry_after.is_some());
        (first.is_shed() && was_told).then(|| second.is_good())
    }
}

/// Returns the value that a `share` of all values do not exceed; NaN without values.
pub(crate) fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    // Exact, by hand: there are few values, and the buckets of a histogram would round them.
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

/// Returns the milliseconds that a `share` of the good replies do not exceed; NaN without good
/// replies. Refusals do not count, so quick refusals do not make the figure better.
pub(crate) fn good_ms<'a>(notes: impl IntoIterator<Item = &'a LoadNote>, share: f64) -> f64 {
    let good = notes.into_iter().filter(|note| note.is_good());
    quantile(good.map(LoadNote::took_ms), share)
}

/// Counts notes by kind, the most frequent first: "12 × 200, 3 × 503 queue_full".
pub(crate) fn kinds<'a>(notes: impl IntoIterator<Item = &'a LoadNote>) -> String {
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for note in notes {
        *counts.entry(note.kind()).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let parts: Vec<_> = counts.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(status: u16, retry_after_s: Option<u64>) -> LoadNote {
        let now = Instant::now();
        let retry_after = retry_after_s.map(Duration::from_secs);
        let end = NoteEnd::Whole(NotedAnswer { status, retry_after, ..NotedAnswer::default() });
        LoadNote { due: now, ended: now + Duration::from_millis(7), end }
    }

    #[test]
    fn a_first_retry_counts_only_after_a_refusal_that_said_when() {
        let story = |notes: Vec<LoadNote>| Story { number: 1, notes };
        assert_eq!(story(vec![note(200, None)]).first_retry(), None);
        assert_eq!(story(vec![note(503, Some(1))]).first_retry(), None);
        assert_eq!(story(vec![note(503, Some(1)), note(200, None)]).first_retry(), Some(true));
        let twice = vec![note(503, Some(1)), note(429, Some(1)), note(200, None)];
        assert_eq!(story(twice.clone()).first_retry(), Some(false));
        assert!(story(twice).is_good());
        assert_eq!(story(vec![note(503, None), note(200, None)]).first_retry(), None);
        assert_eq!(story(vec![note(500, Some(1)), note(200, None)]).first_retry(), None);
    }

    #[test]
    fn a_reply_that_broke_off_is_not_good() {
        let mut cut = note(200, None);
        assert!(cut.is_good() && (cut.took_ms() - 7.0).abs() < 1e-6);
        cut.end =
            NoteEnd::Cut(NotedAnswer { status: 200, ..NotedAnswer::default() }, "reset".to_owned());
        assert_eq!((cut.is_good(), cut.kind()), (false, "200 cut (reset)".to_owned()));
        cut.end = NoteEnd::Nothing("refused".to_owned());
        assert!(!cut.is_good() && !cut.is_shed());
    }

    #[test]
    fn a_quick_refusal_makes_no_reply_quicker() {
        let took = |status, ms| {
            let note = note(status, None);
            LoadNote { ended: note.due + Duration::from_millis(ms), ..note }
        };
        let notes = [took(200, 40), took(503, 1), took(503, 2), took(503, 3)];
        assert!((good_ms(&notes, 0.5) - 40.0).abs() < 1e-6);
        assert!(good_ms(&notes[1..], 0.5).is_nan());
    }

    #[test]
    fn the_kinds_are_counted() {
        let notes = [note(503, None), note(200, None), note(200, None)];
        assert_eq!(kinds(&notes), "2 × 200, 1 × 503");
        assert!((quantile([4.0, 1.0, 3.0, 2.0], 0.5) - 2.0).abs() < 1e-9);
        assert!((quantile((1..=100).map(f64::from), 0.99) - 99.0).abs() < 1e-9);
        assert!(quantile([], 0.5).is_nan());
    }
}
