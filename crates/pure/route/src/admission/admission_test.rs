//! Retry-After of requests that meet a queue, by its backlog and its promises.

use std::time::{Duration, Instant};

use spillway_types::Deadline;

use super::{Admission, Asker, Refusal, RetryAfter};
use crate::test_world::NOW;
use crate::{ShedReason, WaitEntry, WaitLimits};

const LIMITS: WaitLimits = WaitLimits { count_max: 50, bytes_max: 1 << 20, wait_ms_max: 30_000 };

const QUEUE_FULL: Refusal = Refusal::new(ShedReason::QueueFull, 0.0);

fn at(ms: u64) -> Instant {
    *NOW + Duration::from_millis(ms)
}

fn asker(fingerprint: u64) -> Asker {
    Asker { fingerprint, ..Asker::default() }
}

fn entry(asker: &Asker, now: Instant) -> WaitEntry<u64> {
    let Asker { priority, tenant, weight, tokens, bytes, fingerprint, is_promised } = *asker;
    let new = WaitEntry::new(fingerprint, Deadline::after(now, Duration::from_secs(300)));
    WaitEntry { priority, tenant, weight, tokens, bytes, fingerprint, is_promised, ..new }
}

/// Returns a full queue that was served ten times a second for ten seconds, up to `at(10_000)`.
fn full() -> Admission<u64> {
    let mut admission = Admission::new(LIMITS);
    for fingerprint in 0..150 {
        let now = at(if fingerprint < 50 { 0 } else { (fingerprint - 49) * 100 });
        if fingerprint >= 50 {
            let (_, next) = admission.pop_next(now).unwrap();
            admission.began(&next.asker(), now);
        }
        admission.enter(entry(&asker(fingerprint), now), now).unwrap();
    }
    admission
}

fn told(admission: &mut Admission<u64>, asker: &Asker, ms: u64) -> RetryAfter {
    admission.shed(asker, QUEUE_FULL, at(ms), &mut fastrand::Rng::with_seed(7))
}

#[test]
fn each_that_is_turned_away_is_told_the_next_free_place() {
    let mut admission = full();
    let rate = admission.rate_per_s(at(10_000)).unwrap();
    assert!((9.5..10.5).contains(&rate), "{rate}");
    // Each waits behind the 50 in the queue and the ones before it; ten are served a second.
    for place in 0..300 {
        let RetryAfter { seconds, is_promised } =
            told(&mut admission, &asker(1_000 + place), 10_000);
        let due = (51.0 + place as f32) / rate / 0.98;
        assert!((0.0..2.0).contains(&(seconds as f32 - due)), "{place}: {seconds} s, due {due} s");
        assert!(is_promised);
    }
    assert_eq!(admission.promised(), 300);
}

#[test]
fn beyond_a_minute_nothing_is_promised_but_what_can_wait_the_rest_here() {
    let mut admission = full();
    let all: Vec<RetryAfter> =
        (0..800).map(|place| told(&mut admission, &asker(1_000 + place), 10_000)).collect();
    let promised = all.iter().filter(|told| told.is_promised).count();
    // 60 s of ten a second, less the 50 that wait, plus half of the room for 128 more.
    assert!((570..=620).contains(&promised), "{promised}");
    assert!(all[..promised].iter().all(|told| told.is_promised && told.seconds <= 60));
    assert!(all[promised..].iter().all(|told| (48..=60).contains(&told.seconds)));
}

#[test]
fn an_objective_that_refuses_promises_a_tenth_of_the_places_and_none_beyond_twenty_seconds() {
    let mut admission = full();
    while admission.pop_next(at(10_000)).is_some() {}
    let by_objective = Refusal::new(ShedReason::Slo, 0.0);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut shed =
        |place: u64| admission.shed(&asker(1_000 + place), by_objective, at(10_000), &mut rng);
    let all: Vec<RetryAfter> = (0..100).map(&mut shed).collect();
    // One of the ten places a second, up to the twentieth second.
    let promised = all.iter().filter(|told| told.is_promised).count();
    assert!((17..=21).contains(&promised), "{promised}");
    for (place, told) in all[..promised].iter().enumerate() {
        let due_s = (place + 1) as f32;
        assert!((told.seconds as f32 - due_s).abs() < 2.5, "{place}: {told:?}, due {due_s} s");
    }
    assert!(all[promised..].iter().all(|told| !told.is_promised && told.seconds >= 48));
}

#[test]
fn who_comes_as_told_is_taken_by_a_full_queue_and_served_before_newcomers() {
    let mut admission = full();
    let mut known = asker(1_000);
    let RetryAfter { seconds, .. } = told(&mut admission, &known, 10_000);
    let now = at(10_000 + u64::from(seconds) * 1_000);
    assert!(!admission.waiting(&known, now).has_room);
    assert!(!admission.redeem(known.fingerprint, at(10_000)), "too early");
    known.is_promised = admission.redeem(known.fingerprint, now);
    assert!(known.is_promised);
    let waiting = admission.waiting(&known, now);
    assert_eq!((waiting.ahead, waiting.has_room), (0, true));
    admission.enter(entry(&known, now), now).unwrap();
    // All promised requests that came before it have waited longer than they were promised.
    let before = (0..50).find(|_| admission.pop_next(now).unwrap().1.fingerprint == 1_000);
    assert_eq!(before, None);
    let newcomer = admission.enter(entry(&asker(2_000), now), now).unwrap();
    assert_eq!(admission.waiting_of(newcomer.ticket, now).unwrap().ahead, 1);
    assert_eq!(admission.pop_next(now).unwrap().1.fingerprint, 1_000);
}

