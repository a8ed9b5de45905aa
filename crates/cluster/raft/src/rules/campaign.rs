//! Timing of a node's candidacy. Pure: time is an argument, counted from any fixed moment.
//!
//! openraft would let each voter wait for a random time. Two voters that draw about the same time
//! vote for themselves, and all wait again: with three voters 80 ms apart that was one fail-over in
//! three. So voters take turns: each has a part of the time for itself, long enough for its first
//! messages to reach the others.

use std::time::Duration;

use super::timing::Timing;
use crate::wire::Ballot;

/// Share of a voter's part of the time that is random (jitter), so that two voters that have lost
/// step find it again.
const RANDOM_SHARE: f64 = 0.3;

/// Timing of a node's candidacy.
#[derive(Clone, Debug)]
pub(crate) struct Campaign {
    /// Last time at which there was a reason to wait.
    quiet_since: Duration,
    ballot: Option<Ballot>,
    due: Option<Duration>,
}

/// Observations of a node about its leader.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LeaderObservation {
    /// Time of the leader's last message; `None` for never.
    pub(crate) heard: Option<Duration>,
    /// Vote of this node. Only a vote for another node counts: one for itself is left from a
    /// campaign that failed.
    pub(crate) ballot: Option<Ballot>,
    /// Turn of this node.
    pub(crate) turn: CampaignTurn,
}

/// Turn of a node to start an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CampaignTurn {
    /// The node leads, or has no vote.
    None,
    /// The node is the only voter.
    Alone,
    /// Place of the node among the voters that may stand, from 0 on, and their number.
    Of(usize, usize),
}

impl Campaign {
    /// A node that starts at `now`, and may have promised a leader a lease until then.
    pub(crate) fn new(now: Duration) -> Self {
        Self { quiet_since: now, ballot: None, due: None }
    }

    /// Returns true if the node has to start an election now. Has to be called often, with `random`
    /// from 0 to 1.
    pub(crate) fn stands(
        &mut self,
        now: Duration,
        timing: &Timing,
        seen: LeaderObservation,
        random: f64,
    ) -> bool {
        if seen.turn == CampaignTurn::None {
            (self.quiet_since, self.due) = (now, None);
            return false;
        }
        if let Some(heard) = seen.heard.filter(|heard| *heard > self.quiet_since) {
            (self.quiet_since, self.due) = (heard, None);
        }
        let wait = wait(timing, seen.turn, random);
        if seen.ballot != self.ballot {
            self.ballot = seen.ballot;
            // Another node is a candidate and has this node's vote: its messages are in transit.
            self.due = self.due.map(|due| due.max(now + wait));
        }
        // No other node could win where this node is the only voter, so it need not wait.
        let first = self.quiet_since + timing.lease() + wait;
        let due =
            *self.due.get_or_insert(if seen.turn == CampaignTurn::Alone { now } else { first });
        if now < due {
            return false;
        }
        // If this campaign fails, the others have their turns before the next one.
        self.due = Some(now + wait);
        true
    }
}

