//! The queue against a model that is too simple to be wrong, and what it promises.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use spillway_types::Deadline;

use super::*;
use crate::test_world::NOW;

const LIMITS: WaitLimits = WaitLimits { count_max: 12, bytes_max: 40, wait_ms_max: 500 };

fn at(ms: u64) -> Instant {
    *NOW + Duration::from_millis(ms)
}

fn entry(item: u64, priority: u8, deadline_ms: u64) -> WaitEntry<u64> {
    WaitEntry {
        item,
        priority,
        deadline: Deadline::after(*NOW, Duration::from_millis(deadline_ms)),
        bytes: 1,
    }
}

fn unlimited() -> WaitQueue<u64> {
    WaitQueue::new(WaitLimits { count_max: 10_000, bytes_max: 10_000, wait_ms_max: 60_000 })
}

/// The items in the order in which they are taken out.
fn popped(queue: &mut WaitQueue<u64>, now_ms: u64) -> Vec<u64> {
    std::iter::from_fn(|| queue.pop_next(at(now_ms))).map(|(_, entry)| entry.item).collect()
}

/// Everything in a list that is searched from end to end.
#[derive(Debug, Default)]
struct Model {
    /// Item, class, when it must have left, and bytes; in order of arrival.
    waiting: Vec<(u64, usize, Instant, usize)>,
    passed_over: [u32; CLASSES],
}

impl Model {
    fn push(&mut self, entry: &WaitEntry<u64>, now: Instant) -> Result<(), WaitLimit> {
        let bytes: usize = self.waiting.iter().map(|one| one.3).sum();
        if self.waiting.len() == LIMITS.count_max {
            return Err(WaitLimit::Count);
        }
        if bytes + entry.bytes > LIMITS.bytes_max {
            return Err(WaitLimit::Bytes);
        }
        let leave_by = entry.deadline.at().min(now + Duration::from_millis(LIMITS.wait_ms_max));
        let class = usize::from(entry.priority).min(CLASSES - 1);
        self.waiting.push((entry.item, class, leave_by, entry.bytes));
        Ok(())
    }

    fn remove(&mut self, item: u64) -> Option<u64> {
        let index = self.waiting.iter().position(|one| one.0 == item)?;
        let class = self.waiting.remove(index).1;
        if self.waiting.iter().all(|one| one.1 != class) {
            self.passed_over[class] = 0;
        }
        Some(item)
    }

    fn pop_next(&mut self, now: Instant) -> Option<u64> {
        let live: Vec<_> = self.waiting.iter().filter(|one| one.2 > now).copied().collect();
        let waits = |class: usize| live.iter().any(|one| one.1 == class);
        let is_due = |class: usize| self.passed_over[class] + CLASSES as u32 >= order::TURNS_MAX;
        let due = (0..CLASSES).rev().find(|&class| waits(class) && is_due(class));
        let class = due.or_else(|| (0..CLASSES).find(|&class| waits(class)))?;
        // The first of the smallest: arrival decides among equals.
        let next = live.iter().filter(|one| one.1 == class).min_by_key(|one| one.2)?.0;
        self.passed_over[class] = 0;
        self.remove(next);
        let others = live.iter().filter(|one| one.0 != next && one.1 != class);
        let mut classes: Vec<usize> = others.map(|one| one.1).collect();
        classes.sort_unstable();
        classes.dedup();
        classes.into_iter().for_each(|class| self.passed_over[class] += 1);
        Some(next)
    }

    fn expire(&mut self, now: Instant) -> Option<u64> {
        let due = self.waiting.iter().filter(|one| one.2 <= now).min_by_key(|one| one.2)?.0;
        self.remove(due)
    }

