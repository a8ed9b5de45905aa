//! Random draw in proportion to weight.

use spillway_types::Inquiry;

use super::choose::Choose;
use crate::alias_table::AliasTable;
use crate::field::Field;
use crate::{Attempt, Candidate, Moment, Reason, Tuning};

/// Policy that draws by weight. It draws again if the candidate is unusable, which keeps the
/// proportions among the usable ones.
#[derive(Debug)]
pub(super) struct Random {
    table: AliasTable,
}

impl Random {
    pub(super) fn prepare(candidates: &[Candidate], _tuning: &Tuning) -> Self {
        Self { table: AliasTable::new(candidates.iter().map(Candidate::effective_weight)) }
    }
}

impl Choose for Random {
    fn choose(
        &self,
        _inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        if field.len() == 0 {
            return None;
        }
        let drawn = field
            .draw_usable(|| Some(self.table.draw(moment.rng)))
            .or_else(|| field.draw_of_all(moment.rng, |usable| usable.weight as f64));
        drawn.map(|usable| usable.because(Reason::Drawn))
    }
}

#[cfg(test)]
mod tests {
    use crate::test_world::{World, assert_proportional};
    use crate::{Policy, Reason};

    #[test]
    fn draws_in_proportion_to_weight() {
        let mut world = World::idle(Policy::Random, &[5, 1, 1, 93, 20]);
        assert_proportional(&world.tally(60_000), &[5.0, 1.0, 1.0, 93.0, 20.0]);
        assert_eq!(world.attempt(0).reason, Reason::Drawn);
    }

    #[test]
    fn proportions_among_the_usable_stay_when_a_few_are_busy() {
        let mut world = World::idle(Policy::Random, &[4, 3, 2, 1]);
        world.loads.in_flight[0] = u32::MAX;
        assert_proportional(&world.tally(60_000), &[0.0, 3.0, 2.0, 1.0]);
    }

    #[test]
    fn proportions_among_the_usable_stay_when_almost_all_are_busy() {
        let mut weights = vec![50; 500];
        weights.extend([3, 2, 1]);
        let mut world = World::idle(Policy::Random, &weights);
        world.loads.in_flight[..500].fill(u32::MAX);
        assert_proportional(&world.tally(60_000)[500..], &[3.0, 2.0, 1.0]);
    }
}