fn wait(timing: &Timing, turn: CampaignTurn, random: f64) -> Duration {
    let (at, of) = match turn {
        CampaignTurn::Of(at, of) => (at, of.max(1)),
        CampaignTurn::None | CampaignTurn::Alone => (0, 1),
    };
    let room = timing.election_max.saturating_sub(timing.election_min);
    let share = (at as f64 + random.clamp(0.0, 1.0) * RANDOM_SHARE) / of as f64;
    timing.election_min + room.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn timing() -> Timing {
        Timing::for_rtt(ms(220))
    }

    /// The first time from `from` on at which a node stands that sees this.
    fn stands_at(campaign: &mut Campaign, from: u64, seen: LeaderObservation, random: f64) -> u64 {
        (from..from + 20_000).find(|at| campaign.stands(ms(*at), &timing(), seen, random)).unwrap()
    }

    fn seen(turn: CampaignTurn) -> LeaderObservation {
        LeaderObservation { heard: Some(ms(100)), ballot: None, turn }
    }

    #[test]
    fn voters_wait_for_the_lease_and_then_their_turn() {
        for (turn, random, expected) in [
            (CampaignTurn::Of(0, 2), 0.0, 100 + 1_300 + 500),
            (CampaignTurn::Of(0, 2), 1.0, 100 + 1_300 + 500 + 120),
            (CampaignTurn::Of(1, 2), 0.0, 100 + 1_300 + 500 + 400),
            (CampaignTurn::Of(1, 2), 1.0, 100 + 1_300 + 500 + 520),
            (CampaignTurn::Of(3, 4), 0.0, 100 + 1_300 + 500 + 600),
        ] {
            let mut campaign = Campaign::new(ms(0));
            assert_eq!(stands_at(&mut campaign, 0, seen(turn), random), expected, "{turn:?}");
        }
    }

    #[test]
    fn turns_are_so_far_apart_that_the_first_is_heard_before_the_second_stands() {
        for of in [2, 4] {
            for at in 1..of {
                let mut first = Campaign::new(ms(0));
                let mut second = first.clone();
                let first = stands_at(&mut first, 0, seen(CampaignTurn::Of(at - 1, of)), 1.0);
                let second = stands_at(&mut second, 0, seen(CampaignTurn::Of(at, of)), 0.0);
                // Half the longest round trip, and a vote on disk.
                assert!(second >= first + 110 + 20, "{at} of {of}: {first} {second}");
            }
        }
    }

    #[test]
    fn a_heard_leader_is_waited_for_anew() {
        let mut campaign = Campaign::new(ms(0));
        for at in 0..5_000 {
            let seen = LeaderObservation {
                heard: Some(ms(at / 400 * 400)),
                ..seen(CampaignTurn::Of(0, 2))
            };
            assert!(!campaign.stands(ms(at), &timing(), seen, 0.0), "{at}");
        }
        let seen = LeaderObservation { heard: Some(ms(4_800)), ..seen(CampaignTurn::Of(0, 2)) };
        assert_eq!(stands_at(&mut campaign, 5_000, seen, 0.0), 4_800 + 1_800);
    }

    #[test]
    fn a_restarted_node_waits_for_the_lease_that_it_may_have_promised() {
        let mut campaign = Campaign::new(ms(7_000));
        let seen = LeaderObservation { heard: None, ..seen(CampaignTurn::Of(0, 2)) };
        assert_eq!(stands_at(&mut campaign, 7_000, seen, 0.0), 7_000 + 1_800);
    }

    #[test]
    fn a_vote_for_somebody_else_postpones_the_own_campaign() {
        let mut campaign = Campaign::new(ms(0));
        let turn = seen(CampaignTurn::Of(1, 2));
        assert!((0..2_290).all(|at| !campaign.stands(ms(at), &timing(), turn, 0.0)));
        let ballot = Ballot { term: 2, node: NodeId(1), is_won: false };
        let voted = LeaderObservation { ballot: Some(ballot), ..turn };
        assert_eq!(stands_at(&mut campaign, 2_290, voted, 0.0), 2_290 + 900);
    }

    #[test]
    fn a_campaign_that_failed_is_repeated() {
        let mut campaign = Campaign::new(ms(0));
        let turn = seen(CampaignTurn::Of(0, 2));
        let first = stands_at(&mut campaign, 0, turn, 0.0);
        assert_eq!(stands_at(&mut campaign, first + 1, turn, 0.5), first + 500);
    }

    #[test]
    fn a_single_voter_stands_at_once_and_a_leader_or_learner_never() {
        let mut campaign = Campaign::new(ms(50));
        let nobody = LeaderObservation { heard: None, ..seen(CampaignTurn::None) };
        assert!((50..60_000).all(|at| !campaign.stands(ms(at), &timing(), nobody, 0.0)));
        let alone = LeaderObservation { heard: None, ..seen(CampaignTurn::Alone) };
        assert!(campaign.stands(ms(60_000), &timing(), alone, 0.0));
        assert!(!campaign.stands(ms(60_001), &timing(), alone, 0.0));
        // A learner that becomes a voter is as patient as any.
        let mut campaign = Campaign::new(ms(0));
        assert!(!campaign.stands(ms(9_000), &timing(), nobody, 0.0));
        let voter = LeaderObservation { heard: None, ..seen(CampaignTurn::Of(0, 2)) };
        assert_eq!(stands_at(&mut campaign, 9_001, voter, 0.0), 9_000 + 1_800);
    }
}
