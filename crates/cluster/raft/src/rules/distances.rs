//! Round trips between the voters, and what follows from them: where commits are cheapest, and how
//! long the timers have to be. Pure: time is an argument, counted from any fixed moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spillway_types::NodeId;

use super::timing::Timing;
use crate::wire::RoundTrip;

/// The lead moves only if a commit gets faster by this much …
const BETTER_BY: Duration = Duration::from_millis(10);
/// … and by this share of its time.
const BETTER_SHARE: f64 = 0.2;
/// Timers get shorter only by more than this part.
const SHORTER_SHARE: f64 = 0.2;
/// Of how many nodes the round trips are kept: more than there may be voters.
const ROWS_MAX: usize = 64;

/// The round trips that nodes have reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distances(BTreeMap<NodeId, BTreeMap<NodeId, Duration>>);

impl Distances {
    /// Handles the round trips to other nodes that a node reports.
    pub(crate) fn receive(&mut self, from: NodeId, row: &[RoundTrip]) {
        if self.0.len() < ROWS_MAX || self.0.contains_key(&from) {
            let row = row.iter().map(|trip| (trip.to, Duration::from_millis(trip.ms.into())));
            self.0.insert(from, row.collect());
        }
    }

    /// Returns the round trip between two nodes: the longer one if their reports differ.
    fn between(&self, a: NodeId, b: NodeId) -> Option<Duration> {
        let seen = |from: NodeId, to: NodeId| self.0.get(&from)?.get(&to).copied();
        seen(a, b).max(seen(b, a))
    }

    /// The longest between any two of these nodes; `None` unless all are known.
    pub(crate) fn longest(&self, voters: &BTreeSet<NodeId>) -> Option<Duration> {
        let mut longest = Duration::ZERO;
        for a in voters {
            for b in voters.range(..a) {
                longest = longest.max(self.between(*a, *b)?);
            }
        }
        (voters.len() > 1).then_some(longest)
    }

    /// Returns the time of a commit if `leader` leads: until a majority, with the leader, has
    /// answered. `None` unless enough is known.
    pub(crate) fn commit(&self, leader: NodeId, voters: &BTreeSet<NodeId>) -> Option<Duration> {
        let others = voters.iter().filter(|id| **id != leader);
        let mut all: Vec<Duration> =
            others.filter_map(|other| self.between(leader, *other)).collect();
        all.sort_unstable();
        // The leader itself is part of the majority; a single voter waits for no other.
        all.get((voters.len() / 2).checked_sub(1)?).copied()
    }

    /// The voter with the quickest commits, if they are so much quicker than `leader`'s that it is
    /// worth handing over.
    pub(crate) fn better(&self, leader: NodeId, voters: &BTreeSet<NodeId>) -> Option<NodeId> {
        let own = self.commit(leader, voters)?;
        let all = voters.iter().filter_map(|id| Some((self.commit(*id, voters)?, *id)));
        let (best, id) = all.min()?;
        let gain = own.saturating_sub(best);
        (gain >= BETTER_BY && gain >= own.mul_f64(BETTER_SHARE)).then_some(id)
    }
}

/// Rule for moving the lead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    patience: Duration,
    /// Voter in a better place, and the time since which it is better.
    better: Option<(NodeId, Duration)>,
}

impl Placement {
    /// Creates the placement of a leader. All that is known has to give the same result for
    /// `patience` before leadership moves: a path that is slow for a moment is no reason.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, better: None }
    }

    /// Returns the voter to which the leader should hand over now, if `best` would be better. Has
    /// to be asked often, and only on a leader.
    pub(crate) fn judge(&mut self, now: Duration, best: Option<NodeId>) -> Option<NodeId> {
        let since = self.better.filter(|(id, _)| Some(*id) == best).map_or(now, |(_, at)| at);
        self.better = best.map(|id| (id, since));
        let is_due = best.is_some() && now.saturating_sub(since) >= self.patience;
        best.filter(|_| is_due)
    }

    /// Forgets what was seen, when this node does not lead.
    pub(crate) fn forget(&mut self) {
        self.better = None;
    }
}

/// Rule for changing the timers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retiming {
    patience: Duration,
    since: Option<Duration>,
}

impl Retiming {
    /// A rule by which timers change once the round trips have asked for it for so long.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, since: None }
    }

    /// The round trip that the timers should be made for from now on, if that is another one. Has to
    /// be asked often, and only on a leader.
    pub(crate) fn judge(
        &mut self,
        now: Duration,
        longest: Option<Duration>,
        current: &Timing,
    ) -> Option<Duration> {
        let wanted = longest.filter(|rtt| differs(&Timing::for_rtt(*rtt), current));
        let since = wanted.map(|_| self.since.unwrap_or(now));
        self.since = since;
        wanted.filter(|_| since.is_some_and(|since| now.saturating_sub(since) >= self.patience))
    }

    /// Forgets what was seen, when this node does not lead.
    pub(crate) fn forget(&mut self) {
        self.since = None;
    }
}

