//! A ledger and its copy.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use spillway_types::ModelLoad;

use super::*;
use crate::entry::ModelEntry;
use crate::ledger::{Ledger, Portion, parts};

#[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
fn start() -> Instant {
    Instant::now()
}

fn entry(n: u32, queued: f32) -> ModelEntry {
    let id = NameId::of_model(&format!("m{n}").as_str().into());
    ModelEntry::new(id, &ModelLoad { queued, ..ModelLoad::default() })
}

fn reports(ledger: &Ledger<ModelEntry>, portion: Portion<ModelEntry>) -> Vec<Report<ModelEntry>> {
    let parts = parts(portion.entries, 60);
    let count = parts.len();
    let report = |(index, entries)| Report {
        age_ms: 0,
        version: ledger.version(),
        digest: ledger.digest(),
        whole: portion.whole && index == 0,
        more: index + 1 < count,
        entries,
    };
    parts.into_iter().enumerate().map(report).collect()
}

fn copy(mirror: &Mirror<ModelEntry>) -> Vec<ModelEntry> {
    mirror.entries().map(|(_, entry, _)| *entry).collect()
}

proptest! {
    /// Reports in any order, with losses, then an answer in any order.
    #[test]
    fn a_copy_is_whole_only_if_it_is_equal_and_one_answer_makes_it_so(
        seed in any::<u64>(),
        loss_permille in 0_u32..900,
    ) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut ledger = Ledger::new();
        let mut mirror = Mirror::new(100);
        let now = start();
        for _ in 0..20 {
            let mut sent = Vec::new();
            for _ in 0..rng.u32(1..4) {
                let present: Vec<u32> = (0..12).filter(|_| rng.u32(0..8) > 0).collect();
                ledger.set(present.into_iter().map(|n| entry(n, rng.u32(0..4) as f32 * 9.0)));
                let portion = ledger.publish(0.0, 100);
                sent.extend(reports(&ledger, portion));
            }
            rng.shuffle(&mut sent);
            for report in sent {
                if rng.u32(0..1_000) >= loss_permille {
                    mirror.take(now, report);
                }
            }
            if mirror.is_whole() && mirror.version() == ledger.version() {
                prop_assert_eq!(copy(&mirror), ledger.all_sent());
            }
            let mut answer = reports(&ledger, ledger.since(mirror.version()));
            rng.shuffle(&mut answer);
            for report in answer {
                mirror.take(now, report);
            }
            prop_assert!(mirror.is_whole());
            prop_assert_eq!(mirror.version(), ledger.version());
            prop_assert_eq!(copy(&mirror), ledger.all_sent());
        }
    }
}

#[test]
fn what_is_confirmed_is_as_young_as_the_confirmation() {
    let now = start() + Duration::from_secs(9);
    let mut ledger = Ledger::new();
    let mut mirror = Mirror::new(9);
    ledger.set([entry(1, 3.0)].into_iter());
    let portion = ledger.publish(0.0, 999);
    let told = reports(&ledger, portion).remove(0);
    assert_eq!(mirror.take(now, Report { age_ms: 40, ..told.clone() }), Taken::Whole);
    let measured = |mirror: &Mirror<ModelEntry>| mirror.entries().next().map(|(_, _, at)| at);
    assert_eq!(measured(&mirror), Some(now - Duration::from_millis(40)));
    let later = now + Duration::from_millis(100);
    let heartbeat = Report { age_ms: 10, entries: Vec::new(), ..told };
    assert_eq!(mirror.take(later, heartbeat.clone()), Taken::Whole);
    assert_eq!(measured(&mirror), Some(later - Duration::from_millis(10)));
    // One that does not fit confirms nothing.
    let much_later = later + Duration::from_millis(100);
    let other = Report { digest: [1, 2, 3, 4], ..heartbeat };
    assert_eq!(mirror.take(much_later, other), Taken::Lacking);
    assert_eq!(measured(&mirror), Some(later - Duration::from_millis(10)));
    assert!(!mirror.is_whole());
}

#[test]
fn a_copy_has_no_more_entries_than_allowed() {
    let mut ledger = Ledger::new();
    let mut mirror = Mirror::new(3);
    ledger.set((0..9).map(|n| entry(n, 1.0)));
    let portion = ledger.publish(0.0, 999);
    for report in reports(&ledger, portion) {
        mirror.take(start(), report);
    }
    assert_eq!(mirror.entries().count(), 3);
    assert!(!mirror.is_whole());
}

/// The reports of a ledger that is set to one list of values after the other.
fn story(values: &[&[(u32, f32)]]) -> Vec<Report<ModelEntry>> {
    let mut ledger = Ledger::new();
    let mut told = Vec::new();
    for values in values {
        ledger.set(values.iter().map(|(n, queued)| entry(*n, *queued)));
        let portion = ledger.publish(0.0, 999);
        told.extend(reports(&ledger, portion));
    }
    told
}

#[test]
fn an_older_value_that_comes_late_changes_nothing() {
    let told = story(&[&[(1, 1.0)], &[(1, 5.0)], &[(1, 9.0)]]);
    let mut mirror = Mirror::new(9);
    // The second report is in transit while the third contains only changes.
    mirror.take(start(), told[0].clone());
    mirror.take(start(), Report { digest: [9; 4], ..told[2].clone() });
    mirror.take(start(), told[1].clone());
    assert_eq!(copy(&mirror), [entry(1, 9.0)]);
}

#[test]
fn a_whole_copy_loses_nothing_to_a_late_part_of_a_report_that_told_all() {
    let told = story(&[&[(1, 1.0), (2, 2.0)], &[(2, 2.0)], &[(2, 2.0), (3, 3.0)]]);
    let mut mirror = Mirror::new(9);
    // Of the first report half is lost, which is gone by the third.
    mirror.take(start(), Report { entries: vec![entry(2, 2.0)], ..told[0].clone() });
    mirror.take(start(), Report { entries: vec![entry(3, 3.0)], ..told[2].clone() });
    assert!(mirror.is_whole());
    mirror.take(start(), Report { entries: Vec::new(), ..told[1].clone() });
    assert!(mirror.is_whole());
    assert_eq!(copy(&mirror).len(), 2);
}

#[test]
fn a_whole_copy_stays_whole_whatever_comes_late() {
    // In the second report an entry is gone, so it contains all entries.
    let told = story(&[&[(1, 1.0), (2, 2.0)], &[(2, 2.0)], &[(2, 2.0), (3, 3.0)]]);
    assert!(told[1].whole);
    let mut mirror = Mirror::new(9);
    mirror.take(start(), Report { whole: true, entries: vec![entry(2, 2.0)], ..told[2].clone() });
    mirror.take(start(), Report { entries: vec![entry(3, 3.0)], ..told[2].clone() });
    assert!(mirror.is_whole());
    for late in [&told[1], &told[0]] {
        assert_eq!(mirror.take(start(), late.clone()), Taken::Whole);
        assert_eq!(copy(&mirror).len(), 2);
    }
}
