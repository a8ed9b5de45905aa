//! Queue against a model that is too simple to be wrong, and its promises.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use spillway_types::Deadline;

use super::test_model::Model;
use super::*;
use crate::ShedReason;
use crate::test_world::NOW;

const LIMITS: WaitLimits = WaitLimits { count_max: 12, bytes_max: 40, wait_ms_max: 500 };

fn at(ms: u64) -> Instant {
    *NOW + Duration::from_millis(ms)
}

fn entry(item: u64, priority: u8, deadline_ms: u64) -> WaitEntry<u64> {
    let deadline = Deadline::after(*NOW, Duration::from_millis(deadline_ms));
    WaitEntry { priority, bytes: 1, ..WaitEntry::new(item, deadline) }
}

fn unlimited() -> WaitQueue<u64> {
    WaitQueue::new(WaitLimits { count_max: 10_000, bytes_max: 10_000, wait_ms_max: 60_000 })
}

/// Returns the items in the order in which they are taken out.
fn popped(queue: &mut WaitQueue<u64>, now_ms: u64) -> Vec<u64> {
    std::iter::from_fn(|| queue.pop_next(at(now_ms))).map(|(_, entry)| entry.item).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Enter { deadline_ms: u64, begin_ms: Option<u64>, turn_ms: Option<u64>, asker: Asker },
    Pop,
    Remove(usize),
    PopWhere { bytes: usize },
    Expire,
    Pass { ms: u64 },
}

fn any_asker() -> impl Strategy<Value = Asker> {
    let parts = (0..6_u8, 0..4_u64, 0..3_u16, 0..4_000_u32, 0..8_usize, prop::bool::weighted(0.2));
    parts.prop_map(|(priority, tenant, weight, tokens, bytes, is_promised)| Asker {
        priority,
        tenant,
        weight,
        tokens,
        bytes,
        fingerprint: 0,
        is_promised,
    })
}

fn any_moment() -> impl Strategy<Value = Option<u64>> {
    prop::option::weighted(0.3, 0..1_000_u64)
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any_asker(), 0..1_000_u64, any_moment(), any_moment()).prop_map(
            |(asker, deadline_ms, begin_ms, turn_ms)|
                Step::Enter { deadline_ms, begin_ms, turn_ms, asker }
        ),
        3 => Just(Step::Pop),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => (0..8_usize).prop_map(|bytes| Step::PopWhere { bytes }),
        1 => Just(Step::Expire),
        1 => (0..200_u64).prop_map(|ms| Step::Pass { ms }),
    ]
}

fn entry_of(item: u64, asker: &Asker, deadline: Deadline) -> WaitEntry<u64> {
    let Asker { priority, tenant, weight, tokens, bytes, fingerprint, is_promised } = *asker;
    let new = WaitEntry::new(item, deadline);
    WaitEntry { priority, tenant, weight, tokens, bytes, fingerprint, is_promised, ..new }
}

