use std::sync::Arc;

use spillway_types::{End, RegionName, ReplicaName, Shed, TokenCounts};

use super::*;

fn ok() -> Outcome {
    let first_byte = Some(Duration::from_millis(80));
    let tokens = TokenCounts { completion: 10, ..TokenCounts::default() };
    Outcome {
        status: 200,
        end: End::Complete,
        is_stream: true,
        first_byte,
        tokens,
        ..Outcome::begun()
    }
}

fn failed(replica: &str) -> Outcome {
    Outcome { status: 500, replica: Some(ReplicaName::from(replica)), ..ok() }
}

fn refused(reason: &'static str) -> Outcome {
    let shed = Some(Shed { reason, priority: 1 });
    Outcome {
        status: 503,
        end: End::Answered,
        shed,
        key: Some(Arc::from("acme-1")),
        ..Outcome::begun()
    }
}

/// Feeds `per_s` requests in each of these seconds; `bad` says which of them are not well.
fn feed(
    history: &mut RequestHistory,
    seconds: std::ops::Range<u64>,
    per_s: u64,
    bad: impl Fn(u64, u64) -> Option<Outcome>,
) {
    for second in seconds {
        history.advance(Duration::from_secs(second));
        for number in 0..per_s {
            history.record(&bad(second, number).unwrap_or_else(ok));
        }
    }
}

/// Seconds after the begin of a fault at which it is found; `None` if it never is.
fn found_after(per_s: u64, bad: impl Fn(u64, u64) -> Option<Outcome>) -> Option<u64> {
    let mut history = RequestHistory::default();
    feed(&mut history, 0..303, per_s, |_, _| None);
    (303..903)
        .find(|second| {
            feed(&mut history, *second..second + 1, per_s, &bad);
            !history.findings().is_empty()
        })
        .map(|second| second - 303)
}

#[test]
fn requests_that_fail_are_found_within_half_a_minute_with_their_cause() {
    for per_s in [1, 3, 10, 200] {
        let bad = |second: u64, number: u64| {
            (second * per_s + number).is_multiple_of(3).then(|| failed("gpu-a"))
        };
        let after = found_after(per_s, bad);
        assert!(after.is_some_and(|after| after <= 30), "{per_s} requests per second: {after:?}");
    }
    let mut history = RequestHistory::default();
    feed(&mut history, 0..303, 10, |_, _| None);
    feed(&mut history, 303..333, 10, |_, number| match number {
        0 | 1 => Some(failed("gpu-a")),
        2 => Some(Outcome { end: End::Cut, region: Some(RegionName::from("eu")), ..ok() }),
        _ => None,
    });
    let [finding] = history.findings().try_into().unwrap();
    assert_eq!(finding.trouble, RequestTrouble::Failing);
    assert!((finding.share - 0.25).abs() < 0.06, "{}", finding.share);
    assert_eq!(finding.usual, Some(0.0));
    let causes: Vec<String> = finding.causes.iter().map(|(cause, _)| cause.to_string()).collect();
    assert_eq!(causes, ["500 from gpu-a", "replies of region eu break off"]);
    assert!((finding.causes[0].1 - 0.67).abs() < 0.01);
}

#[test]
fn what_was_usual_is_of_before_the_trouble() {
    let mut history = RequestHistory::default();
    let failing = |_, number| (number < 3).then(|| failed("gpu-a"));
    feed(&mut history, 0..40, 10, failing);
    assert_eq!(history.findings().first().and_then(|it| it.usual), None, "nothing was before");
    let mut history = RequestHistory::default();
    feed(&mut history, 0..303, 10, |_, _| None);
    // Minutes of trouble make it not usual.
    feed(&mut history, 303..900, 10, failing);
    assert_eq!(history.findings().first().and_then(|it| it.usual), Some(0.0));
}

#[test]
fn a_quiet_node_finds_out_in_some_minutes() {
    let after = found_after(1, |second, _| second.is_multiple_of(20).then(|| failed("gpu-a")));
    assert!(after.is_some_and(|after| (60..400).contains(&after)), "{after:?}");
}

#[test]
fn half_a_percent_and_a_burst_of_ten_seconds_are_no_trouble() {
    for per_s in [1, 10, 40, 1_000] {
        let rare = |second: u64, number: u64| {
            ((second * per_s + number) % 200 == 7).then(|| failed("gpu-a"))
        };
        assert_eq!(found_after(per_s, rare), None, "{per_s} requests per second");
        for begin in 303..313 {
            let burst = |second, _| (begin..begin + 10).contains(&second).then(|| failed("gpu-a"));
            assert_eq!(found_after(per_s, burst), None, "{per_s} requests per second");
        }
    }
}

