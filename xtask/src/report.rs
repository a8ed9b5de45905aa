//! Report of steps with their outcome and time, printed as a table at the end.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

/// Steps done so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    steps: Vec<ReportStep>,
}

/// Step that was done or left out.
#[derive(Debug, Serialize)]
struct ReportStep {
    name: Cow<'static, str>,
    seconds: f64,
    #[serde(flatten)]
    outcome: CheckOutcome,
}

/// Outcome of a step, with the reason if it was skipped or failed.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(tag = "outcome", content = "reason", rename_all = "lowercase")]
pub(crate) enum CheckOutcome {
    /// The step found nothing wrong.
    Passed,
    /// The step could not be done on this machine; the run still counts as good.
    Skipped(String),
    /// The step found something wrong.
    Failed(String),
}

impl Report {
    /// Runs `work` under `name` and keeps its outcome. Returns true unless it failed.
    pub(crate) fn step(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        work: impl FnOnce() -> Result<CheckOutcome>,
    ) -> bool {
        let name = name.into();
        eprintln!("\n== {name}");
        let started = Instant::now();
        let outcome = work().unwrap_or_else(|error| CheckOutcome::Failed(format!("{error:#}")));
        let good = !matches!(outcome, CheckOutcome::Failed(_));
        self.push(name, started.elapsed(), outcome);
        good
    }

    /// Prints the table, or JSON. Returns true if no step failed.
    pub(crate) fn finish(&self, json: bool) -> Result<bool> {
        eprint!("\n{}", self.table());
        if json {
            println!("{}", serde_json::to_string_pretty(&self.steps)?);
        }
        Ok(self.good())
    }

    fn push(&mut self, name: impl Into<Cow<'static, str>>, time: Duration, outcome: CheckOutcome) {
        self.steps.push(ReportStep { name: name.into(), seconds: time.as_secs_f64(), outcome });
    }

    fn good(&self) -> bool {
        !self.steps.iter().any(|step| matches!(step.outcome, CheckOutcome::Failed(_)))
    }

    fn table(&self) -> String {
        let mut table = String::new();
        for ReportStep { name, seconds, outcome } in &self.steps {
            let (word, reason) = match outcome {
                CheckOutcome::Passed => ("ok", ""),
                CheckOutcome::Skipped(reason) => ("SKIPPED", reason.as_str()),
                CheckOutcome::Failed(reason) => ("FAILED", reason.as_str()),
            };
            let line = format!("{name:<24} {word:<8} {seconds:>8.1} s  {reason}");
            // Writing to a String cannot fail.
            let _ = writeln!(table, "{}", line.trim_end());
        }
        let total: f64 = self.steps.iter().map(|step| step.seconds).sum();
        let word = if self.good() { "ok" } else { "FAILED" };
        let _ = writeln!(table, "{:<24} {word:<8} {total:>8.1} s", "total");
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_step_is_shown_with_its_reason_and_does_not_fail_the_run() {
        let mut report = Report::default();
        report.push(
            "advisories",
            Duration::from_secs(2),
            CheckOutcome::Skipped("no network".into()),
        );
        assert!(report.good());
        let table = report.table();
        assert!(table.contains("SKIPPED       2.0 s  no network\n"), "{table}");
    }

    #[test]
    fn one_failed_step_fails_the_run_and_the_others_are_still_shown() {
        let mut report = Report::default();
        assert!(!report.step("first", || anyhow::bail!("broken")));
        assert!(report.step("second", || Ok(CheckOutcome::Passed)));
        assert!(!report.good());
        let table = report.table();
        assert!(table.contains("FAILED        0.0 s  broken\n"), "{table}");
        assert!(table.contains("second                   ok "), "{table}");
        assert!(table.contains("total                    FAILED"), "{table}");
    }

    #[test]
    fn json_has_one_object_per_step() {
        let mut report = Report::default();
        report.push("a", Duration::from_millis(1500), CheckOutcome::Passed);
        report.push("b", Duration::ZERO, CheckOutcome::Failed("why".into()));
        assert_eq!(
            serde_json::to_string(&report.steps).unwrap(),
            r#"[{"name":"a","seconds":1.5,"outcome":"passed"},{"name":"b","seconds":0.0,"outcome":"failed","reason":"why"}]"#
        );
    }
}