proptest! {
    #[test]
    fn it_does_what_the_model_does(steps in prop::collection::vec(any_step(), 0..300)) {
        let mut queue = WaitQueue::new(LIMITS);
        let mut model = Model::default();
        // Tickets by item: items are numbers of accepted requests.
        let mut tickets: Vec<WaitTicket> = Vec::new();
        let mut now_ms = 0;
        let item = |taken: Option<(WaitTicket, WaitEntry<u64>)>| taken.map(|(_, entry)| entry.item);
        for step in steps {
            let now = at(now_ms);
            match step {
                Step::Enter { deadline_ms, begin_ms, turn_ms, asker } => {
                    let deadline = Deadline::after(now, Duration::from_millis(deadline_ms));
                    let begin_by = begin_ms.map(|ms| at(now_ms + ms));
                    let new = entry_of(tickets.len() as u64, &asker, deadline);
                    let turn_by = turn_ms.map(|ms| at(now_ms + ms));
                    let new = WaitEntry { begin_by, turn_by, ..new };
                    let could = queue.could_enter(&new.asker(), now);
                    let expected = model.enter(&new, &LIMITS, now);
                    match queue.enter(new.clone(), now) {
                        Ok(entered) => {
                            let items: Vec<u64> =
                                entered.pushed_out.iter().map(|(_, one)| one.item).collect();
                            prop_assert_eq!(expected, Ok(items));
                            prop_assert!(could);
                            tickets.push(entered.ticket);
                        }
                        Err(full) => {
                            prop_assert_eq!((expected, full.entry), (Err(full.limit), new));
                        }
                    }
                }
                Step::Pop => prop_assert_eq!(item(queue.pop_next(now)), model.pop_next(now)),
                Step::Remove(which) => if let Some(index) = which.checked_rem(tickets.len()) {
                    let removed = queue.remove(tickets[index]).map(|entry| entry.item);
                    prop_assert_eq!(removed, model.remove(index as u64));
                }
                Step::PopWhere { bytes } => {
                    let all = model.waiting.iter().chain(&model.lapsed);
                    let longest = all.filter(|one| one.bytes == bytes).map(|one| one.item).min();
                    let popped = queue.pop_where(|entry| entry.bytes == bytes);
                    prop_assert_eq!(item(popped), longest);
                    longest.and_then(|item| model.remove(item));
                }
                Step::Expire => prop_assert_eq!(item(queue.expire(now)), model.expire(now)),
                Step::Pass { ms } => now_ms += ms,
            }
            let all = || model.waiting.iter().chain(&model.lapsed);
            prop_assert_eq!(queue.len(), model.len());
            prop_assert_eq!(queue.is_empty(), model.len() == 0);
            prop_assert_eq!(queue.bytes(), model.bytes());
            prop_assert_eq!(queue.next_expiry(), all().map(|one| one.leave_by).min());
            for priority in 0..6 {
                prop_assert_eq!(queue.ahead_of(priority), model.ahead_of(priority));
            }
            for (item, &ticket) in (0_u64..).zip(&tickets) {
                let is_here = all().any(|one| one.item == item);
                prop_assert_eq!(queue.position(ticket).is_some(), is_here);
                prop_assert_eq!(queue.get(ticket).is_some(), is_here);
            }
        }
    }

    #[test]
    fn a_position_is_how_many_are_served_before_give_or_take_a_turn_of_each_tenant(
        askers in prop::collection::vec(any_asker(), 1..60),
    ) {
        let mut queue = unlimited();
        let mut tickets = Vec::new();
        for (item, asker) in (0..).zip(&askers) {
            let deadline = Deadline::after(*NOW, Duration::from_secs(50 + item));
            let asker = Asker { weight: 1, ..*asker };
            tickets.push(queue.push(entry_of(item, &asker, deadline), *NOW).unwrap());
        }
        let predicted: Vec<usize> =
            tickets.iter().map(|&ticket| queue.position(ticket).unwrap()).collect();
        // A turn is a quantum, and some requests are as small as a sixteenth of it.
        for (served, item) in popped(&mut queue, 0).into_iter().enumerate() {
            let predicted = predicted[item as usize];
            prop_assert!(predicted.abs_diff(served) <= 4 * 16, "{predicted} {served}");
        }
    }

    #[test]
    fn whatever_comes_in_every_class_that_waits_has_its_turn(
        arriving in prop::collection::vec(0..CLASSES as u8, 400),
        waiting in 0..CLASSES as u8,
    ) {
        let mut queue = unlimited();
        // Enough requests of one class to keep it waiting all the time, and other classes as they
        // come.
        for item in 0..500 {
            queue.push(entry(item, waiting, 50_000), *NOW).unwrap();
        }
        let mut passed = 0;
        for priority in arriving {
            queue.push(entry(1_000, priority, 1_000), *NOW).unwrap();
            let (_, taken) = queue.pop_next(*NOW).unwrap();
            passed = if taken.priority == waiting { 0 } else { passed + 1 };
            prop_assert!(passed < WaitQueue::<u64>::TURNS_MAX);
        }
    }
}

#[test]
fn classes_come_before_deadlines_and_deadlines_before_arrival() {
    let mut queue = unlimited();
    for (item, priority, deadline_ms) in
        [(0, 1, 100), (1, 0, 900), (2, 3, 50), (3, 0, 800), (4, 0, 900), (5, 200, 40), (6, 1, 100)]
    {
        queue.push(entry(item, priority, deadline_ms), *NOW).unwrap();
    }
    assert_eq!(popped(&mut queue, 0), [3, 1, 4, 0, 6, 5, 2]);
}

#[test]
fn requests_that_may_wait_longer_than_the_queue_lets_them_leave_as_they_came() {
    let mut queue = WaitQueue::new(LIMITS);
    for item in 0..5 {
        queue.push(entry(item, 0, 10_000 - item), at(item)).unwrap();
    }
    assert_eq!(queue.next_expiry(), Some(at(500)));
    assert_eq!(popped(&mut queue, 10), [0, 1, 2, 3, 4]);
}

