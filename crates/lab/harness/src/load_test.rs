//! Tests of open loops and of the records of a load.

use super::*;
use crate::attempt::LoadReply;

fn attempt(due: Instant, status: u16) -> LoadAttempt {
    let retry_after = (status == 503).then_some(Duration::from_secs(1));
    let reply = LoadReply { status, retry_after, ..LoadReply::default() };
    LoadAttempt::at_once(due, AttemptEnd::Whole(reply))
}

#[test]
fn what_is_under_way_at_the_end_has_failed() {
    let (records, due) = (OpenRecords::default(), Instant::now());
    for number in [1, 2] {
        records.begin(number, due);
    }
    records.finish(2, attempt(due, 200));
    let ended = records.end(due + Duration::from_secs(3));
    assert_eq!(ended.iter().map(LoadRecord::is_good).collect::<Vec<_>>(), [false, true]);
    let lost = &ended[0].attempts;
    assert_eq!((lost.len(), lost[0].due, lost[0].took().as_secs()), (1, due, 3));
}

#[test]
fn a_first_retry_counts_when_the_end_comes_in_a_later_wait_or_attempt() {
    let (records, due) = (OpenRecords::default(), Instant::now());
    for number in [1, 2, 3] {
        records.begin(number, due);
        records.finish(number, attempt(due, 503));
    }
    records.begin(1, due);
    records.finish(1, attempt(due, 503));
    records.begin(2, due);
    let ended = records.end(due);
    // The first waits for its third attempt, the second is not over, and the third has made
    // none.
    let retries: Vec<_> = ended.iter().map(LoadRecord::first_retry).collect();
    assert_eq!(retries, [Some(false), Some(false), None]);
    assert!(!ended.iter().any(LoadRecord::is_good));
}

#[test]
fn gaps_keep_the_rate_and_are_not_even() {
    let mut random = fastrand::Rng::with_seed(3);
    let gaps: Vec<f64> =
        (0..10_000).map(|_| exponential_gap(&mut random, 100.0).as_secs_f64()).collect();
    // 100 s expected, with a deviation of 1 s.
    assert!((96.0..104.0).contains(&gaps.iter().sum::<f64>()));
    // With even gaps of 10 ms there would be none below 1 ms; with exponential ones it is 9.5 %.
    let short = gaps.iter().filter(|gap| **gap < 1e-3).count();
    assert!((800..1_100).contains(&short), "{short}");
}

#[tokio::test(start_paused = true)]
async fn an_open_loop_waits_for_none_and_returns_all() {
    let start = Instant::now();
    let arrivals = (0..5).map(|number| (start, number));
    let act = |number: u64, _| {
        (number < 4).then_some(async move {
            // wait: the action takes this long, in paused time
            sleep(Duration::from_secs(10 - number)).await;
            number
        })
    };
    assert_eq!(open_loop(arrivals, act).await, [3, 2, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_one_request_is_no_shorter_load() {
    let client = LoadClient::new(([127, 0, 0, 1], 9).into());
    let source = || {
        LoadSource::new(|number| {
            assert!(number != 3, "of request 3");
            LoadRequest::get("/")
        })
    };
    let loads = [
        LoadGenerator::open(&client, source(), 1_000.0, 1),
        LoadGenerator::closed(&client, source(), 5, Duration::from_millis(1)),
    ];
    for load in loads {
        // wait: until the third request, in paused time
        sleep(Duration::from_secs(1)).await;
        let ended = spawn(load.end(Duration::ZERO)).await;
        let panic = ended.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref(), Some(&"of request 3"));
    }
}