/// Timers that are too short harm more than those that are too long.
fn differs(wanted: &Timing, current: &Timing) -> bool {
    wanted.heartbeat > current.heartbeat
        || wanted.heartbeat < current.heartbeat.mul_f64(1.0 - SHORTER_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn ids(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<NodeId> {
        numbers.into_iter().map(NodeId).collect()
    }

    fn distances(all: &[(u64, u64, u32)]) -> Distances {
        let mut distances = Distances::default();
        for from in 1..=9 {
            let row: Vec<RoundTrip> = all
                .iter()
                .filter(|(a, _, _)| *a == from)
                .map(|(_, b, ms)| RoundTrip { to: NodeId(*b), ms: *ms })
                .collect();
            distances.receive(NodeId(from), &row);
        }
        distances
    }

    /// us, eu and ap.
    fn three() -> Distances {
        distances(&[(1, 2, 80), (1, 3, 170), (2, 3, 220)])
    }

    #[test]
    fn a_commit_takes_until_a_majority_has_answered() {
        let voters = ids(1..=3);
        for (leader, expected) in [(1, 80), (2, 80), (3, 170)] {
            assert_eq!(three().commit(NodeId(leader), &voters), Some(ms(expected)), "{leader}");
        }
        let five = distances(&[(1, 2, 10), (1, 3, 30), (1, 4, 20), (1, 5, 40)]);
        assert_eq!(five.commit(NodeId(1), &ids(1..=5)), Some(ms(20)));
        assert_eq!(five.commit(NodeId(1), &ids(1..=4)), Some(ms(20)));
        assert_eq!(five.commit(NodeId(2), &ids(1..=5)), None);
        assert_eq!(five.commit(NodeId(1), &ids([1])), None);
    }

    #[test]
    fn the_longest_round_trip_is_known_once_all_are() {
        assert_eq!(three().longest(&ids(1..=3)), Some(ms(220)));
        assert_eq!(three().longest(&ids([1, 2])), Some(ms(80)));
        assert_eq!(three().longest(&ids(1..=4)), None);
        assert_eq!(three().longest(&ids([1])), None);
        // Of two who differ the longer counts.
        let differing = distances(&[(1, 2, 80), (2, 1, 95)]);
        assert_eq!(differing.longest(&ids([1, 2])), Some(ms(95)));
    }

    #[test]
    fn the_lead_moves_to_where_commits_are_cheapest_after_a_while() {
        let (voters, mut placement) = (ids(1..=3), Placement::new(PATIENCE));
        for at in 0..30 {
            let judged = placement.judge(ms(at * 1_000), three().better(NodeId(3), &voters));
            assert_eq!(judged, None, "{at}");
        }
        let judged = placement.judge(ms(30_000), three().better(NodeId(3), &voters));
        assert_eq!(judged, Some(NodeId(1)));
        // A leader that is as good as any other voter keeps the lead.
        let mut placement = Placement::new(PATIENCE);
        for at in 0..100 {
            for leader in [1, 2] {
                let judged =
                    placement.judge(ms(at * 1_000), three().better(NodeId(leader), &voters));
                assert_eq!(judged, None);
            }
        }
    }

    #[test]
    fn a_small_gain_or_one_that_does_not_last_moves_nothing() {
        let voters = ids(1..=3);
        for (own, best, moves) in
            [(100, 79, true), (100, 81, false), (30, 21, false), (30, 20, true), (9, 1, false)]
        {
            let all = distances(&[(1, 2, best), (1, 3, own), (2, 3, own)]);
            let mut placement = Placement::new(PATIENCE);
            assert_eq!(placement.judge(ms(0), all.better(NodeId(3), &voters)), None);
            let judged = placement.judge(ms(60_000), all.better(NodeId(3), &voters));
            assert_eq!(judged.is_some(), moves, "{own} {best}");
        }
        let even = distances(&[(1, 2, 100), (1, 3, 100), (2, 3, 100)]);
        let mut placement = Placement::new(PATIENCE);
        for at in 0..20 {
            let seen = if at == 10 { &even } else { &three() };
            let judged = placement.judge(ms(at * 2_000), seen.better(NodeId(3), &voters));
            assert_eq!(judged, None, "{at}");
        }
    }

    #[test]
    fn timers_get_longer_at_need_and_shorter_only_by_much_and_both_after_a_while() {
        let current = Timing::for_rtt(ms(220));
        for (longest, changes) in
            [(220, false), (226, true), (230, true), (190, false), (170, true), (10, true)]
        {
            let mut retiming = Retiming::new(ms(10_000));
            assert_eq!(retiming.judge(ms(0), Some(ms(longest)), &current), None);
            assert_eq!(retiming.judge(ms(9_999), Some(ms(longest)), &current), None);
            let judged = retiming.judge(ms(10_000), Some(ms(longest)), &current);
            assert_eq!(judged, changes.then_some(ms(longest)), "{longest}");
        }
        let mut retiming = Retiming::new(ms(10_000));
        for at in 0..40 {
            let longest = (at % 9 != 0).then_some(ms(400));
            let judged = retiming.judge(ms(at * 1_000), longest, &current);
            assert_eq!(judged, None, "{at}");
        }
    }

    #[test]
    fn what_is_kept_has_a_limit() {
        let mut distances = Distances::default();
        for from in 0..1_000 {
            distances.receive(NodeId(from), &[RoundTrip { to: NodeId(1), ms: 5 }]);
        }
        assert_eq!(distances.0.len(), ROWS_MAX);
    }
}
