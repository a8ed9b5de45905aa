//! Clock of the cluster.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::NodeId;
use crate::limits::{CLOCK_ALONE_STEP_MS_MAX, CLOCK_LEAD_MS_MAX, CLOCK_WITNESSES_MAX};

/// Time that the nodes of a cluster agree on, from the stamps of their entries.
///
/// A stamp is one node's wall clock, which may be wrong or lie. So the clock moves to a time only
/// once several members have stamped an entry with that time or a later one: a majority, but at
/// most three. An entry counts as made at its own stamp, if that is at most two minutes ahead of
/// the clock. If a majority stamps more than two minutes behind the clock, the clock was wrong and
/// goes back. A clock that follows the latest stamp would let one node end every deadline for good.
/// A clock that adds small steps would let one node do the same with many entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterClock {
    /// The latest time that enough members have confirmed, milliseconds since 1970.
    confirmed_ms: u64,
    /// Last stamp of each member.
    said: BTreeMap<NodeId, MemberStamp>,
}

/// Last stamp of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MemberStamp {
    stamp_ms: u64,
    /// True if the stamp was too far behind the clock of that moment.
    is_behind: bool,
}

impl ClusterClock {
    /// Returns a clock that begins at `stamp_ms`, without stamps of members.
    pub(crate) fn starting_at(stamp_ms: u64) -> Self {
        Self { confirmed_ms: stamp_ms, said: BTreeMap::new() }
    }

