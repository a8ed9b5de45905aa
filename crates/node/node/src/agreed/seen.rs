//! This node's opinion of a replica, compared with the last one it reported.

use spillway_cluster_state::{Belief, Health, NodeId};
use spillway_health::MemberReport;

/// This node's opinion of a replica.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplicaOpinion {
    /// Id of this node.
    pub(super) by: NodeId,
    /// Epoch of the replica's registration.
    pub(super) epoch: u64,
    pub(super) belief: Belief,
    pub(super) signals: u8,
}

/// Returns this node's belief about a replica, and the number of signals behind it. Reports of
/// other nodes are no part of it.
pub(super) fn seen(member: &MemberReport) -> (Belief, u8) {
    match member.is_against {
        false => (Belief::Up, 1),
        true => (Belief::Down, member.votes.signals_against().max(1)),
    }
}

impl ReplicaOpinion {
    /// Returns true if this opinion differs from the one that this node reported last. A node that
    /// never reported reports only a replica that is down for itself or for the cluster.
    pub(super) fn differs(&self, known: &Health) -> bool {
        if known.epoch != self.epoch {
            return true;
        }
        match known.observers.get(&self.by) {
            Some(said) => (said.belief, said.signals) != (self.belief, self.signals),
            None => self.belief == Belief::Down || known.belief == Belief::Down,
        }
    }

    /// Returns true if an unchanged opinion has to be reported again: the cluster believes
    /// otherwise and may now agree, or the opinion is against the replica and its report soon
    /// expires by the region's clock.
    pub(super) fn is_due(&self, known: &Health, now_ms: u64, repeat_ms: u64) -> bool {
        let Some(said) = known.observers.get(&self.by) else { return false };
        let is_old = now_ms.saturating_sub(said.at_ms) >= repeat_ms;
        known.belief != self.belief || (self.belief == Belief::Down && is_old)
    }
}

#[cfg(test)]
mod tests {
    use spillway_cluster_state::Observed;

    use super::*;

    const OWN: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);

    fn known(belief: Belief, said: &[(NodeId, Belief)]) -> Health {
        let said = said
            .iter()
            .map(|(id, belief)| (*id, Observed { belief: *belief, signals: 1, at_ms: 1_000 }));
        Health { epoch: 7, belief, changed_ms: None, observers: said.collect() }
    }

    fn saw(belief: Belief) -> ReplicaOpinion {
        ReplicaOpinion { by: OWN, epoch: 7, belief, signals: 1 }
    }

    #[test]
    fn what_was_said_is_not_said_again_and_what_changed_is() {
        use Belief::{Down, Up};
        let said = known(Up, &[(OWN, Up)]);
        assert!(!saw(Up).differs(&said));
        assert!(saw(Down).differs(&said));
        assert!(ReplicaOpinion { signals: 2, ..saw(Up) }.differs(&said));
        assert!(ReplicaOpinion { epoch: 8, ..saw(Up) }.differs(&said));
    }

    #[test]
    fn who_never_said_anything_speaks_up_only_against_the_replica_or_the_others() {
        use Belief::{Down, Up};
        let by_other = |belief| known(belief, &[(OTHER, Down)]);
        assert!(!saw(Up).differs(&by_other(Up)));
        assert!(saw(Down).differs(&by_other(Up)));
        assert!(saw(Up).differs(&by_other(Down)));
    }

    #[test]
    fn disbelief_and_what_soon_counts_no_more_are_repeated() {
        use Belief::{Down, Up};
        let said = |belief, own| known(belief, &[(OWN, own)]);
        assert!(saw(Down).is_due(&said(Up, Down), 1_000, 20_000), "the cluster thinks otherwise");
        assert!(!saw(Down).is_due(&said(Down, Down), 20_999, 20_000));
        assert!(saw(Down).is_due(&said(Down, Down), 21_000, 20_000));
        assert!(!saw(Up).is_due(&said(Up, Up), 90_000, 20_000), "that nothing is wrong is usual");
    }
}
