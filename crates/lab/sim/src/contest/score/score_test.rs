use std::time::Instant;

use super::*;
use crate::{Cell, Conditions, Traces};

#[expect(clippy::disallowed_methods, reason = "some moment has to stand for time 0")]
fn world(central: Option<usize>) -> WorldConfig {
    let conditions = Conditions { central, ..Conditions::default() };
    let cell = Cell::named("no-reuse").unwrap();
    cell.scenario(&conditions, 1, Instant::now(), &Traces::default()).unwrap().world
}

fn record(region: usize, served_by: Option<usize>, first_token_ms: Option<f64>) -> Record {
    Record {
        region,
        served_by,
        arrived_s: 65.0,
        first_token_ms,
        ended_ms: first_token_ms.map(|first| first + 1_000.0),
        prompt_tokens: 300,
        cached_tokens: 100,
        reply_tokens: 100,
        is_forwarded: served_by.is_some_and(|served| served != region),
        fate: crate::Fate::Answered,
        returns: 0,
        asked_again_ms: 0.0,
    }
}

fn score(records: Vec<Record>, central: Option<usize>) -> Score {
    let figures = Figures { records, seconds: 10.0, ..Figures::default() };
    Score::of(&figures, &Slo::L4, &world(central))
}

#[test]
fn a_score_counts_good_late_and_failed_requests() {
    let score = score(
        vec![
            record(0, Some(0), Some(100.0)),
            record(0, Some(1), Some(9_000.0)),
            record(1, None, None),
        ],
        None,
    );
    assert_eq!((score.requests, score.failed, score.gpus), (3.0, 1.0, 12.0));
    assert_eq!((score.goodput_per_s, score.p50_ms, score.p95_ms), (0.1, 9_000.0, 30_000.0));
    assert_eq!((score.cached_share, score.forwarded_share), (1.0 / 3.0, 1.0 / 3.0));
    assert_eq!(score.windows, Windows::of([5.0]));
}

#[test]
fn tokens_are_timed_from_the_first_one_on_and_short_or_broken_replies_have_no_such_time() {
    let reply = |tokens, span_ms| Record {
        reply_tokens: tokens,
        ended_ms: Some(100.0 + span_ms),
        ..record(0, Some(0), Some(100.0))
    };
    let broken = Record { ended_ms: None, ..reply(11, 0.0) };
    let short = reply(1, 5_000.0);
    let score =
        score(vec![reply(11, 200.0), reply(11, 600.0), reply(11, 400.0), short, broken], None);
    assert_eq!((score.token_p50_ms, score.token_p95_ms), (40.0, 60.0));
}

#[test]
fn bytes_count_each_time_that_they_cross_between_regions() {
    let bytes = |region, served_by, central| {
        score(vec![record(region, served_by, Some(1.0))], central).egress_bytes_per_s
    };
    // 400 tokens of 4 bytes, in 10 seconds.
    assert_eq!(bytes(1, Some(1), None), 0.0);
    assert_eq!(bytes(1, Some(2), None), 160.0);
    // By way of a central router in region 0, to a replica beside it, elsewhere, and back home.
    assert_eq!(bytes(0, Some(0), Some(0)), 0.0);
    assert_eq!(bytes(1, Some(0), Some(0)), 160.0);
    assert_eq!(bytes(1, Some(2), Some(0)), 320.0);
    assert_eq!(bytes(1, Some(1), Some(0)), 320.0);
    assert_eq!(bytes(1, None, None), 0.0);
}

#[test]
fn a_mean_is_over_all_scores() {
    let [one, two] = [1.0, 2.0].map(|goodput_per_s| Score {
        goodput_per_s,
        requests: 3.0 * goodput_per_s,
        ..Score::default()
    });
    let mean = Score::mean(&[&one, &two]);
    assert_eq!((mean.goodput_per_s, mean.requests, mean.failed), (1.5, 4.5, 0.0));
    assert_eq!(Score::mean(&[]), Score::default());
}