#[test]
fn trouble_ends_half_a_minute_after_its_last_failure_and_does_not_flicker() {
    let mut history = RequestHistory::default();
    feed(&mut history, 0..100, 10, |_, _| None);
    feed(&mut history, 100..160, 10, |_, number| (number < 3).then(|| failed("gpu-a")));
    let mut was_found = Vec::new();
    for second in 160..600 {
        feed(&mut history, second..second + 1, 10, |_, _| None);
        was_found.push(!history.findings().is_empty());
    }
    let ended = was_found.iter().position(|found| !found).unwrap();
    assert!((25..=40).contains(&ended), "after {ended} s");
    assert!(was_found[ended..].iter().all(|found| !found));
}

#[test]
fn limits_of_clients_are_no_trouble_and_name_the_client() {
    let mut history = RequestHistory::default();
    feed(&mut history, 0..60, 10, |_, number| (number < 4).then(|| refused("request_rate")));
    assert_eq!(history.findings(), []);
    let [(client, per_s)] = history.limited_clients().try_into().unwrap();
    assert_eq!((client.client.to_string(), client.reason), ("key acme-1".into(), "request_rate"));
    assert!((per_s - 4.0).abs() < 0.01, "{per_s}");
    feed(&mut history, 60..120, 10, |_, number| (number < 4).then(|| refused("queue_full")));
    let [finding] = history.findings().try_into().unwrap();
    assert_eq!(finding.trouble, RequestTrouble::Refused);
    assert_eq!(finding.causes, [(RequestCause::Refused("queue_full"), 1.0)]);
    assert_eq!(history.limited_clients(), []);
}

#[test]
fn the_client_with_most_requests_is_named_with_its_share() {
    let mut history = RequestHistory::default();
    assert_eq!(history.busiest_client(), None);
    feed(&mut history, 0..60, 100, |_, number| {
        let key = if number < 80 { "initech-1".to_owned() } else { format!("other-{number}") };
        Some(Outcome { key: Some(Arc::from(key.as_str())), ..ok() })
    });
    let (client, share) = history.busiest_client().unwrap();
    assert_eq!(client.to_string(), "key initech-1");
    assert!((share - 0.8).abs() < 0.01, "{share}");
}

#[test]
fn what_clients_do_is_no_failure() {
    let client = |status, end| Outcome { status, end, ..ok() };
    let mut history = RequestHistory::default();
    feed(&mut history, 0..120, 10, |_, number| match number {
        0..3 => Some(client(404, End::Answered)),
        3..6 => Some(client(429, End::Complete)),
        6..9 => Some(client(200, End::CancelledInReply)),
        _ => Some(Outcome::begun()),
    });
    assert_eq!(history.findings(), []);
}

#[test]
fn charts_have_ten_minutes_and_memory_is_bounded() {
    let mut history = RequestHistory::default();
    assert_eq!(history.points(), []);
    feed(&mut history, 0..2_000, 10, |second, number| {
        (number == 0).then(|| failed(&format!("gpu-{second}")))
    });
    let points = history.points();
    assert_eq!(points.len(), BINS_MAX - 1);
    let last = points.last().unwrap();
    assert_eq!((last.requests_per_s, last.failed_per_s, last.tokens_per_s), (10.0, 1.0, 100.0));
    let p50 = last.first_token_p50_ms.unwrap();
    assert!((p50 / 80.0 - 1.0).abs() < 0.2, "{p50}");
    for number in 0..100 {
        history.record(&failed(&format!("gpu-{number}")));
    }
    let newest = history.bins.back().unwrap();
    assert_eq!(newest.failures.len(), CAUSES_MAX + 1);
    // Five of them are of the seconds of this bin.
    assert_eq!(newest.failures[&RequestCause::Other], 100 - (CAUSES_MAX as u32 - 5));
}

#[test]
fn a_machine_that_slept_begins_with_empty_bins() {
    let mut history = RequestHistory::default();
    feed(&mut history, 0..100, 10, |_, _| Some(failed("gpu-a")));
    history.advance(Duration::from_secs(1_000_000));
    assert_eq!(history.findings(), []);
    assert!(history.points().iter().all(|point| point.requests_per_s == 0.0));
}
