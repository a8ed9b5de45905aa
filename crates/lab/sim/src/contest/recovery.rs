//! Recovery: time after a disturbance until a router is as good again as the best of its rivals.

use serde::{Deserialize, Serialize};

/// Seconds of a window.
const WINDOW_S: f64 = 10.0;
/// Part of the rival's goodput from which on a router has recovered.
const RECOVERED: f64 = 0.95;
/// Windows that are judged together at least: fewer have too few requests.
const WINDOWS_MIN: usize = 3;

/// Good requests by time of arrival, in windows of 10 seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windows {
    good: Vec<u32>,
}

impl Windows {
    /// Returns the counts of good requests that arrived at these times, in seconds.
    #[must_use]
    pub fn of(arrived_s: impl IntoIterator<Item = f64>) -> Self {
        let mut good = Vec::new();
        for arrived in arrived_s {
            let window = (arrived / WINDOW_S) as usize;
            if good.len() <= window {
                good.resize(window + 1, 0);
            }
            good[window] += 1;
        }
        Self { good }
    }

    /// Returns the seconds from a disturbance until goodput is that of the rival again: from then
    /// on to the end of the run, however much of its beginning is left out, there are at least 95 %
    /// as many good requests. Returns `None` if that never comes, or less than 30 seconds before
    /// the end.
    #[must_use]
    pub fn recovery_s(&self, rival: &Self, disturbed_s: f64) -> Option<f64> {
        let first = (disturbed_s / WINDOW_S) as usize;
        let end = rival.good.len();
        let last = end.checked_sub(WINDOWS_MIN)?;
        let sum = |good: &[u32], from: usize| good.iter().skip(from).sum::<u32>();
        let is_good = |from: usize| {
            let own = f64::from(sum(&self.good, from));
            own >= RECOVERED * f64::from(sum(&rival.good, from))
        };
        // The run is read from its end: a dip that comes after a good window counts.
        let recovered = (first..=last).rev().take_while(|from| is_good(*from)).last()?;
        Some((recovered as f64 * WINDOW_S - disturbed_s).max(0.0))
    }

    /// Returns the seconds from the end of a disturbance until goodput is that before it again: from
    /// then on to the end of the run there are at least 95 % as many good requests as there would be
    /// at the mean rate before the disturbance began. Both moments are seconds since the first window,
    /// whole windows. Returns `None` if that never comes, or less than 30 seconds before the end.
    #[must_use]
    pub fn regained_s(&self, begun_s: f64, ended_s: f64) -> Option<f64> {
        let before = self.good.get(..(begun_s / WINDOW_S) as usize)?;
        let mean = f64::from(before.iter().sum::<u32>()) / before.len().max(1) as f64;
        let first = (ended_s / WINDOW_S) as usize;
        let last = self.good.len().checked_sub(WINDOWS_MIN)?;
        let is_good = |from: usize| {
            let rest = &self.good[from..];
            f64::from(rest.iter().sum::<u32>()) >= RECOVERED * mean * rest.len() as f64
        };
        let regained = (first..=last).rev().take_while(|from| is_good(*from)).last()?;
        Some((regained as f64 * WINDOW_S - ended_s).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes windows of so many good requests each.
    fn windows(good: &[u32]) -> Windows {
        let each = good.iter().enumerate();
        Windows::of(each.flat_map(|(at, count)| {
            (0..*count).map(move |number| at as f64 * 10.0 + f64::from(number) * 10.0 / 1_000.0)
        }))
    }

    #[test]
    fn arrivals_are_counted_in_their_window() {
        assert_eq!(Windows::of([0.0, 9.9, 10.0, 35.0]).good, [2, 1, 0, 1]);
    }

    #[test]
    fn a_dip_ends_when_the_rest_is_as_good_as_the_rivals() {
        let rival = windows(&[100; 10]);
        let dip = windows(&[100, 100, 100, 20, 30, 100, 100, 100, 100, 100]);
        assert_eq!(dip.recovery_s(&rival, 20.0), Some(30.0));
        // Within the first window all was well still; that is no recovery.
        assert_eq!(dip.recovery_s(&rival, 30.0), Some(20.0));
        assert_eq!(rival.recovery_s(&rival, 20.0), Some(0.0));
    }

    #[test]
    fn small_losses_count_as_recovered_and_lasting_ones_never() {
        let rival = windows(&[100; 10]);
        assert_eq!(windows(&[96; 10]).recovery_s(&rival, 0.0), Some(0.0));
        assert_eq!(windows(&[94; 10]).recovery_s(&rival, 0.0), None);
        assert_eq!(Windows::default().recovery_s(&rival, 0.0), None);
    }

    #[test]
    fn a_good_end_of_less_than_thirty_seconds_is_no_recovery() {
        let rival = windows(&[100; 6]);
        assert_eq!(windows(&[0, 0, 0, 0, 100, 100]).recovery_s(&rival, 0.0), None);
        assert_eq!(windows(&[0, 0, 0, 100, 100, 100]).recovery_s(&rival, 0.0), Some(30.0));
        assert_eq!(rival.recovery_s(&windows(&[1, 1]), 0.0), None);
    }

    #[test]
    fn goodput_is_regained_when_the_rest_is_as_good_as_before() {
        let dip = windows(&[100, 100, 10, 10, 50, 99, 98, 97, 96]);
        assert_eq!(dip.regained_s(20.0, 40.0), Some(10.0));
        assert_eq!(dip.regained_s(20.0, 50.0), Some(0.0));
        // Extra goodput later does not make up for an earlier loss.
        assert_eq!(windows(&[100, 100, 0, 90, 90, 90, 90]).regained_s(20.0, 30.0), None);
        assert_eq!(windows(&[100, 100, 0, 100, 100]).regained_s(20.0, 30.0), None);
        assert_eq!(windows(&[100]).regained_s(20.0, 30.0), None);
    }

    #[test]
    fn a_disturbance_within_a_window_counts_from_its_own_moment() {
        let rival = windows(&[100; 6]);
        assert_eq!(windows(&[0, 0, 100, 100, 100, 100]).recovery_s(&rival, 5.0), Some(15.0));
        assert_eq!(rival.recovery_s(&rival, 5.0), Some(0.0));
    }
}