    fn position(&self, item: u64) -> Option<usize> {
        let at = self.waiting.iter().position(|one| one.0 == item)?;
        let key = |index: usize| (self.waiting[index].1, self.waiting[index].2, index);
        Some((0..self.waiting.len()).filter(|&index| key(index) < key(at)).count())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push { priority: u8, deadline_ms: u64, bytes: usize },
    Pop,
    Remove(usize),
    PopWhere { bytes: usize },
    Expire,
    Pass { ms: u64 },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..6_u8, 0..1_000_u64, 0..8_usize)
            .prop_map(|(priority, deadline_ms, bytes)| Step::Push { priority, deadline_ms, bytes }),
        3 => Just(Step::Pop),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => (0..8_usize).prop_map(|bytes| Step::PopWhere { bytes }),
        1 => Just(Step::Expire),
        1 => (0..200_u64).prop_map(|ms| Step::Pass { ms }),
    ]
}

proptest! {
    #[test]
    fn it_does_what_the_model_does(steps in prop::collection::vec(any_step(), 0..300)) {
        let mut queue = WaitQueue::new(LIMITS);
        let mut model = Model::default();
        let mut tickets: Vec<WaitTicket> = Vec::new();
        let mut now_ms = 0;
        let item = |taken: Option<(WaitTicket, WaitEntry<u64>)>| taken.map(|(_, entry)| entry.item);
        for step in steps {
            match step {
                Step::Push { priority, deadline_ms, bytes } => {
                    let entry = WaitEntry { bytes, ..entry(tickets.len() as u64, priority, now_ms + deadline_ms) };
                    let expected = model.push(&entry, at(now_ms));
                    match queue.push(entry.clone(), at(now_ms)) {
                        Ok(ticket) => {
                            prop_assert_eq!(expected, Ok(()));
                            tickets.push(ticket);
                        }
                        Err(full) => prop_assert_eq!((expected, full.entry), (Err(full.limit), entry)),
                    }
                }
                Step::Pop => prop_assert_eq!(item(queue.pop_next(at(now_ms))), model.pop_next(at(now_ms))),
                Step::Remove(which) => if let Some(index) = which.checked_rem(tickets.len()) {
                    let removed = queue.remove(tickets[index]).map(|entry| entry.item);
                    prop_assert_eq!(removed, model.remove(index as u64));
                }
                Step::PopWhere { bytes } => {
                    let longest = model.waiting.iter().find(|one| one.3 == bytes).map(|one| one.0);
                    prop_assert_eq!(item(queue.pop_where(|entry| entry.bytes == bytes)), longest);
                    longest.and_then(|item| model.remove(item));
                }
                Step::Expire => prop_assert_eq!(item(queue.expire(at(now_ms))), model.expire(at(now_ms))),
                Step::Pass { ms } => now_ms += ms,
            }
            prop_assert_eq!(queue.len(), model.waiting.len());
            prop_assert_eq!(queue.is_empty(), model.waiting.is_empty());
            prop_assert_eq!(queue.bytes(), model.waiting.iter().map(|one| one.3).sum::<usize>());
            prop_assert_eq!(queue.next_expiry(), model.waiting.iter().map(|one| one.2).min());
            for priority in 0..6 {
                let ahead = model.waiting.iter().filter(|one| one.1 <= usize::from(priority));
                prop_assert_eq!(queue.ahead_of(priority), ahead.count());
            }
            for (item, &ticket) in (0_u64..).zip(&tickets) {
                prop_assert_eq!(queue.position(ticket), model.position(item));
                prop_assert_eq!(queue.get(ticket).is_some(), model.position(item).is_some());
            }
        }
    }

    #[test]
    fn whatever_comes_in_every_class_that_waits_has_its_turn(
        arriving in prop::collection::vec(0..CLASSES as u8, 400),
        waiting in 0..CLASSES as u8,
    ) {
        let mut queue = unlimited();
        // Enough of one class that some of it waits all the time; of the others what comes in.
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
    // At the very moment of its deadline it is too late.
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
    // Each of the lower three one in 29 at most and one in 32 at least.
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