#[test]
fn what_must_have_left_is_expired_and_never_served() {
    let mut queue = WaitQueue::new(LIMITS);
    queue.push(entry(0, 0, 100), *NOW).unwrap();
    queue.push(entry(1, 3, 9_000), *NOW).unwrap();
    queue.push(entry(2, 0, 9_000), at(50)).unwrap();
    assert_eq!(queue.expire(at(99)), None);
    // At the very moment of its deadline a request is too late.
    assert_eq!(queue.pop_next(at(100)).unwrap().1.item, 2);
    assert_eq!(queue.expire(at(100)).unwrap().1.item, 0);
    assert_eq!(queue.expire(at(499)), None);
    assert_eq!(queue.pop_next(at(500)), None);
    assert_eq!(queue.expire(at(500)).unwrap().1.item, 1);
    assert!(queue.is_empty());
}

#[test]
fn the_lowest_class_gets_its_turns_and_no_more_while_others_keep_coming() {
    let mut queue = unlimited();
    for item in 0..1_000 {
        queue.push(entry(item, (item % 4) as u8, 50_000), *NOW).unwrap();
    }
    let mut served = [0; CLASSES];
    for item in 0..2_000 {
        served[usize::from(queue.pop_next(*NOW).unwrap().1.priority)] += 1;
        queue.push(entry(10_000 + item, 0, 50_000), *NOW).unwrap();
    }
    // Each of the lower three gets one in 29 at most and one in 32 at least.
    for class in 1..CLASSES {
        assert!((62..=69).contains(&served[class]), "{served:?}");
    }
}

#[test]
fn of_several_classes_whose_turn_is_due_the_lowest_goes_first() {
    let mut queue = unlimited();
    for item in 0..400 {
        queue.push(entry(item, (item % 4) as u8, 50_000), *NOW).unwrap();
    }
    let classes: Vec<u8> = (0..32).map(|_| queue.pop_next(*NOW).unwrap().1.priority).collect();
    assert_eq!(classes[..28], [0; 28]);
    assert_eq!(classes[28..], [3, 2, 1, 0]);
}

#[test]
fn a_full_queue_gives_the_request_back_and_takes_it_once_another_has_left() {
    let mut queue = WaitQueue::new(WaitLimits { count_max: 2, bytes_max: 10, wait_ms_max: 500 });
    let first = queue.push(WaitEntry { bytes: 6, ..entry(0, 0, 100) }, *NOW).unwrap();
    let large = WaitEntry { bytes: 5, ..entry(1, 0, 100) };
    assert_eq!(queue.room(4), Ok(()));
    let full = queue.push(large.clone(), *NOW).unwrap_err();
    assert_eq!((full.limit, &full.entry), (WaitLimit::Bytes, &large));
    assert_eq!(full.to_string(), "the queue is full: waiting requests hold too many bytes");
    queue.push(entry(2, 0, 100), *NOW).unwrap();
    assert_eq!(queue.push(entry(3, 0, 100), *NOW).unwrap_err().limit, WaitLimit::Count);
    assert_eq!(queue.remove(first).unwrap().item, 0);
    assert_eq!(queue.remove(first), None);
    queue.push(large, *NOW).unwrap();
}

#[test]
fn sizes_and_waits_without_end_do_no_harm() {
    let limits = WaitLimits { count_max: usize::MAX, bytes_max: usize::MAX, wait_ms_max: u64::MAX };
    let mut queue = WaitQueue::new(limits);
    queue.push(WaitEntry { bytes: usize::MAX, ..entry(0, u8::MAX, 100) }, *NOW).unwrap();
    assert_eq!(queue.push(entry(1, 0, 100), *NOW).unwrap_err().limit, WaitLimit::Bytes);
    assert_eq!(queue.ahead_of(u8::MAX), 1);
    assert_eq!(queue.next_expiry(), Some(at(100)));
}

/// Returns a request of a tenant, in the first class.
fn of(tenant: u64, item: u64, tokens: u32) -> WaitEntry<u64> {
    WaitEntry { tenant, tokens, ..entry(item, 0, 50_000 + item) }
}

#[test]
fn tenants_get_equal_shares_of_tokens_whatever_their_requests_cost() {
    let mut queue = unlimited();
    for item in 0..1_000 {
        queue.push(of(1, item, 4_000), *NOW).unwrap();
        queue.push(of(2, item, 500), *NOW).unwrap();
    }
    let mut tokens = [0_u64; 3];
    for _ in 0..900 {
        let (_, next) = queue.pop_next(*NOW).unwrap();
        tokens[next.tenant as usize] += u64::from(next.tokens);
        // The two are never further apart than the cost of one request and a quantum.
        assert!(tokens[1].abs_diff(tokens[2]) <= 4_000 + 1_024, "{tokens:?}");
    }
}

