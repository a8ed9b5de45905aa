//! Spread of a figure over seeds, with its confidence interval.

use serde::{Deserialize, Serialize};

/// Quantiles of Student's t distribution at 97.5 %, for 1 to 30 degrees of freedom.
const STUDENT_T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// Direction in which a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// A larger figure is better, as with goodput.
    Higher,
    /// A smaller figure is better, as with times.
    Lower,
}

impl Better {
    /// Returns true if the first figure is better than the second.
    #[must_use]
    pub fn is_better(self, first: f64, second: f64) -> bool {
        match self {
            Self::Higher => first > second,
            Self::Lower => first < second,
        }
    }
}

/// Mean, extremes and 95 % interval of a figure over the seeds of a contest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Mean over the seeds.
    pub mean: f64,
    /// Figure of the seed with the worst one.
    pub worst: f64,
    /// Figure of the seed with the best one.
    pub best: f64,
    /// Half the width of the 95 % confidence interval of the mean, by Student's t; `None` for one
    /// seed, which has no spread.
    pub margin: Option<f64>,
}

impl Spread {
    /// Returns the spread of the figures of all seeds; `None` if there are none.
    #[must_use]
    pub fn of(figures: &[f64], better: Better) -> Option<Self> {
        let count = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / count;
        let margin = STUDENT_T.get(figures.len().checked_sub(1)?.saturating_sub(1).min(29));
        let squares = figures.iter().map(|figure| (figure - mean).powi(2)).sum::<f64>();
        let error = (squares / (count - 1.0) / count).sqrt();
        // The second figure replaces the first where `is_replaced` returns true.
        let pick = |is_replaced: &dyn Fn(f64, f64) -> bool| {
            figures.iter().copied().reduce(|a, b| if is_replaced(a, b) { b } else { a })
        };
        Some(Self {
            mean,
            worst: pick(&|a, b| better.is_better(a, b))?,
            best: pick(&|a, b| better.is_better(b, a))?,
            margin: margin.filter(|_| figures.len() > 1).map(|quantile| quantile * error),
        })
    }

    /// Returns the spread of the ratios of paired figures: each of a contender over that of a rival
    /// with the same seed. A rival's 0 counts as the least positive figure of all; `None` if there
    /// are no pairs or no such figure.
    #[must_use]
    pub fn of_ratios(pairs: &[(f64, f64)], better: Better) -> Option<Self> {
        let all = pairs.iter().flat_map(|(own, rival)| [*own, *rival]);
        let least = all.filter(|figure| *figure > 0.0).reduce(f64::min)?;
        let ratios: Vec<f64> = pairs.iter().map(|(own, rival)| own / rival.max(least)).collect();
        Self::of(&ratios, better)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_students_t() {
        // Mean 3, standard deviation sqrt(2.5), so the standard error is sqrt(0.5).
        let spread = Spread::of(&[1.0, 2.0, 3.0, 4.0, 5.0], Better::Higher).unwrap();
        assert_eq!((spread.mean, spread.worst, spread.best), (3.0, 1.0, 5.0));
        assert!((spread.margin.unwrap() - 2.776 * 0.5_f64.sqrt()).abs() < 1e-9);
        let two = Spread::of(&[1.0, 2.0], Better::Lower).unwrap();
        assert_eq!((two.worst, two.best), (2.0, 1.0));
        assert!((two.margin.unwrap() - 12.706 * 0.5).abs() < 1e-9);
    }

    #[test]
    fn one_seed_has_no_interval_and_none_has_no_spread() {
        assert_eq!(Spread::of(&[2.0], Better::Lower).unwrap().margin, None);
        assert_eq!(Spread::of(&[], Better::Lower), None);
    }

    #[test]
    fn more_seeds_than_the_table_has_take_its_last_quantile() {
        let many: Vec<f64> = (0..100).map(|at| f64::from(at % 2)).collect();
        let error = (25.0_f64 / 99.0 / 100.0).sqrt();
        let spread = Spread::of(&many, Better::Higher).unwrap();
        assert!((spread.margin.unwrap() - 2.042 * error).abs() < 1e-9);
    }

    #[test]
    fn ratios_are_paired_by_seed_before_they_are_averaged() {
        let spread = Spread::of_ratios(&[(1.0, 2.0), (30.0, 20.0)], Better::Higher).unwrap();
        assert_eq!((spread.mean, spread.worst, spread.best), (1.0, 0.5, 1.5));
    }

    #[test]
    fn a_rival_that_served_nothing_does_not_make_ratios_infinite() {
        let spread = Spread::of_ratios(&[(1.0, 0.0), (2.0, 2.0)], Better::Higher).unwrap();
        assert_eq!((spread.mean, spread.best), (1.0, 1.0));
        assert_eq!(Spread::of_ratios(&[(0.0, 0.0)], Better::Higher), None);
    }
}