    /// Returns true if the clock was never started.
    pub(crate) fn is_blank(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the latest time that enough members have confirmed, milliseconds since 1970.
    pub(crate) fn confirmed_ms(&self) -> u64 {
        self.confirmed_ms
    }

    /// Returns the last stamp of `node`; None if it has not stamped an entry as a member.
    pub(crate) fn said_ms(&self, node: NodeId) -> Option<u64> {
        self.said.get(&node).map(|said| said.stamp_ms)
    }

    /// Returns the time at which an entry with this stamp counts as made.
    pub(crate) fn time_of(&self, stamp_ms: u64) -> u64 {
        let latest_ms = self.confirmed_ms.saturating_add(CLOCK_LEAD_MS_MAX);
        stamp_ms.clamp(self.confirmed_ms, latest_ms)
    }

    /// Applies the stamp of an entry of the member `node`. `members` are all members. Returns by
    /// how many milliseconds the clock went back, usually 0.
    pub(crate) fn take_in(
        &mut self,
        node: NodeId,
        stamp_ms: u64,
        members: impl Iterator<Item = NodeId>,
    ) -> u64 {
        // Stamps of nodes that are no members any more are dropped.
        let before = std::mem::take(&mut self.said);
        let mut count = 0;
        for member in members {
            count += 1;
            self.said.extend(before.get(&member).map(|said| (member, *said)));
        }
        let is_behind = stamp_ms.saturating_add(CLOCK_LEAD_MS_MAX) < self.confirmed_ms;
        self.said.insert(node, MemberStamp { stamp_ms, is_behind });
        let most = count / 2 + 1;
        self.go_forward(most.min(CLOCK_WITNESSES_MAX));
        self.go_back(most)
    }

    fn go_forward(&mut self, witnesses: usize) {
        let Some(goal_ms) = self.confirmed_by(witnesses) else { return };
        // A single node has no other witness, so its steps are bounded.
        let alone_ms = self.confirmed_ms.saturating_add(CLOCK_ALONE_STEP_MS_MAX);
        let goal_ms = if witnesses == 1 { goal_ms.min(alone_ms) } else { goal_ms };
        self.confirmed_ms = self.confirmed_ms.max(goal_ms);
    }

    /// Moves the clock back if `most` members stamp too far behind it, and returns by how many
    /// milliseconds. Forgets later stamps then, which would move the clock ahead again.
    fn go_back(&mut self, most: usize) -> u64 {
        let behind = self.said.values().filter(|said| said.is_behind).count();
        // Every one of the majority has to be behind by its own stamp: one late entry is no wrong
        // clock.
        let goal_ms = self.confirmed_by(most).filter(|_| behind >= most);
        let Some(goal_ms) = goal_ms.filter(|goal_ms| *goal_ms < self.confirmed_ms) else {
            return 0;
        };
        let back_ms = self.confirmed_ms - goal_ms;
        *self = Self { confirmed_ms: goal_ms, said: std::mem::take(&mut self.said) };
        let latest_ms = goal_ms.saturating_add(CLOCK_LEAD_MS_MAX);
        self.said.retain(|_, said| said.stamp_ms <= latest_ms);
        // The stamps that are left are not behind the new time.
        self.said.values_mut().for_each(|said| said.is_behind = false);
        back_ms
    }

    /// Returns the latest time that at least `count` members have reached by their stamps.
    fn confirmed_by(&self, count: usize) -> Option<u64> {
        let mut stamps_ms: Vec<u64> = self.said.values().map(|said| said.stamp_ms).collect();
        stamps_ms.sort_unstable_by(|a, b| b.cmp(a));
        stamps_ms.get(count.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;
    const MINUTE_MS: u64 = 60_000;
    const YEAR_MS: u64 = 365 * 24 * 60 * MINUTE_MS;

    /// Returns a clock after these entries in a cluster of `members` nodes.
    fn after(members: u64, entries: &[(u64, u64)]) -> ClusterClock {
        let mut clock = ClusterClock::starting_at(NOW_MS);
        for (node, stamp_ms) in entries {
            clock.take_in(NodeId(*node), *stamp_ms, (1..=members).map(NodeId));
        }
        clock
    }

    #[test]
    fn one_node_moves_it_neither_ahead_nor_back_however_much_it_says() {
        for stamp_ms in [0, NOW_MS - YEAR_MS, NOW_MS + YEAR_MS, u64::MAX] {
            for members in [2, 3, 5, 100] {
                let flood: Vec<_> = (0..1000).map(|n| (1, stamp_ms.saturating_add(n))).collect();
                let clock = after(members, &flood);
                assert_eq!(clock.confirmed_ms(), NOW_MS, "{stamp_ms} among {members}");
                assert!(clock.time_of(stamp_ms) <= NOW_MS + CLOCK_LEAD_MS_MAX);
            }
        }
    }

    #[test]
    fn a_liar_does_not_stop_the_others_from_moving_it() {
        let later_ms = NOW_MS + 10 * MINUTE_MS;
        assert_eq!(after(3, &[(1, u64::MAX), (2, later_ms)]).confirmed_ms(), later_ms);
        let three = [(1, 0), (2, later_ms), (3, later_ms + 5)];
        assert_eq!(after(3, &three).confirmed_ms(), later_ms);
        let five = [(1, u64::MAX), (2, u64::MAX), (3, later_ms)];
        assert_eq!(after(5, &five).confirmed_ms(), later_ms, "two of five");
    }

    #[test]
    fn an_entry_counts_as_made_at_its_stamp_if_that_is_near() {
        let clock = after(3, &[(1, NOW_MS + MINUTE_MS)]);
        assert_eq!(clock.time_of(NOW_MS + MINUTE_MS), NOW_MS + MINUTE_MS);
        assert_eq!(clock.time_of(NOW_MS - MINUTE_MS), NOW_MS);
    }

    #[test]
    fn a_clock_that_was_ahead_goes_back_once_most_nodes_say_so() {
        for ahead_ms in [NOW_MS + YEAR_MS, u64::MAX] {
            let mut clock = ClusterClock::starting_at(ahead_ms);
            let mut say = |node| clock.take_in(NodeId(node), NOW_MS, (1..=10).map(NodeId));
            (1..=5).for_each(|node| assert_eq!(say(node), 0));
            assert_eq!(say(6), ahead_ms - NOW_MS);
            assert_eq!(clock.confirmed_ms(), NOW_MS);
        }
    }

    #[test]
    fn those_who_moved_it_ahead_do_not_do_so_again_by_what_they_said_then() {
        let ahead_ms = NOW_MS + YEAR_MS;
        let wrong: Vec<_> = (1..=4).map(|node| (node, ahead_ms)).collect();
        let mut clock = after(10, &wrong);
        assert_eq!(clock.confirmed_ms(), ahead_ms, "three of ten are believed");
        for node in 5..=10 {
            clock.take_in(NodeId(node), NOW_MS + MINUTE_MS, (1..=10).map(NodeId));
        }
        clock.take_in(NodeId(5), NOW_MS + 2 * MINUTE_MS, (1..=10).map(NodeId));
        assert_eq!(clock.confirmed_ms(), NOW_MS + MINUTE_MS);
    }

    #[test]
    fn a_clock_that_went_back_does_so_again_only_if_most_nodes_say_so_again() {
        let mut clock = ClusterClock::starting_at(NOW_MS + YEAR_MS);
        let mut say = |node, stamp_ms| clock.take_in(NodeId(node), stamp_ms, (1..=3).map(NodeId));
        say(1, NOW_MS);
        assert_eq!(say(2, NOW_MS), YEAR_MS);
        assert_eq!(say(1, NOW_MS - YEAR_MS), 0, "one of three");
        assert_eq!(clock.confirmed_ms(), NOW_MS);
    }

    #[test]
    fn a_node_that_is_alone_moves_it_by_a_day_an_entry_and_back_at_once() {
        let clock = after(1, &[(1, u64::MAX)]);
        assert_eq!(clock.confirmed_ms(), NOW_MS + CLOCK_ALONE_STEP_MS_MAX);
        let clock = after(1, &[(1, u64::MAX), (1, u64::MAX), (1, NOW_MS + 5)]);
        assert_eq!(clock.confirmed_ms(), NOW_MS + 5);
        assert_eq!(after(1, &[(1, NOW_MS + MINUTE_MS)]).confirmed_ms(), NOW_MS + MINUTE_MS);
    }

    #[test]
    fn what_removed_nodes_said_counts_no_more() {
        let mut clock = after(3, &[(3, u64::MAX)]);
        clock.take_in(NodeId(1), NOW_MS + MINUTE_MS, [1, 2].map(NodeId).into_iter());
        assert_eq!(clock.confirmed_ms(), NOW_MS);
        assert_eq!(clock.said_ms(NodeId(3)), None);
    }
}