#[test]
fn a_tenant_of_twice_the_weight_gets_twice_the_tokens() {
    let mut queue = unlimited();
    for item in 0..900 {
        queue.push(WaitEntry { weight: 2, ..of(1, item, 700) }, *NOW).unwrap();
        queue.push(of(2, item, 700), *NOW).unwrap();
    }
    let first = |(_, next): (WaitTicket, WaitEntry<u64>)| u32::from(next.tenant == 1);
    let count: u32 = (0..900).map(|_| first(queue.pop_next(*NOW).unwrap())).sum();
    assert!((596..=604).contains(&count), "{count}");
}

#[test]
fn a_tenant_that_comes_anew_is_served_at_once_and_can_not_save_up_a_share() {
    let mut queue = unlimited();
    for item in 0..100 {
        queue.push(of(1, item, 1_024), *NOW).unwrap();
    }
    for turn in 0..50 {
        queue.push(of(2, 1_000 + turn, 1_024), *NOW).unwrap();
        let tenants = [0, 1].map(|_| queue.pop_next(*NOW).unwrap().1.tenant);
        assert!(tenants.contains(&2), "turn {turn}: {tenants:?}");
    }
    // The tenant comes with many requests after few: tenants take turns from the first one on.
    for item in 0..20 {
        queue.push(of(2, 2_000 + item, 1_024), *NOW).unwrap();
    }
    let next: Vec<u64> = (0..20).map(|_| queue.pop_next(*NOW).unwrap().1.tenant).collect();
    assert_eq!(next.iter().filter(|&&tenant| tenant == 2).count(), 10, "{next:?}");
}

#[test]
fn what_was_saved_up_for_a_large_request_that_leaves_buys_no_burst() {
    let mut queue = unlimited();
    let large = queue.push(of(1, 0, 100_000), *NOW).unwrap();
    for item in 1..200 {
        queue.push(of(2, item, 1_000), *NOW).unwrap();
    }
    (0..90).for_each(|_| assert_eq!(queue.pop_next(*NOW).unwrap().1.tenant, 2));
    for item in 200..260 {
        queue.push(of(1, item, 1_000), *NOW).unwrap();
    }
    queue.remove(large);
    let own = (0..40).filter(|_| queue.pop_next(*NOW).unwrap().1.tenant == 1).count();
    assert!((20..=22).contains(&own), "{own}");
}

#[test]
fn of_a_tenant_those_come_first_whose_turn_was_told_to_be_sooner() {
    let mut queue = unlimited();
    queue.push(entry(0, 1, 100), *NOW).unwrap();
    queue.push(WaitEntry { is_promised: true, ..entry(1, 1, 900) }, *NOW).unwrap();
    queue.push(entry(2, 0, 900), *NOW).unwrap();
    queue.push(WaitEntry { turn_by: Some(at(60)), ..entry(3, 1, 900) }, *NOW).unwrap();
    queue.push(WaitEntry { is_promised: true, ..entry(4, 1, 900) }, at(50)).unwrap();
    queue.push(WaitEntry { is_promised: true, ..entry(5, 1, 900) }, at(70)).unwrap();
    assert_eq!(popped(&mut queue, 0), [2, 1, 4, 3, 5, 0]);
}

#[test]
fn a_full_queue_lets_go_of_the_least_urgent_that_was_promised_nothing() {
    let mut queue = WaitQueue::new(WaitLimits { count_max: 4, ..LIMITS });
    for (item, priority, deadline_ms) in [(0, 2, 300), (1, 3, 100), (3, 1, 400)] {
        queue.push(entry(item, priority, deadline_ms), *NOW).unwrap();
    }
    queue.push(WaitEntry { is_promised: true, ..entry(2, 3, 200) }, *NOW).unwrap();
    let mut pushed_out = |priority: u8, item: u64| {
        let entered = queue.enter(entry(item, priority, 450), *NOW);
        entered
            .map(|entered| entered.pushed_out.iter().map(|(_, one)| one.item).collect::<Vec<_>>())
    };
    assert_eq!(pushed_out(1, 10), Ok(vec![1]));
    assert_eq!(pushed_out(1, 11), Ok(vec![0]));
    // No request of the same class and tenant leaves.
    assert_eq!(pushed_out(1, 12).unwrap_err().limit, WaitLimit::Count);
    assert_eq!(pushed_out(0, 13), Ok(vec![11]));
    assert_eq!(pushed_out(0, 14), Ok(vec![10]));
    assert_eq!(pushed_out(0, 15), Ok(vec![3]));
    assert_eq!(pushed_out(0, 16).unwrap_err().limit, WaitLimit::Count);
}

