//! Demand of each region's clients by the hour of the day.

use std::f64::consts::TAU;

/// Region of the plan, with the peak demand of its own clients.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRegion {
    /// Name as in the config files.
    pub name: String,
    /// Hours that local time is ahead of UTC.
    pub utc_offset_h: f64,
    /// Requests a second of the region's own clients at the busiest hour of their day.
    pub peak_per_s: f64,
}

/// Demand over the day: a cosine between the busiest hour and the quietest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DayCurve {
    /// Local hour of the peak.
    pub peak_h: f64,
    /// Demand at the quietest hour, as a part of the peak.
    pub night: f64,
}

impl DayCurve {
    /// Returns the requests a second of a region's own clients at this hour of UTC.
    #[must_use]
    pub fn demand_per_s(&self, region: &PlannedRegion, utc_h: f64) -> f64 {
        let from_peak = utc_h + region.utc_offset_h - self.peak_h;
        let height = (1.0 + (from_peak / 24.0 * TAU).cos()) / 2.0;
        region.peak_per_s * (self.night + (1.0 - self.night) * height)
    }

    /// Returns the requests a second of each region's own clients at this hour of UTC.
    #[must_use]
    pub fn demands_per_s(&self, regions: &[PlannedRegion], utc_h: f64) -> Vec<f64> {
        regions.iter().map(|region| self.demand_per_s(region, utc_h)).collect()
    }

    /// Returns the whole hour of UTC at which the demand of all regions together is highest.
    #[must_use]
    pub fn busiest_h(&self, regions: &[PlannedRegion]) -> f64 {
        let sum = |hour: &f64| self.demands_per_s(regions, *hour).iter().sum::<f64>();
        let hours = (0..24).map(f64::from);
        hours.max_by(|one, other| sum(one).total_cmp(&sum(other))).unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURVE: DayCurve = DayCurve { peak_h: 15.0, night: 0.2 };

    fn region(utc_offset_h: f64, peak_per_s: f64) -> PlannedRegion {
        PlannedRegion { name: "r".to_owned(), utc_offset_h, peak_per_s }
    }

    #[test]
    fn a_region_peaks_in_its_own_afternoon_and_is_quiet_half_a_day_later() {
        let tokyo = region(9.0, 10.0);
        assert!((CURVE.demand_per_s(&tokyo, 6.0) - 10.0).abs() < 1e-9);
        assert!((CURVE.demand_per_s(&tokyo, 18.0) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn the_busiest_hour_lies_between_the_peaks_of_neighbours() {
        let regions = [region(-5.0, 10.0), region(0.0, 10.0)];
        let hour = CURVE.busiest_h(&regions);
        assert!((17.0..=18.0).contains(&hour), "{hour}");
        let sum: f64 = CURVE.demands_per_s(&regions, hour).iter().sum();
        assert!(sum > 17.0 && sum < 20.0, "{sum}");
    }
}
