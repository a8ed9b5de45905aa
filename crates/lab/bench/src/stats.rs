//! Medians and ratios over rounds.

/// Returns the median of the finite `values`, which is the mean of the middle two for an even
/// number; `None` if there are none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Returns the median of `value / base`, taken round by round.
///
/// Other work on the machine changes from round to round. Both sides of one round share it, so a
/// ratio inside the round is steadier than the ratio of two medians.
pub(crate) fn median_ratio(
    values: impl IntoIterator<Item = Option<f64>>,
    bases: impl IntoIterator<Item = Option<f64>>,
) -> Option<f64> {
    median(pairs(values, bases).filter(|(_, base)| *base > 0.0).map(|(value, base)| value / base))
}

/// Returns the median of `value - base`, taken round by round.
pub(crate) fn median_difference(
    values: impl IntoIterator<Item = Option<f64>>,
    bases: impl IntoIterator<Item = Option<f64>>,
) -> Option<f64> {
    median(pairs(values, bases).map(|(value, base)| value - base))
}

/// Pairs the values and bases of the rounds that have both.
fn pairs(
    values: impl IntoIterator<Item = Option<f64>>,
    bases: impl IntoIterator<Item = Option<f64>>,
) -> impl Iterator<Item = (f64, f64)> {
    values.into_iter().zip(bases).filter_map(|(value, base)| value.zip(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_middle_two() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 100.0, 2.0]), Some(3.0));
        assert_eq!(median([f64::NAN, 1.0]), Some(1.0));
    }

    #[test]
    fn ratios_are_taken_inside_a_round() {
        // The second round was slow for both: the ratio of medians would be 2.0 / 1.0.
        let values = [Some(2.0), Some(30.0), Some(1.5)];
        let bases = [Some(1.0), Some(20.0), Some(1.0)];
        assert_eq!(median_ratio(values, bases), Some(1.5));
    }

    #[test]
    fn rounds_without_a_base_are_left_out() {
        let values = [Some(2.0), Some(3.0), None, Some(8.0)];
        let bases = [Some(0.0), None, Some(1.0), Some(4.0)];
        assert_eq!(median_ratio(values, bases), Some(2.0));
        assert_eq!(median_difference(values, bases), Some(3.0));
    }
}