#[test]
fn promised_places_are_taken_for_newcomers_unless_replicas_would_run_dry() {
    let mut admission = full();
    (0..100).for_each(|place| assert!(told(&mut admission, &asker(place), 10_000).is_promised));
    for _ in 0..40 {
        assert!(admission.pop_next(at(10_000)).is_some());
    }
    let newcomer = asker(5_000);
    let waiting = admission.waiting(&newcomer, at(10_000));
    assert_eq!((waiting.ahead, waiting.has_room), (10, false));
    while admission.len() > 2 {
        assert!(!admission.waiting(&newcomer, at(10_000)).has_room);
        let _served = admission.pop_next(at(10_000));
    }
    let waiting = admission.waiting(&newcomer, at(10_000));
    assert!(waiting.has_room, "a quarter of a second of work may always wait");
    // Two wait and ten are served each second; promised requests that come later don't count.
    assert!((250..400).contains(&waiting.wait_ms.unwrap()), "{waiting:?}");
}

#[test]
fn a_more_urgent_newcomer_takes_no_notice_of_promises_to_others() {
    let mut admission = full();
    let lower = |fingerprint| Asker { priority: 2, ..asker(fingerprint) };
    // The first class takes all that replicas can do, so the second class gets its turns only.
    let promised = |place| told(&mut admission, &lower(place), 10_000).is_promised;
    let count = (0..200).map(promised).filter(|&is_promised| is_promised).count();
    assert!((10..=30).contains(&count), "{count}");
    let waiting = admission.waiting(&Asker { priority: 0, ..asker(1) }, at(10_000));
    assert_eq!(waiting.ahead, 50);
    assert!((4_800..5_300).contains(&waiting.wait_ms.unwrap()), "{waiting:?}");
    assert!(told(&mut admission, &asker(2), 10_000).seconds <= 8);
}

#[test]
fn a_tenant_that_was_promised_much_does_not_push_the_places_of_another_one_back() {
    let mut admission = full();
    let of = |tenant, fingerprint| Asker { tenant, tokens: 500, ..asker(fingerprint) };
    (0..400).for_each(|place| {
        let _told = told(&mut admission, &of(1, place), 10_000);
    });
    let other = told(&mut admission, &of(2, 9_000), 10_000);
    assert!(other.seconds <= 2, "{other:?}");
    let own = told(&mut admission, &of(1, 9_001), 10_000);
    assert!(own.seconds >= 45, "{own:?}");
}

#[test]
fn who_waits_is_told_the_same_all_the_while_unless_the_queue_slows_down() {
    let mut admission = full();
    let _first = admission.pop_next(at(10_000));
    let at_first = admission.waiting(&asker(1), at(10_000)).wait_ms.unwrap();
    let entered = admission.enter(entry(&asker(1), at(10_000)), at(10_000)).unwrap();
    let wait_ms = |admission: &Admission<u64>, ms: u64| {
        admission.waiting_of(entered.ticket, at(ms)).unwrap().wait_ms.unwrap()
    };
    assert!((4_700..5_300).contains(&at_first), "{at_first}");
    assert!(wait_ms(&admission, 10_000).abs_diff(at_first) <= 1);
    for step in 1..=20 {
        let (_, next) = admission.pop_next(at(10_000 + step * 100)).unwrap();
        admission.began(&next.asker(), at(10_000 + step * 100));
    }
    assert!(wait_ms(&admission, 12_000).abs_diff(at_first - 2_000) <= 1);
    // Then no request ends for half a minute.
    assert!(wait_ms(&admission, 42_000) > 5_000, "{}", wait_ms(&admission, 42_000));
}

#[test]
fn without_a_rate_nothing_is_promised_and_the_prediction_is_told() {
    let mut admission: Admission<u64> = Admission::new(LIMITS);
    let mut rng = fastrand::Rng::with_seed(7);
    let told =
        admission.shed(&asker(1), Refusal::new(ShedReason::QueueFull, 5_000.0), at(0), &mut rng);
    assert!(!told.is_promised && (5..=8).contains(&told.seconds), "{told:?}");
    assert_eq!(admission.promised(), 0);
}

#[test]
fn it_is_idle_once_it_has_nothing_to_remember() {
    let mut admission = full();
    assert!(!admission.is_idle(at(10_000)));
    while admission.pop_next(at(10_000)).is_some() {}
    assert!(!admission.is_idle(at(10_000)), "the rate");
    assert!(admission.is_idle(at(80_000)));
    assert!(told(&mut admission, &asker(1), 20_000).is_promised);
    assert!(!admission.is_idle(at(30_000)), "a promise");
}
