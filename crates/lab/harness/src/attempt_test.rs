//! Tests of records of requests and their statistics.

use super::*;

fn attempt(status: u16, retry_after_s: Option<u64>) -> LoadAttempt {
    let now = Instant::now();
    let retry_after = retry_after_s.map(Duration::from_secs);
    let end = AttemptEnd::Whole(LoadReply { status, retry_after, ..LoadReply::default() });
    LoadAttempt { ended: now + Duration::from_millis(7), ..LoadAttempt::at_once(now, end) }
}

#[test]
fn a_first_retry_counts_only_after_a_refusal_that_said_when() {
    let record = |attempts: Vec<LoadAttempt>| LoadRecord { number: 1, attempts };
    assert_eq!(record(vec![attempt(200, None)]).first_retry(), None);
    assert_eq!(record(vec![attempt(503, Some(1))]).first_retry(), None);
    assert_eq!(record(vec![attempt(503, Some(1)), attempt(200, None)]).first_retry(), Some(true));
    let twice = vec![attempt(503, Some(1)), attempt(429, Some(1)), attempt(200, None)];
    assert_eq!(record(twice.clone()).first_retry(), Some(false));
    assert!(record(twice).is_good());
    assert_eq!(record(vec![attempt(503, None), attempt(200, None)]).first_retry(), None);
    assert_eq!(record(vec![attempt(500, Some(1)), attempt(200, None)]).first_retry(), None);
}

#[test]
fn a_reply_that_broke_off_is_not_good() {
    let mut cut = attempt(200, None);
    assert!(cut.is_good() && (cut.took_ms() - 7.0).abs() < 1e-6);
    let reset = AttemptError::Broken("reset".to_owned());
    cut.end = AttemptEnd::Cut(LoadReply { status: 200, ..LoadReply::default() }, reset);
    assert_eq!((cut.is_good(), cut.kind()), (false, "200 cut (reset)".to_owned()));
    cut.end = AttemptEnd::Nothing(AttemptError::TooLate);
    assert!(!cut.is_good() && !cut.is_shed());
}

#[test]
fn a_quick_refusal_makes_no_reply_quicker() {
    let took = |status, ms| {
        let attempt = attempt(status, None);
        LoadAttempt { ended: attempt.due + Duration::from_millis(ms), ..attempt }
    };
    let attempts = [took(200, 40), took(503, 1), took(503, 2), took(503, 3)];
    assert!((good_ms(&attempts, 0.5) - 40.0).abs() < 1e-6);
    assert!(good_ms(&attempts[1..], 0.5).is_nan());
}

#[test]
fn the_kinds_are_counted() {
    let attempts = [attempt(503, None), attempt(200, None), attempt(200, None)];
    assert_eq!(kinds(&attempts), "2 × 200, 1 × 503");
}
