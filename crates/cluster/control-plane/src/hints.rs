//! Counts of hints in the log: entries that only make routing better.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use spillway_cluster_state::{Actor, Command};
use spillway_raft::Urgency;

/// Window of the average rates. A region writes a hint every few seconds.
const WINDOW_MS: u64 = 60_000;
/// Most entries of the window that are remembered: 50 regions that each write every other second
/// make 1,500. With more, the rates cover the time since the oldest of these.
const RECENT_MAX: usize = 4_096;

/// Returns the urgency of a command. Operators' writes are never put off; of the nodes' own, health
/// goes before hints.
pub(crate) fn urgency(command: &Command, actor: &Actor) -> Urgency {
    match actor {
        Actor::Node if command.is_hint() => Urgency::Hint,
        Actor::Node if command.is_routine() => Urgency::Health,
        Actor::Node | Actor::Operator(_) => Urgency::Operator,
    }
}

/// Counts of hints on this node since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HintCounts {
    /// Entries carried out here, proposed by any node.
    pub entries: u64,
    /// Bytes of those entries.
    pub bytes: u64,
    /// Proposals of this node that did not fit into its write budget.
    pub put_off: u64,
    /// Entries per second in the last minute.
    pub entries_per_s: f64,
    /// Bytes of entries per second in the last minute.
    pub bytes_per_s: f64,
}

/// Counters of hints.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    entries: AtomicU64,
    bytes: AtomicU64,
    put_off: AtomicU64,
    /// Time stamp and bytes of the most recent entries. A start reads old entries from disk; their
    /// stamps keep them out of the rates.
    recent: Mutex<VecDeque<(u64, u64)>>,
}

impl Hints {
    /// Counts an entry that was carried out.
    pub(crate) fn applied(&self, stamp_ms: u64, bytes: u64) {
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back((stamp_ms, bytes));
        let oldest_ms = stamp_ms.saturating_sub(WINDOW_MS);
        while recent.len() > RECENT_MAX || recent.front().is_some_and(|(at, _)| *at < oldest_ms) {
            recent.pop_front();
        }
    }

    /// Counts an entry that was not proposed for lack of budget.
    pub(crate) fn put_off(&self) {
        self.put_off.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts, and the rates of the minute before `now_ms`, in milliseconds since 1970.
    pub(crate) fn counts(&self, now_ms: u64) -> HintCounts {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let from_ms = now_ms.saturating_sub(WINDOW_MS);
        let from_ms = match recent.front() {
            // Older entries were dropped, so the window begins at the oldest one left.
            Some((oldest_ms, _)) if recent.len() >= RECENT_MAX => from_ms.max(*oldest_ms),
            _ => from_ms,
        };
        let last = recent.iter().filter(|(at_ms, _)| *at_ms >= from_ms);
        let (entries, bytes) =
            last.fold((0, 0), |(entries, all), (_, bytes)| (entries + 1, all + bytes));
        let per_s =
            |count: u64| count as f64 * 1_000.0 / now_ms.saturating_sub(from_ms).max(1) as f64;
        HintCounts {
            entries: self.entries.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            put_off: self.put_off.load(Ordering::Relaxed),
            entries_per_s: per_s(entries),
            bytes_per_s: per_s(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;

    #[test]
    fn rates_are_those_of_the_last_minute() {
        let hints = Hints::default();
        for number in 0..240 {
            hints.applied(NOW_MS + number * 500, 100);
        }
        let counts = hints.counts(NOW_MS + 119_500);
        assert_eq!((counts.entries, counts.bytes, counts.put_off), (240, 24_000, 0));
        // 121 entries: the window includes both its ends.
        assert!((counts.entries_per_s - 121.0 / 60.0).abs() < 1e-9, "{counts:?}");
        assert!((counts.bytes_per_s - 12_100.0 / 60.0).abs() < 1e-9, "{counts:?}");
        let later = hints.counts(NOW_MS + 200_000);
        assert_eq!((later.entries, later.entries_per_s, later.bytes_per_s), (240, 0.0, 0.0));
    }

    #[test]
    fn many_entries_are_counted_by_the_time_they_took() {
        let hints = Hints::default();
        for number in 0..20_000 {
            hints.applied(NOW_MS + number, 1);
        }
        let counts = hints.counts(NOW_MS + 20_000);
        assert!((counts.entries_per_s - 1_000.0).abs() < 1.0, "{counts:?}");
        assert_eq!(hints.recent.lock().unwrap().len(), RECENT_MAX);
    }

    #[test]
    fn a_clock_that_is_set_back_does_no_harm() {
        let hints = Hints::default();
        hints.applied(NOW_MS, 1);
        hints.applied(NOW_MS - 3_600_000, 1);
        assert_eq!(hints.counts(0).entries, 2);
        hints.put_off();
        assert_eq!(hints.counts(u64::MAX).put_off, 1);
    }
}
