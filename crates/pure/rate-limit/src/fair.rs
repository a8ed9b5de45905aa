//! Division of a number among those that need parts of it.

/// Divides `total` by max-min fairness: no part exceeds its need, and a part below its need is as
/// large as any other part. The parts sum up to less than `total` if all needs are met.
#[must_use]
pub(crate) fn fair(total: u64, needs: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    // Small needs first: what they leave is divided among the larger ones.
    order.sort_by_key(|place| needs[*place]);
    let mut parts = vec![0; needs.len()];
    let mut left = total;
    for (done, place) in order.into_iter().enumerate() {
        let part = needs[place].min(left / (needs.len() - done) as u64);
        parts[place] = part;
        left -= part;
    }
    parts
}

/// Divides `total` evenly: returns the part at each place. The first places get one more where the
/// division leaves a remainder.
pub(crate) fn even(total: u64, count: usize) -> impl Fn(usize) -> u64 {
    let width = (count as u64).max(1);
    move |place| total / width + u64::from((place as u64) < total % width)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_needs_are_met_and_large_ones_share_the_rest() {
        assert_eq!(fair(100, &[10, 80, 90]), [10, 45, 45]);
        assert_eq!(fair(100, &[10, 20, 30]), [10, 20, 30]);
        assert_eq!(fair(2, &[5, 5, 5]).iter().sum::<u64>(), 2);
        assert!(fair(7, &[]).is_empty());
        assert_eq!([0, 1, 2].map(even(8, 3)), [3, 3, 2]);
    }

    proptest! {
        #[test]
        fn nothing_is_given_twice_or_kept_back(
            total in 0u64..10_000, needs in prop::collection::vec(0u64..5_000, 0..12)
        ) {
            let parts = fair(total, &needs);
            let given: u64 = parts.iter().sum();
            prop_assert_eq!(given, total.min(needs.iter().sum()));
            let least = parts.iter().zip(&needs).filter(|(part, need)| part < need);
            let least = least.map(|(part, _)| *part).min().unwrap_or(u64::MAX);
            for (part, need) in parts.iter().zip(&needs) {
                prop_assert!(part <= need && *part <= least.saturating_add(1));
            }
            let whole: u64 = (0..needs.len()).map(even(total, needs.len())).sum();
            prop_assert!(needs.is_empty() || whole == total);
        }
    }
}
