use super::*;
use crate::{LimitKind, RequestWindow};

const S: u64 = 1_000_000_000;

fn window(kind: LimitKind) -> Option<Duration> {
    kind.window(RequestWindow::Second)
}

fn tokens(held: u64) -> Meter {
    let meter = Meter::new(window(LimitKind::TokenRate));
    meter.set_whole(1_000);
    meter.hold(held, 0, 0);
    meter.divided();
    meter
}

#[test]
fn what_is_held_is_charged_once_a_window_and_no_more() {
    let meter = tokens(100);
    for second in 0..10 {
        meter.charge(second * S, 10).unwrap();
    }
    let wait_ns = meter.charge(30 * S, 10).unwrap_err();
    // The first charge was made at 0 and goes with its step of half a second.
    assert_eq!(wait_ns, 30 * S + S / 2 + 60_500_000);
    assert!(meter.charge(30 * S + wait_ns - 1, 10).is_err());
    meter.charge(30 * S + wait_ns, 10).unwrap();
    assert_eq!(meter.in_use(30 * S + wait_ns), 100);
    assert_eq!(meter.in_use(300 * S), 0);
}

#[test]
fn no_window_of_any_beginning_holds_more_than_is_held() {
    let (meter, mut dice) = (tokens(500), fastrand::Rng::with_seed(7));
    let (mut now_ns, mut made) = (0, Vec::new());
    for _ in 0..20_000 {
        now_ns += dice.u64(..S / 5);
        let units = dice.u64(1..60);
        if meter.charge(now_ns, units).is_ok() {
            made.push((now_ns, units));
        }
    }
    let mut total = 0;
    for (last, (end_ns, _)) in made.iter().enumerate() {
        let window = made[..=last].iter().rev().take_while(|(at, _)| at + 60 * S > *end_ns);
        let sum: u64 = window.map(|(_, units)| units).sum();
        assert!(sum <= 500, "{sum} in the minute before {end_ns}");
        total = total.max(sum);
    }
    assert!(total > 480, "{total}");
    let rate = made.iter().map(|(_, units)| units).sum::<u64>() as f64 / (now_ns as f64 / 60e9);
    assert!(rate > 480.0, "{rate} a minute");
}

#[test]
fn a_lease_counts_until_it_ends() {
    let meter = tokens(10);
    meter.hold(10, 90, 20 * S);
    meter.charge(0, 60).unwrap();
    assert_eq!((meter.held(20 * S - 1), meter.held(20 * S)), (100, 10));
    meter.charge(20 * S - 1, 40).unwrap();
    assert!(meter.charge(20 * S, 1).is_err());
    assert!(meter.charge(61 * S, 1).is_err(), "what was charged on the lease counts on");
    meter.charge(81 * S, 10).unwrap();
}

#[test]
fn what_was_charged_too_much_is_given_back_while_it_counts() {
    let meter = tokens(100);
    let early = meter.charge(0, 100).unwrap();
    meter.settle(early, Some(30));
    assert_eq!(meter.in_use(S), 30);
    let late = meter.charge(S, 70).unwrap();
    assert_eq!(meter.in_use(90 * S), 0);
    meter.charge(90 * S, 100).unwrap();
    meter.settle(late, Some(0));
    assert_eq!(meter.in_use(90 * S), 100, "a charge that is out gives nothing back");
}

#[test]
fn overshoot_is_debt_that_is_charged_before_anything_else() {
    let meter = tokens(100);
    let charge = meter.charge(0, 50).unwrap();
    meter.settle(charge, Some(180));
    assert_eq!(meter.debt(), 130);
    assert!(meter.charge(S, 1).is_err());
    assert_eq!((meter.in_use(S), meter.debt()), (100, 80), "never more than is held");
    // The first 50 have gone, 50 of the debt have not.
    assert!(meter.charge(60 * S + 600_000_000, 1).is_err());
    assert_eq!(meter.debt(), 30);
    assert!(meter.charge(62 * S, 80).is_err(), "30 of 50 free ones go for debt");
    meter.charge(62 * S, 20).unwrap();
    assert_eq!(meter.debt(), 0);
}

#[test]
fn a_place_is_free_when_the_request_ended() {
    let meter = Meter::new(None);
    meter.hold(2, 0, 0);
    let one = meter.charge(0, 1).unwrap();
    meter.charge(0, 1).unwrap();
    assert!(meter.charge(3_600 * S, 1).is_err());
    meter.settle(one, Some(500));
    meter.charge(0, 1).unwrap();
    assert_eq!(meter.take_asked(), Asked { peak: 2, refused: 1 });
    assert_eq!(meter.take_asked(), Asked { peak: 2, refused: 0 });
}

