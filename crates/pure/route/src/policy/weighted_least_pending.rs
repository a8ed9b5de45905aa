//! Weighted least pending (WLPR): the least reported work per weight.

use spillway_types::{Inquiry, Reading, Signals};

use super::choose::Choose;
use crate::field::{Field, Usable};
use crate::reported::{Reports, in_system};
use crate::{Attempt, Candidate, Moment, Reason, Tuning};

/// Policy that follows the work that replicas report, from all senders, corrected by what happened
/// since. Equal ones take turns. All replicas of a group have to count work in the same unit.
#[derive(Debug)]
pub(super) struct WeightedLeastPending;

impl WeightedLeastPending {
    pub(super) fn prepare(_candidates: &[Candidate], _tuning: &Tuning) -> Self {
        Self
    }
}

impl Choose for WeightedLeastPending {
    fn choose(
        &self,
        _inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        let reports = Reports::of(field, pending);
        let work = |usable: &Usable| {
            let signals = field.signals(usable);
            let now = reports.now(usable.known(), pending(&signals), &signals);
            let next = f64::from(reports.work_per_request()) * usable.next;
            (f64::from(now) + next) / usable.weight as f64
        };
        field.least(moment, work).map(|usable| usable.because(Reason::Lightest))
    }
}

/// Returns the pending work that a replica reports, or else its requests.
fn pending(signals: &Signals) -> Reading {
    if signals.pending.is_known() { signals.pending } else { in_system(signals) }
}

#[cfg(test)]
mod tests {
    use crate::Policy;
    use crate::test_world::World;
    use spillway_types::{Reading, Signals};

    fn fresh(value: f32) -> Reading {
        Reading { value, trust: 1.0 }
    }

    /// Returns replicas with this pending work, reported with this many of this process's requests
    /// in flight.
    fn with_pending(weights: &[u32], pending: &[(f32, u32)]) -> World {
        let mut world = World::idle(Policy::WeightedLeastPending, weights);
        for (index, &(value, in_flight)) in pending.iter().enumerate() {
            world.loads.signals[index].pending = fresh(value);
            world.loads.signals[index].in_flight_at_report = in_flight;
            world.loads.in_flight[index] = in_flight;
        }
        world
    }

    #[test]
    fn the_least_work_for_the_weight_is_chosen() {
        let mut world = with_pending(&[1, 1, 2], &[(4.0, 0), (3.0, 0), (6.0, 0)]);
        // (3 + 1) / 1 is more than (6 + 1) / 2.
        assert_eq!(world.tally(10), [0, 0, 10]);
        world.loads.signals[2].pending = fresh(8.0);
        assert_eq!(world.tally(10), [0, 10, 0]);
    }

    #[test]
    fn what_was_sent_since_the_report_evens_work_out() {
        let mut world = with_pending(&[1; 3], &[(9.0, 0), (0.0, 0), (3.0, 0)]);
        assert_eq!(world.serve(15, 15), [0, 9, 6]);
    }

    #[test]
    fn what_came_back_since_the_report_counts_too() {
        let mut world = with_pending(&[1; 2], &[(5.0, 5), (4.0, 4)]);
        world.loads.in_flight = vec![2, 4];
        assert_eq!(world.tally(10), [10, 0]);
    }

    #[test]
    fn of_four_gateways_that_do_the_same_each_sends_its_part() {
        // Reported are 12 requests, a quarter of which are this gateway's; 8 of them are missing on
        // the second replica, 2 of which are this gateway's to send.
        let mut world = with_pending(&[1; 2], &[(10.0, 3), (2.0, 0)]);
        assert_eq!(world.serve(2, 2), [0, 2]);
        assert_eq!(world.serve(6, 6), [2, 4]);
    }

    #[test]
    fn work_may_be_counted_in_any_unit() {
        let in_requests = [(6.0, 6), (2.0, 2), (4.0, 4)];
        let in_tokens = in_requests.map(|(work, in_flight)| (work * 700.0, in_flight));
        let served = with_pending(&[1, 2, 3], &in_requests).serve(30, 30);
        assert_eq!(with_pending(&[1, 2, 3], &in_tokens).serve(30, 30), served);
        assert_eq!(served, [1, 12, 17], "42 requests in shares of 7, 14 and 21");
    }

    #[test]
    fn where_only_what_waits_is_pending_each_request_sent_may_have_to_wait() {
        let mut world = with_pending(&[1; 3], &[(2.0, 20), (0.0, 20), (0.0, 20)]);
        assert_eq!(world.serve(4, 4), [0, 2, 2]);
        assert_eq!(world.serve(7, 7), [1, 3, 3]);
    }

    #[test]
    fn without_pending_work_it_is_what_waits_and_runs() {
        let mut world = World::idle(Policy::WeightedLeastPending, &[1; 2]);
        for (signals, running) in world.loads.signals.iter_mut().zip([2.0, 1.0]) {
            *signals = Signals { queued: fresh(1.0), running: fresh(running), ..*signals };
        }
        assert_eq!(world.tally(10), [0, 10]);
        world.loads.signals[0].pending = fresh(0.0);
        assert_eq!(world.tally(10), [10, 0], "what a replica calls pending comes first");
    }

    #[test]
    fn without_any_report_it_is_the_mean_and_what_is_in_flight() {
        let mut world = with_pending(&[1; 3], &[(8.0, 0), (2.0, 0), (0.0, 0)]);
        world.loads.signals[2] = Signals::UNKNOWN;
        // 8, 2 and 5: of nine requests five go to the second replica, and the rest in turn.
        assert_eq!(world.serve(3, 3), [0, 3, 0]);
        assert_eq!(world.serve(9, 9), [0, 6, 3]);
    }
}