#[test]
fn promised_requests_are_taken_beyond_the_limit_and_in_place_of_newcomers() {
    let limits = WaitLimits { count_max: 4, bytes_max: 1_000, wait_ms_max: 500 };
    let beyond = limits.promised_beyond() as u64;
    let mut queue = WaitQueue::new(WaitLimits { bytes_max: 10_000, ..limits });
    (0..4).for_each(|item| assert!(queue.push(entry(item, 0, 100 + item), *NOW).is_ok()));
    let mut promised = |item: u64| {
        let entry = WaitEntry { is_promised: true, ..entry(item, 0, 500) };
        let entered = queue.enter(entry, *NOW);
        let items =
            |entered: Entered<u64>| entered.pushed_out.iter().map(|(_, one)| one.item).collect();
        entered.map(items)
    };
    (10..10 + beyond).for_each(|item| assert_eq!(promised(item), Ok(vec![])));
    let places = [242, 243, 244, 245].map(|item| promised(item).unwrap());
    assert_eq!(places, [[3], [2], [1], [0]]);
    assert_eq!(promised(246).unwrap_err().limit, WaitLimit::Count);
    // Promises keep no other tenant out.
    assert_eq!(queue.enter(of(2, 247, 10), *NOW).unwrap().pushed_out, []);
}

#[test]
fn a_tenant_that_fills_the_queue_makes_room_for_another_one_until_both_have_as_much() {
    let mut queue = WaitQueue::new(WaitLimits { count_max: 10, bytes_max: 100, wait_ms_max: 500 });
    (0..10).for_each(|item| assert!(queue.push(of(1, item, 10), *NOW).is_ok()));
    for item in 10..14 {
        let entered = queue.enter(of(2, item, 5_000), *NOW).unwrap();
        assert_eq!(entered.pushed_out.len(), 1);
        assert_eq!(entered.pushed_out[0].1.tenant, 1);
    }
    // 6 and 4 become 5 and 5; one more would only reverse the difference.
    assert_eq!(queue.enter(of(2, 14, 5_000), *NOW).unwrap().pushed_out.len(), 1);
    assert!(queue.enter(of(2, 15, 5_000), *NOW).is_err());
    assert!(queue.enter(of(1, 16, 5_000), *NOW).is_err());
}

#[test]
fn who_would_have_to_leave_in_vain_stays_where_it_is() {
    let mut queue = WaitQueue::new(WaitLimits { count_max: 100, bytes_max: 20, wait_ms_max: 500 });
    for item in 0..10 {
        queue.push(WaitEntry { bytes: 2, ..entry(item, 3, 300 - item) }, *NOW).unwrap();
    }
    let large = |bytes: usize| WaitEntry { bytes, ..entry(20, 0, 100) };
    // More than eight requests would have to leave.
    assert_eq!(queue.enter(large(17), *NOW).unwrap_err().limit, WaitLimit::Bytes);
    assert_eq!((queue.len(), queue.bytes()), (10, 20));
    assert_eq!(queue.enter(large(16), *NOW).unwrap().pushed_out.len(), 8);
    assert_eq!(popped(&mut queue, 0), [20, 9, 8]);
}

#[test]
fn what_can_no_longer_be_sent_in_time_leaves_and_says_why() {
    let mut queue = WaitQueue::new(LIMITS);
    queue.push(WaitEntry { begin_by: Some(at(80)), ..entry(0, 0, 100) }, *NOW).unwrap();
    queue.push(WaitEntry { begin_by: Some(at(120)), ..entry(1, 0, 110) }, *NOW).unwrap();
    queue.push(entry(2, 0, 9_000), *NOW).unwrap();
    let mut reason = |ms: u64| queue.expire(at(ms)).map(|(_, entry)| entry.lapse(at(ms)));
    assert_eq!(reason(79), None);
    assert_eq!(reason(80), Some(ShedReason::Slo));
    assert_eq!(reason(110), Some(ShedReason::Late));
    assert_eq!(reason(499), None);
    assert_eq!(reason(500), Some(ShedReason::Waited));
}
