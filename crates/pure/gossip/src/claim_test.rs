//! One claim against others that are put together by hand.

use super::*;

/// The one moment of most of these tests.
#[expect(clippy::disallowed_methods, reason = "there is no other way to some instant")]
fn start() -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *START.get_or_init(Instant::now)
}

fn rival(usable: u32, proposed: u32, wanted: u32, echoed: u64) -> Rival {
    let claim = ClaimEntry { usable, proposed, wanted };
    Rival { claim, in_flight: 0, echoed: Some(echoed) }
}

/// Returns a claim with these numbers of places that it may use, has in flight and wants.
fn claim(limit: u32, usable: u32, wanted: u32) -> Claim {
    let mut claim = Claim::new();
    claim.set(limit, 0, wanted, start());
    claim.usable = usable;
    claim
}

fn proposed(claim: &Claim) -> u32 {
    claim.entry().proposed
}

/// Settles the claim, and publishes a drafted raise as `version`.
fn settle(claim: &mut Claim, rivals: &[Rival], place: usize, version: u64) {
    claim.settle(rivals, place, start());
    claim.sent(claim.entry(), version);
}

#[test]
fn a_raise_counts_once_everyone_has_echoed_it() {
    let mut claim = claim(10, 2, 9);
    settle(&mut claim, &[rival(2, 0, 0, 6), rival(1, 0, 0, 6)], 0, 7);
    assert_eq!((claim.usable(), proposed(&claim)), (2, 7));
    settle(&mut claim, &[rival(2, 0, 0, 7), rival(1, 0, 0, 6)], 0, 8);
    assert_eq!(claim.usable(), 2, "one has not echoed it");
    settle(&mut claim, &[rival(2, 0, 0, 8), rival(1, 0, 0, 7)], 0, 9);
    assert_eq!((claim.usable(), proposed(&claim)), (7, 0));
}

#[test]
fn a_raise_that_nobody_was_told_counts_for_nothing() {
    let mut claim = claim(10, 2, 9);
    let others = [rival(2, 0, 0, u64::MAX)];
    claim.settle(&others, 0, start());
    claim.settle(&others, 0, start());
    assert_eq!(claim.usable(), 2);
}

#[test]
fn nothing_is_proposed_to_somebody_of_whom_not_all_is_known() {
    let mut claim = claim(10, 2, 9);
    let stranger = Rival { echoed: None, ..rival(0, 0, 0, 0) };
    settle(&mut claim, &[stranger], 0, 7);
    assert_eq!(proposed(&claim), 0);
    settle(&mut claim, &[rival(2, 0, 0, 6)], 0, 7);
    assert_eq!(proposed(&claim), 8);
    claim.settle(&[Rival { echoed: None, ..rival(2, 0, 0, 0) }], 0, start());
    assert_eq!(claim.usable(), 2, "nor counts it if that is so by now");
}

#[test]
fn a_raise_shrinks_to_what_is_left_by_the_time_of_the_echo() {
    let mut claim = claim(10, 2, 9);
    settle(&mut claim, &[rival(2, 0, 0, 6)], 0, 7);
    assert_eq!(proposed(&claim), 8);
    // The rival's claim has grown since then. It wants so little that we may have the rest.
    settle(&mut claim, &[rival(5, 0, 0, 7)], 0, 8);
    assert_eq!((claim.usable(), proposed(&claim)), (5, 0));
}

#[test]
fn what_is_in_flight_counts_even_beyond_the_claim() {
    let mut claim = claim(10, 2, 9);
    let busy = Rival { in_flight: 7, ..rival(1, 0, 0, 6) };
    settle(&mut claim, &[busy], 0, 7);
    assert_eq!(proposed(&claim), 3);
}

#[test]
fn of_two_proposals_that_do_not_fit_the_first_name_stands() {
    // Both have 2 of 10, and propose 7.
    let (mut first, mut second) = (claim(10, 2, 9), claim(10, 2, 9));
    first.raise = Raise::Sent { to: 7, version: 7 };
    second.raise = Raise::Sent { to: 7, version: 7 };
    first.advance(&[rival(2, 7, 9, 7)], 0);
    assert_eq!((first.usable(), proposed(&first)), (2, 7), "it waits for the other to withdraw");
    second.advance(&[rival(2, 7, 9, 7)], 1);
    assert_eq!((second.usable(), proposed(&second)), (3, 0), "it takes what is left");
    first.advance(&[rival(3, 0, 9, 7)], 0);
    assert_eq!(first.usable(), 7);
}

#[test]
fn what_others_lack_is_given_back_at_once() {
    let mut claim = claim(12, 10, 1);
    claim.settle(&[rival(1, 0, 30, 1), rival(1, 0, 0, 1)], 0, start());
    assert_eq!(claim.usable(), 1, "what it has in hand");
    assert_eq!(claim.entry().wanted, 1);
}

#[test]
fn nothing_is_given_back_while_nobody_lacks_it() {
    let mut claim = claim(12, 10, 1);
    claim.settle(&[rival(1, 0, 0, 1), rival(1, 0, 0, 1)], 0, start());
    assert_eq!(claim.usable(), 10);
    claim.settle(&[rival(1, 0, 0, 1)], 0, start());
    assert_eq!(claim.usable(), 10, "there is room enough for it");
}

#[test]
fn a_node_with_more_in_flight_than_its_share_starts_nothing_until_they_ended() {
    let mut claim = Claim::new();
    claim.set(12, 10, 30, start());
    claim.usable = 10;
    claim.settle(&[rival(1, 0, 30, 1), rival(1, 0, 30, 1)], 0, start());
    assert_eq!(claim.usable(), 4);
}