#[test]
fn what_may_have_been_charged_before_counts_for_a_window() {
    let meter = tokens(100);
    meter.assume(5 * S, 100);
    assert!(meter.charge(60 * S, 1).is_err());
    meter.charge(66 * S, 100).unwrap();
}

#[test]
fn threads_never_charge_more_than_is_held() {
    let meter = Meter::new(window(LimitKind::RequestRate));
    meter.hold(1_000, 0, 0);
    let clock = AtomicU64::new(0);
    let charge = || {
        let mut made = Vec::new();
        for _ in 0..200_000 {
            let now_ns = clock.fetch_add(20_000, Ordering::Relaxed);
            if let Ok(charge) = meter.charge(now_ns, 1) {
                made.push(now_ns);
                if now_ns.is_multiple_of(7) {
                    meter.undo(charge);
                    made.pop();
                }
            }
        }
        made
    };
    let mut made: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(charge)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    made.sort_unstable();
    let mut first = 0;
    for (last, at) in made.iter().enumerate() {
        while made[first] + S <= *at {
            first += 1;
        }
        // A thread may be held up for a step between reading the clock and charging.
        assert!(last - first < 1_016, "{} in one second", last - first + 1);
    }
    assert!(made.len() > 14_500, "{}", made.len());
    assert_eq!(meter.in_use(u64::MAX / 2), 0, "everything goes in the end");
}

/// Checks limits that are created or used again when the process has run for days, and the tags of
/// their window have wrapped around.
#[test]
fn it_makes_no_difference_for_how_long_the_process_runs() {
    const HOUR: u64 = 3_600 * S;
    for kind in [LimitKind::RequestRate, LimitKind::TokenRate] {
        let old = Meter::new(window(kind));
        old.hold(100, 0, 0);
        // Tags wrap around after 3 days for requests and 97 for tokens; the old meter idles in
        // between.
        for hours in [0, 1, 36, 37, 50, 72, 73, 110, 1_200, 2_000, 2_400, 30_000] {
            let new = Meter::new(window(kind));
            new.hold(100, 0, 0);
            let window_ns = window(kind).map_or(0, |window| window.as_nanos() as u64);
            for meter in [&old, &new] {
                for round in 0..5 {
                    let at_ns = hours * HOUR + round * (window_ns + S);
                    for _ in 0..100 {
                        meter.charge(at_ns, 1).unwrap();
                    }
                    assert!(meter.charge(at_ns, 1).is_err(), "{kind:?} after {hours} h");
                }
            }
        }
    }
}

#[test]
fn debt_beyond_one_limit_is_paid_whole_window_by_window() {
    let meter = tokens(1_000);
    let charge = meter.charge(0, 10).unwrap();
    meter.settle(charge, Some(9_000));
    // No requests come during this time.
    let mut paid = 10;
    for second in 1..=600 {
        meter.pay(second * S);
        let debt = meter.debt();
        let in_use = meter.in_use(second * S);
        assert!(in_use <= 1_000, "{in_use} after {second} s");
        paid = paid.max(9_000 - debt);
        assert!(paid <= 1_000 * (second / 60 + 1), "{paid} after {second} s");
    }
    assert_eq!((meter.debt(), meter.in_use(700 * S)), (0, 0));
    meter.charge(700 * S, 1_000).unwrap();
}

#[test]
fn who_is_in_debt_is_told_when_it_is_paid() {
    let meter = tokens(1_000);
    let charge = meter.charge(0, 10).unwrap();
    meter.settle(charge, Some(7_500));
    let wait_ns = meter.charge(S, 100).unwrap_err();
    assert!((420 * S..440 * S).contains(&wait_ns), "{wait_ns}");
    for quarter in 4..4 * wait_ns / S {
        meter.pay(quarter * S / 4);
        assert!(quarter > 4 * 360 || meter.debt() > 0, "paid after {quarter} quarters of a second");
    }
    meter.charge(S + wait_ns, 100).unwrap();
}

/// Clients that use more than they were charged for, 200 at a time, at random times.
#[test]
fn liars_use_no_more_than_the_limit_over_many_windows_but_for_what_was_under_way_at_once() {
    const WHOLE: u64 = 3_000;
    const USED_MAX: u64 = 900;
    for (seed, parallel) in [(1, 1), (2, 1), (3, 200), (4, 200), (5, 17)] {
        let meter = tokens(WHOLE);
        let mut dice = fastrand::Rng::with_seed(seed);
        let (mut running, mut now_ns, mut used_all) = (Vec::new(), 0, 0);
        let mut batch_max = 0;
        while now_ns < 600 * S {
            now_ns += dice.u64(..2 * S);
            if dice.u8(..4) == 0 {
                meter.pay(now_ns);
            }
            while running.len() < parallel
                && let Ok(charge) = meter.charge(now_ns, dice.u64(1..20))
            {
                running.push(charge);
            }
            batch_max = batch_max.max(running.len() as u64);
            for charge in running.drain(..) {
                let used = dice.u64(..=USED_MAX);
                used_all += used.max(charge.units);
                meter.settle(charge, Some(used.max(charge.units)));
            }
        }
        let bound = 11 * WHOLE + batch_max * USED_MAX;
        assert!(used_all <= bound, "{parallel} at a time used {used_all} of {bound}");
        assert!(used_all >= 8 * WHOLE, "{parallel} at a time used {used_all} only");
    }
}

