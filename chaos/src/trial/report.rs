//! Report of a trial: figures and checks.

use serde::Serialize;
use spillway_harness::{Grid, quantile};

/// Results of a trial.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TrialReport {
    /// Measured quantities.
    pub figures: Vec<Figure>,
    /// Properties that must hold.
    pub checks: Vec<ReportCheck>,
}

/// Quantity, measured once or more in each trial.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name of the quantity.
    pub what: String,
    /// Unit, for example `ms`.
    pub unit: &'static str,
    /// Value that 95 of 100 measurements must not exceed; with `is_rate`, that they must reach.
    /// `None` if the figure only informs.
    pub aim: Option<f64>,
    /// True if more is better.
    pub is_rate: bool,
    /// Measured values.
    pub values: Vec<f64>,
}

/// Property that must always hold.
#[derive(Clone, Debug, Serialize)]
pub struct ReportCheck {
    /// Name of the property.
    pub what: String,
    /// Number of times the property was broken.
    pub wrong: u64,
    /// Number of times the property was checked.
    pub of: u64,
}

impl TrialReport {
    /// Returns true if every aim was reached and every check holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.figures.iter().all(Figure::holds) && self.checks.iter().all(ReportCheck::holds)
    }

    pub(crate) fn figure(
        &mut self,
        what: impl Into<String>,
        aim_ms: Option<f64>,
        values: Vec<f64>,
    ) {
        self.quantity(what, "ms", aim_ms, values);
    }

    /// Adds a quantity of which more is better.
    pub(crate) fn rate(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        aim: Option<f64>,
        values: Vec<f64>,
    ) {
        self.figures.push(Figure { what: what.into(), unit, aim, is_rate: true, values });
    }

    /// Adds a quantity of which less is better.
    pub(crate) fn quantity(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        aim: Option<f64>,
        values: Vec<f64>,
    ) {
        self.figures.push(Figure { what: what.into(), unit, aim, is_rate: false, values });
    }

    pub(crate) fn check(&mut self, what: impl Into<String>, wrong: usize, of: usize) {
        let (wrong, of) = (wrong as u64, of as u64);
        self.checks.push(ReportCheck { what: what.into(), wrong, of });
    }

    /// Formats the report as Markdown tables.
    #[must_use]
    pub fn table(&self) -> String {
        let mut figures = Grid::new(["measured", "aim", "p50", "p95", "worst", "trials"]);
        self.figures.iter().for_each(|figure| figures.push(figure.row()));
        let mut checks = Grid::new(["must hold", "broken", "of"]);
        for ReportCheck { what, wrong, of } in &self.checks {
            checks.push(vec![what.clone(), wrong.to_string(), of.to_string()]);
        }
        let tables = [figures, checks].into_iter().filter(|table| !table.is_empty());
        tables.map(|table| table.markdown()).collect::<Vec<_>>().join("\n")
    }
}

impl Figure {
    /// Returns the value that a `share` of the measurements are not worse than; NaN without
    /// measurements. NaN counts as worse than all numbers.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        // The smaller a rate, the worse.
        let sign = if self.is_rate { -1.0 } else { 1.0 };
        let found = quantile(self.values.iter().map(|value| sign * value), share);
        found.map_or(f64::NAN, |value| sign * value)
    }

    fn holds(&self) -> bool {
        let measured = self.quantile(0.95);
        match self.aim {
            None => true,
            // A comparison with NaN is false, so NaN misses every aim.
            Some(aim) if self.is_rate => measured >= aim,
            Some(aim) => measured <= aim,
        }
    }

    fn row(&self) -> Vec<String> {
        let Self { what, unit, aim, is_rate, values } = self;
        let sign = if *is_rate { "≥" } else { "≤" };
        let aim = aim.map(|aim| format!("{sign} {aim} {unit}")).unwrap_or_default();
        let [p50, p95, worst] = [0.5, 0.95, 1.0].map(|share| self.quantile(share));
        let mark = if self.holds() { "" } else { " **missed**" };
        vec![
            what.clone(),
            aim,
            format!("{p50:.0} {unit}"),
            format!("{p95:.0} {unit}{mark}"),
            format!("{worst:.0}"),
            values.len().to_string(),
        ]
    }
}

impl ReportCheck {
    /// Returns true if the property was checked at least once and always held.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.wrong == 0 && self.of > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(is_rate: bool, values: Vec<f64>) -> Figure {
        Figure { what: "it".to_owned(), unit: "ms", aim: Some(19.0), is_rate, values }
    }

    #[test]
    fn the_aim_is_for_95_of_100_trials() {
        let trials: Vec<f64> = (1..=20).map(f64::from).collect();
        assert!(figure(false, trials.clone()).holds());
        assert!(!figure(false, trials.iter().map(|ms| ms + 0.5).collect()).holds());
        let rates: Vec<f64> = trials.iter().map(|rate| rate + 17.0).collect();
        assert!((figure(true, rates.clone()).quantile(0.95) - 19.0).abs() < 1e-9);
        assert!(figure(true, rates).holds());
        assert!(!figure(true, trials).holds());
    }

    #[test]
    fn a_share_between_two_trials_is_the_worse_one() {
        let trials: Vec<f64> = (1..=10).map(f64::from).collect();
        assert!((figure(false, trials.clone()).quantile(0.95) - 10.0).abs() < 1e-9);
        assert!((figure(true, trials).quantile(0.95) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_trial_that_measured_nothing_is_the_worst() {
        for is_rate in [false, true] {
            for nothing in [f64::NAN, -f64::NAN] {
                let figure = figure(is_rate, vec![19.0, nothing, 19.0]);
                assert!(figure.quantile(0.95).is_nan() && !figure.holds());
                assert!((figure.quantile(0.5) - 19.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn nothing_measured_is_nothing_shown() {
        assert!(!figure(false, Vec::new()).holds());
        assert!(!figure(true, Vec::new()).holds());
        let mut report = TrialReport::default();
        report.check("all is well", 0, 0);
        assert!(!report.holds());
        report.checks[0].of = 1;
        assert!(report.holds());
    }
}
