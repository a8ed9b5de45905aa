//! Ejections of each replica in the last minutes, by which a replica flaps.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use spillway_types::ReplicaName;

/// Time over which ejections count.
const COUNTED: Duration = Duration::from_secs(600);
/// Time after the last ejection for which a replica flaps: as long as most relapses take.
const FLAPS_FOR: Duration = Duration::from_secs(180);
/// Ejections from which on a replica flaps: one can be chance, the second its relapse.
const FLAPS_MIN: usize = 3;
/// Time from the first ejection on for which it is no news: a burst of errors is over by then, and the
/// replica has passed its trial.
const BRIEF: Duration = Duration::from_secs(15);
/// Ejections that are kept of each replica.
const KEPT_MAX: usize = 32;

/// Moments of ejections by replica, as times since any fixed moment.
#[derive(Debug, Default)]
pub struct EjectionLog(BTreeMap<ReplicaName, VecDeque<Duration>>);

/// Ejections of a replica in the last ten minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentEjections {
    /// Number of ejections.
    pub number: u32,
    /// True if the replica works for a while and fails again.
    pub flaps: bool,
    /// True if the first of them was a moment ago.
    pub is_brief: bool,
}

impl EjectionLog {
    /// Notes that a replica was ejected.
    pub fn note(&mut self, replica: &ReplicaName, now: Duration) {
        self.0.retain(|_, moments| moments.back().is_some_and(|last| now - *last < COUNTED));
        let moments = self.0.entry(replica.clone()).or_default();
        if moments.len() >= KEPT_MAX {
            moments.pop_front();
        }
        moments.push_back(now);
    }

    /// Forgets the ejections of a replica: an operator has taken it out, and knows.
    pub fn forget(&mut self, replica: &ReplicaName) {
        self.0.remove(replica);
    }

    /// Returns the ejections of a replica up to `now`.
    #[must_use]
    pub fn recent(&self, replica: &ReplicaName, now: Duration) -> RecentEjections {
        let Some(moments) = self.0.get(replica) else { return RecentEjections::default() };
        let age = |moment: &Duration| now.saturating_sub(*moment);
        let number = moments.iter().filter(|moment| age(moment) < COUNTED).count();
        let is_last_near = moments.back().is_some_and(|last| age(last) < FLAPS_FOR);
        let oldest = moments.iter().map(age).filter(|age| *age < COUNTED).max();
        RecentEjections {
            number: number as u32,
            flaps: number >= FLAPS_MIN && is_last_near,
            is_brief: oldest.is_some_and(|age| age < BRIEF),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_ejection_is_brief_until_a_burst_would_be_over() {
        let (mut log, replica) = (EjectionLog::default(), ReplicaName::from("gpu-b"));
        let is_brief = |log: &EjectionLog, at| log.recent(&replica, s(at)).is_brief;
        assert!(!is_brief(&log, 0));
        log.note(&replica, s(100));
        assert!(is_brief(&log, 114));
        // A relapse in the same burst does not restart it.
        log.note(&replica, s(110));
        assert!(is_brief(&log, 114));
        assert!(!is_brief(&log, 115));
    }

    #[test]
    fn a_replica_flaps_from_its_third_ejection_until_it_was_well_for_minutes() {
        let (mut log, replica) = (EjectionLog::default(), ReplicaName::from("gpu-b"));
        let recent = |number, flaps| RecentEjections { number, flaps, is_brief: false };
        log.note(&replica, s(0));
        log.note(&replica, s(27));
        assert_eq!(log.recent(&replica, s(28)), recent(2, false));
        log.note(&replica, s(48));
        assert_eq!(log.recent(&replica, s(227)), recent(3, true));
        assert_eq!(log.recent(&replica, s(228)), recent(3, false));
        // An old relapse does not count.
        log.note(&replica, s(630));
        assert_eq!(log.recent(&replica, s(630)), recent(2, false));
        log.forget(&replica);
        assert_eq!(log.recent(&replica, s(630)), RecentEjections::default());
    }

    #[test]
    fn replicas_that_are_gone_are_forgotten_and_each_has_a_limit() {
        let mut log = EjectionLog::default();
        log.note(&ReplicaName::from("gone"), s(0));
        for second in 1_000..1_100 {
            log.note(&ReplicaName::from("gpu-b"), s(second));
        }
        assert_eq!(log.0.len(), 1);
        assert_eq!(log.0[&ReplicaName::from("gpu-b")].len(), KEPT_MAX);
    }
}
