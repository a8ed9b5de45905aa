//! Portions and versions.

use spillway_types::ModelLoad;

use super::*;
use crate::entry::ModelEntry;

fn id(n: u32) -> NameId {
    NameId::of_model(&format!("m{n}").as_str().into())
}

fn entry(n: u32, queued: f32) -> ModelEntry {
    ModelEntry::new(id(n), &ModelLoad { queued, ..ModelLoad::default() })
}

/// The models of a portion and what they have queued, in its order.
fn queued(portion: &Portion<ModelEntry>) -> Vec<(u32, f32)> {
    let number = |entry: &ModelEntry| (0..100).find(|n| id(*n) == entry.id()).unwrap();
    portion.entries.iter().map(|entry| (number(entry), entry.load().queued)).collect()
}

/// Returns a ledger that published the given values and has nothing to repeat.
fn told(values: &[(u32, f32)]) -> Ledger<ModelEntry> {
    let mut ledger = Ledger::new();
    set(&mut ledger, values);
    ledger.publish(0.0, 9_999);
    ledger.publish(0.0, 9_999);
    ledger
}

fn set(ledger: &mut Ledger<ModelEntry>, values: &[(u32, f32)]) -> u64 {
    ledger.set(values.iter().map(|(n, queued)| entry(*n, *queued)))
}

#[test]
fn only_changes_are_told_and_each_twice() {
    let mut ledger = told(&[(1, 1.0), (2, 2.0), (3, 3.0)]);
    assert_eq!(ledger.version(), 1);
    assert_eq!(queued(&ledger.publish(0.0, 999)), []);
    assert_eq!(ledger.version(), 1, "nothing new, no new version");
    set(&mut ledger, &[(1, 1.0), (2, 9.0), (3, 3.0)]);
    assert!(ledger.change() > 0.0);
    assert_eq!(queued(&ledger.publish(0.0, 999)), [(2, 9.0)]);
    assert_eq!(ledger.change(), 0.0);
    assert_eq!(ledger.version(), 2);
    set(&mut ledger, &[(1, 5.0), (2, 9.0), (3, 3.0)]);
    assert_eq!(queued(&ledger.publish(0.0, 999)), [(1, 5.0), (2, 9.0)]);
    assert_eq!(queued(&ledger.publish(0.0, 999)), [(1, 5.0)]);
    assert_eq!(queued(&ledger.publish(0.0, 999)), []);
}

#[test]
fn the_most_changed_comes_first_but_not_before_what_had_to_wait() {
    let mut ledger = told(&[(1, 10.0), (2, 10.0), (3, 10.0), (4, 10.0)]);
    let room = 2 * payload_bytes(&entry(1, 10.0)).unwrap();
    set(&mut ledger, &[(1, 11.0), (2, 12.0), (3, 13.0), (4, 14.0)]);
    assert_eq!(queued(&ledger.publish(0.0, room)), [(4, 14.0), (3, 13.0)]);
    set(&mut ledger, &[(1, 11.0), (2, 12.0), (3, 83.0), (4, 99.0)]);
    assert_eq!(queued(&ledger.publish(0.0, room)), [(2, 12.0), (1, 11.0)]);
    assert_eq!(queued(&ledger.publish(0.0, room)), [(4, 99.0), (3, 83.0)]);
}

#[test]
fn one_entry_is_told_however_little_room_there_is() {
    let mut ledger = told(&[(1, 1.0), (2, 2.0)]);
    set(&mut ledger, &[(1, 5.0), (2, 9.0)]);
    assert_eq!(queued(&ledger.publish(0.0, 1)), [(2, 9.0)]);
    assert_eq!(queued(&ledger.publish(0.0, 1)), [(1, 5.0)]);
}

#[test]
fn changes_that_are_too_small_wait_until_they_add_up() {
    let mut ledger = told(&[(1, 100.0)]);
    set(&mut ledger, &[(1, 101.0)]);
    assert_eq!(queued(&ledger.publish(0.02, 999)), []);
    set(&mut ledger, &[(1, 103.0)]);
    assert_eq!(queued(&ledger.publish(0.02, 999)), [(1, 103.0)]);
}

#[test]
fn what_is_gone_is_told_by_telling_all() {
    let mut ledger = told(&[(1, 1.0), (2, 2.0)]);
    set(&mut ledger, &[(2, 2.0)]);
    assert_eq!(ledger.change(), 1.0);
    let portion = ledger.publish(0.0, 1);
    assert!(portion.whole);
    assert_eq!(queued(&portion), [(2, 2.0)]);
    // A receiver with a version from before starts from scratch too.
    assert!(ledger.since(1).whole);
    assert!(!ledger.since(ledger.version()).whole);
}

#[test]
fn an_answer_holds_what_came_since() {
    let mut ledger = told(&[(1, 1.0), (2, 2.0)]);
    set(&mut ledger, &[(1, 1.0), (2, 7.0)]);
    ledger.publish(0.0, 999);
    assert_eq!(queued(&ledger.since(1)), [(2, 7.0)]);
    assert!(!ledger.since(1).whole);
    assert_eq!(queued(&ledger.since(2)), []);
    for stranger in [0, 3, u64::MAX] {
        let portion = ledger.since(stranger);
        assert!(portion.whole);
        assert_eq!(portion.entries.len(), 2);
    }
}

#[test]
fn what_was_not_told_yet_is_in_no_answer() {
    let mut ledger = told(&[(1, 1.0)]);
    let digest = ledger.digest();
    set(&mut ledger, &[(1, 50.0)]);
    assert_eq!(queued(&ledger.since(0)), [(1, 1.0)]);
    assert_eq!(ledger.digest(), digest);
    assert_eq!(ledger.sent(id(1)), Some(&entry(1, 1.0)));
}

#[test]
fn of_two_entries_with_one_id_the_first_counts() {
    let mut ledger = Ledger::new();
    assert_eq!(set(&mut ledger, &[(1, 1.0), (2, 2.0), (1, 3.0)]), 1);
    assert_eq!(ledger.publish(0.0, 999).entries.len(), 2);
    assert_eq!(ledger.sent(id(1)), Some(&entry(1, 1.0)));
}

#[test]
fn equal_states_have_equal_digests_whatever_led_there() {
    let mut long = told(&[(1, 1.0), (2, 2.0), (3, 9.0)]);
    set(&mut long, &[(1, 4.0), (2, 2.0)]);
    long.publish(0.0, 999);
    set(&mut long, &[(1, 4.0), (2, 8.0)]);
    long.publish(0.0, 999);
    assert_eq!(long.digest(), told(&[(2, 8.0), (1, 4.0)]).digest());
    assert_ne!(long.digest(), told(&[(1, 8.0), (2, 4.0)]).digest());
}

#[test]
fn parts_fit_and_lose_nothing() {
    let entries: Vec<ModelEntry> = (0..50).map(|n| entry(n, n as f32 * 30.0)).collect();
    let parts = parts(entries.clone(), 100);
    assert!(parts.len() > 5);
    for part in &parts {
        let bytes: usize = part.iter().map(|entry| payload_bytes(entry).unwrap()).sum();
        assert!(bytes <= 100 && !part.is_empty());
    }
    assert_eq!(parts.concat(), entries);
    assert_eq!(super::parts::<ModelEntry>(Vec::new(), 100), [[]]);
}
