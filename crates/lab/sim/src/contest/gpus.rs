//! GPUs that a router needs for a goodput, from runs with several numbers of them.

/// Number of GPUs for a goodput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gpus {
    /// Fewer than were tried, or as many as the fewest.
    AtMost(f64),
    /// About so many, between two numbers that were tried.
    About(f64),
    /// More than were tried.
    Above(f64),
}

impl Gpus {
    /// Returns the GPUs needed for a goodput, from pairs of GPUs and goodput in the order of the
    /// first; `None` if there are none. Goodput is taken to grow evenly between two pairs. The fewest
    /// GPUs that reach it count, though more of them may reach less.
    #[must_use]
    pub fn needed(goodput: f64, tried: &[(f64, f64)]) -> Option<Self> {
        let (first, last) = (tried.first()?, tried.last()?);
        if first.1 >= goodput {
            return Some(Self::AtMost(first.0));
        }
        let reached = tried.windows(2).find(|pair| pair[1].1 >= goodput);
        Some(reached.map_or(Self::Above(last.0), |pair| {
            let share = (goodput - pair[0].1) / (pair[1].1 - pair[0].1);
            Self::About(pair[0].0 + share * (pair[1].0 - pair[0].0))
        }))
    }

    /// Returns the number, whether it is a limit or not.
    #[must_use]
    pub fn count(self) -> f64 {
        match self {
            Self::AtMost(count) | Self::About(count) | Self::Above(count) => count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIED: [(f64, f64); 4] = [(9.0, 6.0), (10.0, 8.0), (12.0, 7.0), (15.0, 11.0)];

    #[test]
    fn goodput_between_two_numbers_is_interpolated() {
        assert_eq!(Gpus::needed(7.0, &TRIED), Some(Gpus::About(9.5)));
        assert_eq!(Gpus::needed(8.0, &TRIED), Some(Gpus::About(10.0)));
        assert_eq!(Gpus::needed(9.0, &TRIED), Some(Gpus::About(13.5)));
    }

    #[test]
    fn goodput_beyond_what_was_tried_has_a_limit_only() {
        assert_eq!(Gpus::needed(6.0, &TRIED), Some(Gpus::AtMost(9.0)));
        assert_eq!(Gpus::needed(1.0, &TRIED), Some(Gpus::AtMost(9.0)));
        assert_eq!(Gpus::needed(12.0, &TRIED), Some(Gpus::Above(15.0)));
        assert_eq!(Gpus::needed(1.0, &[]), None);
    }
}