#[test]
fn too_much_in_all_is_lowered_to_fair_shares() {
    let mut claim = claim(10, 10, 20);
    claim.settle(&[rival(10, 0, 20, 1)], 0, start());
    assert_eq!(claim.usable(), 5);
}

#[test]
fn spare_room_is_not_worth_a_report_for_each_request() {
    let others = [rival(16, 0, 10, 1)];
    let mut claim = claim(40, 18, 10);
    settle(&mut claim, &others, 0, 2);
    assert_eq!(proposed(&claim), 0);
    claim.set(40, 18, 18, start());
    settle(&mut claim, &others, 0, 2);
    assert_eq!(proposed(&claim), 24, "but for what is needed it is");
}

#[test]
fn a_suspended_claim_is_none_and_comes_back_by_a_raise() {
    let mut claim = claim(10, 5, 3);
    claim.suspend();
    assert_eq!(claim.usable(), 0);
    settle(&mut claim, &[rival(5, 0, 0, 3)], 0, 4);
    assert_eq!((claim.usable(), proposed(&claim)), (0, 5));
}

#[test]
fn a_growing_demand_does_not_put_off_what_is_proposed() {
    let mut claim = claim(100, 2, 9);
    settle(&mut claim, &[rival(2, 0, 0, 6)], 0, 7);
    let first = proposed(&claim);
    claim.set(100, 2, 60, start());
    settle(&mut claim, &[rival(2, 0, 0, 6)], 0, 8);
    assert_eq!(proposed(&claim), first);
    settle(&mut claim, &[rival(2, 0, 0, 7)], 0, 8);
    assert_eq!(claim.usable(), first);
}

/// Nodes that receive each other's reports at once, and always use all the places they may.
struct Region {
    claims: Vec<Claim>,
    now: Instant,
    version: u64,
}

impl Region {
    fn new(count: usize) -> Self {
        let claims = (0..count).map(|_| Claim::new()).collect();
        Self { claims, now: start(), version: 0 }
    }

    /// Lets each node want so many places for `ms`; requests end as soon as they may. Returns for
    /// how many steps of 50 ms each node could use how many places.
    fn run(&mut self, limit: u32, wanted: &[u32], ms: u64) -> Vec<u32> {
        let mut used = vec![0; self.claims.len()];
        for _ in 0..ms / 50 {
            self.now += Duration::from_millis(50);
            self.version += 1;
            for (claim, wanted) in self.claims.iter_mut().zip(wanted) {
                let in_flight = claim.usable.min(*wanted);
                claim.set(limit, in_flight, *wanted, self.now);
            }
            for place in 0..self.claims.len() {
                let mut rivals: Vec<Rival> = self
                    .claims
                    .iter()
                    .map(|claim| Rival {
                        claim: claim.entry(),
                        in_flight: claim.in_flight,
                        echoed: Some(self.version - 1),
                    })
                    .collect();
                rivals.remove(place);
                let claim = &mut self.claims[place];
                claim.settle(&rivals, place, self.now);
                claim.sent(claim.entry(), self.version);
            }
            let sum: u32 = self.claims.iter().map(|claim| claim.usable.max(claim.in_flight)).sum();
            assert!(sum <= limit, "{sum} of {limit} are used");
            for (used, claim) in used.iter_mut().zip(&self.claims) {
                *used += claim.usable;
            }
        }
        used
    }

    fn usable(&self) -> Vec<u32> {
        self.claims.iter().map(Claim::usable).collect()
    }
}

#[test]
fn idle_siblings_leave_all_places_to_one_that_has_work_within_a_second() {
    for (limit, count) in [(12, 3), (3, 3), (2, 3), (1, 3), (4, 8)] {
        let mut region = Region::new(count);
        let mut wanted = vec![0; count];
        region.run(limit, &wanted, 2_000);
        // They have had something to do just now.
        region.run(limit, &vec![1; count], 500);
        wanted[count - 1] = 40;
        region.run(limit, &wanted, 1_200);
        assert_eq!(region.usable()[count - 1], limit, "of {limit} with {count} nodes");
        // The first request of another one has a place at once.
        wanted[0] = 1;
        region.run(limit, &wanted, 300);
        let least = u32::from(limit > 1);
        assert!(region.usable()[0] >= least, "{limit} {count}: {:?}", region.usable());
        wanted = vec![0; count];
        region.run(limit, &wanted, 2_000);
        assert!(region.usable().iter().sum::<u32>() + 2 >= limit, "{:?}", region.usable());
    }
}

#[test]
fn nodes_take_turns_where_there_are_fewer_places_than_nodes_with_work() {
    for (limit, count) in [(1, 2), (1, 3), (2, 3), (1, 5), (3, 7)] {
        let mut region = Region::new(count);
        let used = region.run(limit, &vec![5; count], 60_000);
        let even = 60 * 20 * limit / count as u32;
        for used in &used {
            assert!((even / 2..even * 3 / 2).contains(used), "{limit} for {count}: {used:?}");
        }
        let sum: u32 = used.iter().sum();
        assert!(sum > 60 * 20 * limit * 3 / 5, "{limit} for {count}: {sum} were used");
        let mut longest = vec![0; count];
        let mut waits = vec![0; count];
        for _ in 0..600 {
            let used = region.run(limit, &vec![5; count], 50);
            for ((wait, longest), used) in waits.iter_mut().zip(&mut longest).zip(used) {
                *wait = if used > 0 { 0 } else { *wait + 50 };
                *longest = (*longest).max(*wait);
            }
        }
        let most = (count as u32).div_ceil(limit) * 2_000;
        assert!(longest.iter().all(|wait| *wait <= most), "{limit} for {count}: {longest:?}");
    }
}
