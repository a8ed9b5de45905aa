//! Smooth schedule: turns in proportion to weight, spread evenly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most turns in a schedule, unless there are more positions: 16 KiB a group.
const TURNS_MAX: u64 = 4_096;

/// Cyclic sequence of positions in which each has turns in proportion to its weight.
///
/// After any number of turns each position has had its exact share to within less than one turn.
/// Nginx's smooth weighted round robin, which picks the largest balance, has the same aim but
/// strays further (1.4 turns with some 30 mixed weights) and looks at every position for each turn.
/// Here the turn `k` of a position with `w` of `s` turns falls within `floor(k*s/w) ..
/// ceil((k+1)*s/w)`, and the window that ends first is served first, which is always possible
/// (Baruah et al., "Proportionate progress", 1996).
#[derive(Debug)]
pub(crate) struct SmoothSchedule {
    turns: Vec<u32>,
}

impl SmoothSchedule {
    /// Makes the schedule for weights of at least 1.
    pub(crate) fn new(weights: &[u64]) -> Self {
        Self { turns: interleave(&turn_counts(weights)) }
    }

    /// Returns the position whose turn it is at `ticket`; `None` if the schedule is empty.
    pub(crate) fn turn(&self, ticket: u64) -> Option<usize> {
        let at = ticket.checked_rem(self.turns.len() as u64)?;
        Some(self.turns[usize::try_from(at).ok()?] as usize)
    }
}

/// Returns the turns of each weight: exact if the schedule is long enough.
///
/// Otherwise each count is rounded by less than one turn, but to at least 1. With `s` turns and `r`
/// positions whose exact count is below 1, a share is off by less than `(1 + r) / s`.
fn turn_counts(weights: &[u64]) -> Vec<u64> {
    let total: u64 = weights.iter().sum();
    let divisor = weights.iter().copied().fold(0, greatest_common_divisor);
    let turns_max = TURNS_MAX.max(weights.len() as u64);
    // A divisor of 0 means that there is no weight at all.
    if divisor == 0 || total / divisor <= turns_max {
        return weights.iter().map(|&weight| weight / divisor).collect();
    }
    // Rounding the running sum instead of each count makes the errors cancel out.
    let up_to = |sum: u64| u128::from(sum) * u128::from(turns_max) / u128::from(total);
    let mut sum = 0;
    let mut count = |weight: u64| {
        let before = up_to(sum);
        sum += weight;
        u64::try_from(up_to(sum) - before).unwrap_or(turns_max).max(1)
    };
    weights.iter().map(|&weight| count(weight)).collect()
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Gives position `i` `counts[i]` turns: of the windows that have begun, the one that ends first is
/// served first.
fn interleave(counts: &[u64]) -> Vec<u32> {
    let total: u64 = counts.iter().sum();
    let begin = |position: usize, nth: u64| nth * total / counts[position];
    let end = |position: usize, nth: u64| ((nth + 1) * total).div_ceil(counts[position]);
    // Each position has one window in one of the two heaps, ordered by its begin or its end.
    let mut ahead: BinaryHeap<_> =
        (0..counts.len()).map(|position| Reverse((begin(position, 0), position, 0))).collect();
    let mut open = BinaryHeap::with_capacity(counts.len());
    let mut turns = Vec::with_capacity(usize::try_from(total).unwrap_or_default());
    for now in 0..total {
        while ahead.peek().is_some_and(|Reverse((begin, ..))| *begin <= now) {
            if let Some(Reverse((_, position, nth))) = ahead.pop() {
                open.push(Reverse((end(position, nth), position, nth)));
            }
        }
        // Never empty: if no window were open, more turns would be given than exist.
        if let Some(Reverse((_, position, nth))) = open.pop() {
            turns.push(u32::try_from(position).unwrap_or_default());
            ahead.push(Reverse((begin(position, nth + 1), position, nth + 1)));
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Fails unless each position has had its share to within one turn, after every turn.
    fn check_even(weights: &[u64]) -> Result<(), TestCaseError> {
        let schedule = SmoothSchedule::new(weights);
        let total: u64 = weights.iter().sum();
        let mut had = vec![0_u64; weights.len()];
        for turns in 1..=schedule.turns.len() as u64 {
            had[schedule.turn(turns - 1).unwrap()] += 1;
            for (&had, &weight) in had.iter().zip(weights) {
                let off = (had * total).abs_diff(turns * weight);
                prop_assert!(off < total, "off by {off} / {total} after {turns} turns");
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn shares_are_exact_over_a_period_and_within_one_turn_at_any_time(
            weights in prop::collection::vec(1..40_u64, 1..30),
            factor in 1..1_000_u64,
        ) {
            let scaled: Vec<u64> = weights.iter().map(|weight| weight * factor).collect();
            let counts = turn_counts(&scaled);
            let turns = SmoothSchedule::new(&scaled).turns;
            for (position, &weight) in (0..).zip(&weights) {
                let had = turns.iter().filter(|&&turn| turn == position).count() as u64;
                prop_assert_eq!(had, counts[position as usize]);
                let total = weights.iter().sum::<u64>() as usize;
                prop_assert_eq!(had as usize * total, weight as usize * turns.len());
            }
            check_even(&scaled)?;
        }

        #[test]
        fn long_schedules_are_cut_within_the_stated_error(
            weights in prop::collection::vec(prop_oneof![1..50_u64, 1..=u64::from(u32::MAX) * 1_000], 1..200),
        ) {
            let counts = turn_counts(&weights);
            let turns: u64 = counts.iter().sum();
            let total: u64 = weights.iter().sum();
            prop_assert!(turns <= TURNS_MAX + weights.len() as u64);
            prop_assert!(counts.iter().all(|&count| count >= 1));
            let exact = |weight: u64| weight as f64 / total as f64;
            let raised =
                weights.iter().filter(|&&weight| exact(weight) * (TURNS_MAX as f64) < 1.0).count();
            for (&count, &weight) in counts.iter().zip(&weights) {
                let off = (count as f64 / turns as f64 - exact(weight)).abs();
                let bound = (1 + raised) as f64 / turns as f64;
                prop_assert!(off <= bound, "weight {weight}: off by {off} > {bound}");
            }
        }

        #[test]
        fn rounding_errors_cancel_out(
            weights in prop::collection::vec(1_000_000..2_000_000_u64, 2..200),
        ) {
            let counts = turn_counts(&weights);
            let turns: u64 = counts.iter().sum();
            let divisor = weights.iter().copied().fold(0, greatest_common_divisor);
            // A common divisor of some hundreds would make the schedule short and exact.
            let total: u64 = weights.iter().sum();
            prop_assume!(total / divisor > TURNS_MAX);
            prop_assert_eq!(turns, TURNS_MAX);
            for (&count, &weight) in counts.iter().zip(&weights) {
                prop_assert!((count * total).abs_diff(weight * turns) < total);
            }
        }

        #[test]
        fn equal_weights_take_turns_in_order(count in 1..5_000_u32, weight in 1..=u64::from(u32::MAX)) {
            let turns = SmoothSchedule::new(&vec![weight; count as usize]).turns;
            prop_assert_eq!(turns, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_heavy_one_is_interleaved_with_the_light_ones() {
        assert_eq!(SmoothSchedule::new(&[5, 1, 1]).turns, [0, 0, 0, 1, 0, 0, 2]);
        assert_eq!(SmoothSchedule::new(&[3, 2]).turns, [0, 1, 0, 0, 1]);
        assert_eq!(SmoothSchedule::new(&[]).turn(0), None);
    }
}
