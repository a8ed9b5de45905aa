//! Turns in the order of the group.

use spillway_types::Inquiry;

use super::Choose;
use crate::field::Field;
use crate::{Attempt, Candidate, Moment, Reason};

/// Gives every candidate its turn; the turns of an unusable one are drawn by the others.
///
/// Drawn, not passed on to the next in order, which would then carry twice its share.
#[derive(Debug)]
pub(super) struct RoundRobin;

impl RoundRobin {
    pub(super) fn prepare(_candidates: &[Candidate]) -> Self {
        Self
    }
}

impl Choose for RoundRobin {
    fn choose(
        &self,
        _inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        let count = field.len();
        let turn = usize::try_from(moment.ticket.checked_rem(count as u64)?).ok()?;
        if let Some(usable) = field.usable(turn) {
            return Some(usable.because(Reason::Turn));
        }
        let substitute = field
            .draw_usable(|| moment.rng.usize(..count))
            .or_else(|| field.draw_of_all(moment.rng, |_| 1));
        substitute.map(|usable| usable.because(Reason::Substitute))
    }
}

#[cfg(test)]
mod tests {
    use crate::test_world::{World, assert_proportional};
    use crate::{Policy, Reason};

    #[test]
    fn takes_turns_in_order_whatever_the_weights() {
        let mut world = World::idle(Policy::RoundRobin, &[7, 1, 3]);
        let turns: Vec<u32> = (0..7).map(|ticket| world.attempt(ticket).slot.0).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(world.attempt(u64::MAX).reason, Reason::Turn);
    }

    #[test]
    fn the_turns_of_a_busy_one_fall_to_all_others_alike() {
        let mut world = World::idle(Policy::RoundRobin, &[1; 5]);
        world.loads.0[2] = u32::MAX;
        let mut drawn = [0; 5];
        for ticket in 0..50_000 {
            let attempt = world.attempt(ticket);
            let own_turn = attempt.slot.index() as u64 == ticket % 5;
            assert_eq!(own_turn, attempt.reason == Reason::Turn);
            drawn[attempt.slot.index()] += u64::from(!own_turn);
        }
        assert_eq!(drawn.iter().sum::<u64>(), 10_000);
        assert_proportional(&drawn, &[1.0, 1.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn the_few_free_ones_of_many_share_evenly() {
        let mut world = World::idle(Policy::RoundRobin, &[1; 500]);
        world.loads.0[3..].fill(u32::MAX);
        assert_proportional(&world.tally(20_000)[..3], &[1.0, 1.0, 1.0]);
    }
}
