//! Tests of steering: clients are sent away and sent again.

use proptest::prelude::*;

use super::*;
use crate::test_fleet::{ms, start};

const AWAY: fn(AwayReason) -> Steering = Steering::Away;
const WELL: SteeringFacts = SteeringFacts {
    is_ready: true,
    is_leaving: false,
    is_ordered_away: false,
    has_usable: true,
    has_better: true,
    has_other: true,
    tally: SteeringTally { served: 0, shed: 0 },
};

struct Test {
    machine: SteeringMachine,
    now: Instant,
    facts: SteeringFacts,
    /// Requests each tenth of a second: served, and rejected.
    load: (u64, u64),
}

impl Test {
    fn new() -> Self {
        let machine = SteeringMachine::new(SteeringConfig::default(), start());
        Self { machine, now: start(), facts: WELL, load: (10, 0) }
    }

    fn step(&mut self) -> Steering {
        self.now += ms(100);
        self.facts.tally.served += self.load.0;
        self.facts.tally.shed += self.load.1;
        self.machine.update(self.now, &self.facts)
    }

    /// Returns the decision after that time.
    fn after(&mut self, wait_ms: u64) -> Steering {
        (0..wait_ms / 100).map(|_| self.step()).last().unwrap()
    }

    /// Returns the milliseconds until that decision.
    fn until(&mut self, wanted: Steering) -> u64 {
        (1..3_000).find(|_| self.step() == wanted).expect("it says so some time") * 100
    }
}

#[test]
fn a_node_takes_clients_as_soon_as_it_is_ready() {
    let mut test = Test::new();
    test.facts.is_ready = false;
    assert_eq!(test.step(), AWAY(AwayReason::Starting));
    test.facts = SteeringFacts { has_usable: false, ..WELL };
    assert_eq!(test.after(60_000), AWAY(AwayReason::Starting), "an edge that has heard nobody");
    test.facts = WELL;
    assert_eq!(test.step(), Steering::Send);
}

#[test]
fn whoever_drains_or_is_ordered_away_says_so_at_once() {
    let mut test = Test::new();
    test.step();
    test.facts.is_ordered_away = true;
    assert_eq!(test.step(), AWAY(AwayReason::Ordered));
    test.facts.is_ordered_away = false;
    assert_eq!(test.step(), Steering::Send, "an order that ended needs no proof");
    test.facts =
        SteeringFacts { is_leaving: true, is_ordered_away: true, has_other: false, ..WELL };
    assert_eq!(test.step(), AWAY(AwayReason::Draining));
}

#[test]
fn one_sample_without_replicas_is_no_reason_and_half_a_second_is() {
    let mut test = Test::new();
    test.step();
    test.facts.has_usable = false;
    assert_eq!(test.after(400), Steering::Send);
    test.facts.has_usable = true;
    assert_eq!(test.step(), Steering::Send);
    test.facts.has_usable = false;
    assert_eq!(test.until(AWAY(AwayReason::NoUsableReplica)), 600);
    test.facts.has_other = false;
    assert_eq!(test.after(60_000), AWAY(AwayReason::NoUsableReplica), "nobody is served here");
    test.facts.has_usable = true;
    assert_eq!(test.until(Steering::Send), 10_100);
}

#[test]
fn shedding_has_to_last_before_clients_are_sent_away() {
    let mut test = Test::new();
    test.after(10_000);
    test.load = (5, 5);
    let seen = test.until(Steering::SendShedding);
    assert!((1_000..=3_000).contains(&seen), "a fifth of five seconds: {seen}");
    assert_eq!(test.until(AWAY(AwayReason::Shedding)), 3_000);
}

#[test]
fn a_short_burst_and_a_few_turned_away_are_no_reason() {
    let mut test = Test::new();
    test.after(10_000);
    test.load = (8, 1);
    assert_eq!(test.after(60_000), Steering::Send, "a ninth");
    // A fifth of the requests of five seconds, but not for three seconds.
    test.load = (0, 20);
    test.after(700);
    test.load = (20, 0);
    assert!((0..600).all(|_| test.step().takes_clients()));
    // Nine of nine requests, at night.
    test.load = (0, 0);
    test.after(10_000);
    test.facts.tally.shed += 9;
    assert_eq!(test.after(60_000), Steering::Send);
}

#[test]
fn a_region_that_is_as_full_as_all_others_stays() {
    let mut test = Test::new();
    test.facts.has_better = false;
    test.load = (5, 5);
    test.after(2_000);
    assert_eq!(test.after(60_000), Steering::SendShedding);
    test.facts.has_better = true;
    assert_eq!(test.step(), AWAY(AwayReason::Shedding));
    // The other region is full now too, and still takes clients.
    test.facts.has_better = false;
    assert_eq!(test.after(5_000), AWAY(AwayReason::Shedding));
    // The other region takes no clients at all.
    test.facts.has_other = false;
    assert_eq!(test.step(), Steering::SendShedding);
}

#[test]
fn clients_come_back_later_each_time_and_never_later_than_the_limit() {
    let mut test = Test::new();
    test.step();
    let mut waits = Vec::new();
    for _ in 0..8 {
        test.load = (2, 8);
        test.until(AWAY(AwayReason::Shedding));
        test.load = (0, 0);
        waits.push(test.until(Steering::Send));
    }
    assert!((10_000..=16_000).contains(&waits[0]), "{waits:?}");
    assert!(waits[1] > waits[0] && waits[2] > waits[1] && waits[7] > 40_000, "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 126_000), "{waits:?}");
    // All flaps are forgiven after an hour.
    test.load = (10, 0);
    test.after(3_600_000);
    test.load = (2, 8);
    test.until(AWAY(AwayReason::Shedding));
    test.load = (10, 0);
    assert!(test.until(Steering::Send) <= 16_000);
}

#[test]
fn who_still_turns_some_away_is_not_well() {
    let mut test = Test::new();
    test.load = (5, 5);
    test.until(AWAY(AwayReason::Shedding));
    // A tenth of the requests: less than the share that sends clients away, and more than a quarter
    // of it.
    test.load = (9, 1);
    assert_eq!(test.after(60_000), AWAY(AwayReason::Shedding));
    test.load = (0, 0);
    assert!(test.until(Steering::Send) <= 16_000, "none come, so nothing is turned away");
}

proptest! {
    /// For any facts: a measurement sends clients away for at least `well_for`, unless no other
    /// region takes them; and the last region never leaves because it is full.
    #[test]
    fn it_never_flaps_faster_than_it_may(
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0..20_u64, 0..20_u64), 1..400)
    ) {
        let mut test = Test::new();
        test.step();
        let mut left_at: Option<Instant> = None;
        for (has_usable, has_other, served, shed) in steps {
            test.facts.has_usable = has_usable;
            test.facts.has_other = has_other;
            test.facts.has_better = has_other;
            test.load = (served, shed);
            let was = test.machine.steering();
            let is = test.after(500);
            let left = |reason| is == AWAY(reason) && was != is;
            prop_assert!(!left(AwayReason::Shedding) || has_other);
            if was.takes_clients() && !is.takes_clients() {
                left_at = Some(test.now);
            } else if is.takes_clients() && let Some(at) = left_at.take() && has_other {
                prop_assert!(test.now >= at + ms(9_500), "back after {:?}", test.now - at);
            }
        }
    }
}
