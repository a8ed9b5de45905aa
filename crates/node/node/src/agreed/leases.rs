//! Keeps the region's clock going while it measures leases, so that leases end in time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use spillway_cluster_state::{Command, LEASE_MS_MIN, State};
use spillway_types::{NodeName, RegionName};

/// Longest pause between entries while leases run. An entry moves the region's clock by a third of
/// the shortest lease at most: with fewer entries the clock would fall behind.
const TICK: Duration = Duration::from_millis(LEASE_MS_MIN / 3);
/// Shortest time between two proposals: a clock that was set back does not move by them at once.
const PAUSE: Duration = Duration::from_secs(2);

/// Decides when the region's leases need an entry in the log.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Last value of the region's clock in ms, and when this node first saw it.
    clock: Option<(u64, Instant)>,
    proposed: Option<Instant>,
}

impl Leases {
    /// Returns the command that moves the region's clock and ends expired leases; `None` if it is
    /// not due.
    ///
    /// One node of the region proposes it: the first by name of the live ones. The others propose
    /// it only if that node does not.
    pub(super) fn due(
        &mut self,
        state: &State,
        (name, region): (&NodeName, &RegionName),
        live: &BTreeSet<NodeName>,
        now: Instant,
    ) -> Option<Command> {
        let clock_ms = state.region_clock_ms(region)?;
        let since = match self.clock {
            Some((known_ms, since)) if known_ms == clock_ms => since,
            _ => self.clock.insert((clock_ms, now)).1,
        };
        let leases = state.records().leases.iter().filter(|(id, _)| id.region == *region);
        let first_ms = leases.map(|(_, lease)| lease.ends_ms).min()?;
        let passed = now.saturating_duration_since(since);
        let is_over = Duration::from_millis(first_ms.saturating_sub(clock_ms)) <= passed;
        let is_first = live.iter().all(|other| name < other);
        // The others wait twice as long: usually the first node's proposal makes theirs needless.
        let is_due = if is_first { is_over || passed >= TICK } else { passed >= 2 * TICK };
        let was_just_proposed =
            self.proposed.is_some_and(|at| now.saturating_duration_since(at) < PAUSE);
        if !is_due || was_just_proposed {
            return None;
        }
        self.proposed = Some(now);
        Some(Command::ExpireLeases { region: region.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreed::test_state::{lease, registered};

    const NAMES: [&str; 2] = ["a", "b"];

    /// Returns for each of the region's two nodes whether it proposes something so many seconds
    /// after it first saw the state.
    fn due_after(state: &State, seconds: f32) -> [bool; 2] {
        NAMES.map(|name| {
            let live = NAMES.iter().filter(|other| **other != name).map(|other| (*other).into());
            let (live, start) = (live.collect(), Instant::now());
            let mut leases = Leases::default();
            let mut due = |now| leases.due(state, (&name.into(), &"one".into()), &live, now);
            assert_eq!(due(start), None, "at once");
            due(start + Duration::from_secs_f32(seconds)).is_some()
        })
    }

    #[test]
    fn without_leases_nothing_is_proposed() {
        assert_eq!(due_after(&registered("r", None), 3_600.0), [false, false]);
    }

    #[test]
    fn one_node_keeps_the_clock_going_and_others_stand_in_for_it() {
        let state = registered("r", Some(lease(60_000)));
        assert_eq!(due_after(&state, 4.9), [false, false]);
        assert_eq!(due_after(&state, 5.0), [true, false]);
        assert_eq!(due_after(&state, 10.0), [true, true]);
    }

    #[test]
    fn a_clock_that_stands_still_is_not_pushed_all_the_time() {
        let state = registered("r", Some(lease(15_000)));
        let (mut leases, start) = (Leases::default(), Instant::now());
        let live = BTreeSet::new();
        let mut due = |seconds| {
            let now = start + Duration::from_secs_f32(seconds);
            leases.due(&state, (&"a".into(), &"one".into()), &live, now).is_some()
        };
        let proposed = [0.0, 6.0, 6.5, 7.9, 8.0, 8.5].map(&mut due);
        assert_eq!(proposed, [false, true, false, false, true, false]);
    }
}
