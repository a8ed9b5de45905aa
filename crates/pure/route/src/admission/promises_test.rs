//! Promises that are made, kept and broken.

use std::time::{Duration, Instant};

use super::{Promise, Promises};
use crate::queue::QueueLoad;
use crate::test_world::NOW;

fn at(ms: u64) -> Instant {
    *NOW + Duration::from_millis(ms)
}

fn of(class: usize, tenant: u64) -> Promise {
    Promise { class, tenant, cost: 100 }
}

#[test]
fn a_promise_is_redeemed_once_from_its_moment_on_and_not_much_earlier_or_later() {
    for (ms, is_redeemed) in [
        (1_000, false),
        (9_400, false),
        (9_600, true),
        (10_000, true),
        (24_900, true),
        (25_100, false),
    ] {
        let mut promises = Promises::default();
        assert!(promises.make(7, of(0, 0), at(10_000)));
        assert!(!promises.redeem(8, at(ms)), "another request");
        assert_eq!(promises.redeem(7, at(ms)), is_redeemed, "{ms}");
        assert!(!is_redeemed || !promises.redeem(7, at(ms)), "{ms}: twice");
    }
}

#[test]
fn equal_requests_have_a_promise_each_and_the_earliest_is_redeemed_first() {
    let mut promises = Promises::default();
    for due_ms in [5_000, 1_000, 3_000] {
        assert!(promises.make(7, of(0, 0), at(due_ms)));
    }
    assert!(promises.redeem(7, at(1_000)));
    assert!(!promises.redeem(7, at(1_000)));
    assert!(promises.redeem(7, at(5_000)) && promises.redeem(7, at(5_000)));
    assert!(promises.is_empty());
}

#[test]
fn places_count_as_taken_until_shortly_after_their_moment_or_until_they_are_redeemed() {
    let mut promises = Promises::default();
    for (fingerprint, class, tenant) in [(1, 0, 5), (2, 1, 5), (3, 1, 6), (4, 1, 6)] {
        assert!(promises.make(fingerprint, of(class, tenant), at(10_000)));
    }
    assert_eq!([0, 1, 2].map(|class| promises.taken(class)), [1, 3, 0]);
    assert_eq!(promises.of_tenant(1, 6), QueueLoad { requests: 2, cost: 200 });
    assert!(promises.redeem(3, at(10_000)));
    let tenants: Vec<_> =
        promises.by_tenant(1).map(|(tenant, load)| (tenant, load.requests)).collect();
    assert_eq!((promises.taken(1), tenants), (2, vec![(5, 1), (6, 1)]));
    promises.expire(at(11_400));
    assert_eq!(promises.taken(1), 2);
    promises.expire(at(11_600));
    assert_eq!(([0, 1].map(|class| promises.taken(class)), promises.len()), ([0, 0], 3));
    assert!(promises.redeem(2, at(12_000)), "late, but in time");
    promises.expire(at(25_000));
    assert!(promises.is_empty());
}

#[test]
fn the_share_of_those_who_come_is_learned_when_all_could_have_come() {
    let mut promises = Promises::default();
    for step in 0..4_000 {
        let now = at(step * 10);
        assert!(promises.make(step, of(0, 0), now + Duration::from_secs(2)));
        if let Some(shown) = step.checked_sub(200)
            && shown % 10 < 3
        {
            assert!(promises.redeem(shown, now));
        }
        promises.expire(now);
        if step < 1_600 {
            assert_eq!(promises.show_share(), 1.0, "nobody could have failed to come yet");
        }
    }
    assert!((promises.show_share() - 0.3).abs() < 0.02, "{}", promises.show_share());
}

#[test]
fn there_is_an_end_to_what_is_promised() {
    let mut promises = Promises::default();
    for fingerprint in 0..Promises::COUNT_MAX as u64 {
        assert!(promises.make(fingerprint, of(3, fingerprint), at(fingerprint % 60_000)));
    }
    assert!(!promises.make(1, of(3, 1), at(5)));
    assert_eq!(promises.len(), Promises::COUNT_MAX);
    promises.expire(at(120_000));
    assert!(promises.is_empty());
    assert!(promises.make(1, of(3, 1), at(120_005)));
}