#[test]
fn what_is_owed_is_asked_for_though_nobody_asks_for_anything_else() {
    let meter = tokens(100);
    meter.owe(700);
    meter.pay(0);
    assert_eq!((meter.in_use(0), meter.debt()), (100, 600));
    meter.take_asked();
    assert_eq!(meter.take_asked().peak, 700);
}

#[test]
fn all_of_it_is_there_again_when_the_last_charge_has_left_the_window() {
    let meter = tokens(100);
    assert_eq!(meter.reset_ns(0), 0, "nothing is charged");
    meter.charge(0, 10).unwrap();
    meter.charge(30 * S, 10).unwrap();
    let reset_ns = meter.reset_ns(40 * S);
    // 30 s and a window, and as much as the step of the second charge.
    assert!((50 * S..51 * S).contains(&reset_ns), "{reset_ns}");
    let in_use = [40 * S + reset_ns - 1, 40 * S + reset_ns].map(|at_ns| meter.in_use(at_ns));
    assert_eq!(in_use, [10, 0]);
}

#[test]
fn a_place_is_asked_for_again_after_a_second() {
    let meter = Meter::new(None);
    meter.hold(1, 0, 0);
    meter.divided();
    meter.charge(0, 1).unwrap();
    assert_eq!(meter.charge(S, 1).unwrap_err(), S);
}

#[test]
fn who_holds_a_part_only_may_hold_more_in_three_seconds_and_pays_debt_by_the_whole_limit() {
    let meter = tokens(100);
    meter.charge(0, 90).unwrap();
    assert_eq!(meter.charge(S, 101).unwrap_err(), 3 * S, "more than is held");
    // Room for that comes as charges leave the window.
    assert!(meter.charge(S, 20).unwrap_err() > 55 * S);
    // With debt, the request needs more than is held: the node may hold more by then.
    meter.owe(95);
    assert_eq!(meter.charge(S, 20).unwrap_err(), 3 * S);
    // Debt of five whole limits takes five windows at least.
    meter.owe(5_000);
    let wait_ns = meter.charge(S, 1).unwrap_err();
    assert!((300 * S..310 * S).contains(&wait_ns), "{wait_ns}");
}

#[test]
fn nobody_is_told_to_come_again_later_than_in_a_day() {
    const DAY: u64 = 24 * 3_600 * S;
    for held in [10, 1_000] {
        let meter = tokens(held);
        meter.owe(3_000_000);
        assert_eq!(meter.charge(S, 1).unwrap_err(), DAY, "{held} held");
    }
}

#[test]
fn units_that_others_do_not_need_are_promised_once() {
    let (meter, wait) = (tokens(0), ReachWait::default());
    meter.hold(10, 40, 90 * S);
    meter.charge(0, 50).unwrap();
    wait.set(0, S);
    assert_eq!(meter.promise(0, 10, &wait), None, "others need what they hold");
    meter.expect(80);
    assert_eq!(meter.promise(0, 31, &wait), None, "more than will come");
    // A second, and half of one until the node can ask.
    wait.set(S / 2, S);
    for _ in 0..3 {
        assert_eq!(meter.promise(0, 10, &wait), Some(3 * S / 2));
    }
    assert_eq!(meter.promise(0, 1, &wait), None, "all of it is promised");
    assert_eq!(meter.promise(3 * S / 2, 30, &wait), Some(S), "it may not have come");
    assert_eq!(meter.promise(90 * S, 1, &wait), None, "a node without a lease hears of none");
}

#[test]
fn who_wants_more_than_will_come_waits_for_the_window_too() {
    let meter = tokens(0);
    meter.hold(10, 40, 90 * S);
    meter.expect(80);
    meter.charge(0, 20).unwrap();
    meter.charge(20 * S, 30).unwrap();
    // 20 have to leave of those charged, and 30 come.
    let wait_ns = meter.charge(30 * S, 50).unwrap_err();
    assert!((30 * S..32 * S).contains(&wait_ns), "{wait_ns}");
}
