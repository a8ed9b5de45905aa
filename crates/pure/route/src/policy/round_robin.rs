//! Round robin: turns in the order of the group.

use spillway_types::{Inquiry, RAMP_FULL};

use super::choose::Choose;
use crate::field::Field;
use crate::{Attempt, Candidate, Moment, Reason, Tuning};

/// Policy that gives every candidate its turn. The turn of an unusable candidate is drawn among the
/// others: the next in order would otherwise carry twice its share.
///
/// A candidate in slow start leaves a part of its turns to that draw, and takes part in the draw
/// with its ramp, so that shares are in proportion to the ramps.
#[derive(Debug)]
pub(super) struct RoundRobin {
    /// Largest ramp, which counts as full: candidates that warm up together take equal turns.
    ramp_max: u16,
}

impl RoundRobin {
    pub(super) fn prepare(candidates: &[Candidate], _tuning: &Tuning) -> Self {
        let ramps = candidates.iter().map(|candidate| candidate.ramp_permille);
        Self { ramp_max: ramps.max().unwrap_or(RAMP_FULL) }
    }

    /// Returns the turn, or `None` if its candidate is in slow start and chance passes over it.
    fn taken(&self, turn: usize, field: &Field<'_>, rng: &mut fastrand::Rng) -> Option<usize> {
        let ramp = field.ramp_permille(turn);
        (ramp >= self.ramp_max || rng.u16(..self.ramp_max) < ramp).then_some(turn)
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
        let rng = &mut *moment.rng;
        if let Some(usable) = self.taken(turn, field, rng).and_then(|turn| field.usable(turn)) {
            return Some(usable.because(Reason::Turn));
        }
        let substitute = field
            .draw_usable(|| self.taken(rng.usize(..count), field, rng))
            .or_else(|| field.draw_of_all(rng, |usable| f64::from(usable.ramp_permille)));
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
        world.loads.in_flight[2] = u32::MAX;
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
        world.loads.in_flight[3..].fill(u32::MAX);
        assert_proportional(&world.tally(20_000)[..3], &[1.0, 1.0, 1.0]);
    }
}
