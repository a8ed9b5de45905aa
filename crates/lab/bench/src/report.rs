//! Report of a comparison: every sample, the medians, and the verdict on the targets.

use std::fmt;

use serde::Serialize;

use crate::{
    peers::Peer,
    scenario::{BenchTarget, CpuUnit, Scenario},
    stats::{median, median_difference, median_ratio},
    tally::{Measurement, Percentiles},
    usage::TreeUsage,
};

/// Subject of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Subject {
    /// No proxy: straight to one backend.
    Direct,
    /// nginx, the base of all ratios.
    Nginx,
    /// Second nginx with the same config: its difference from the first is noise.
    NginxCopy,
    /// Earlier build of Spillway.
    Earlier,
    /// Spillway.
    Spillway,
    /// Spillway with more in its config.
    With,
    /// Proxy or gateway of others.
    Peer(Peer),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.pad("direct"),
            Self::Nginx => f.pad("nginx"),
            Self::NginxCopy => f.pad("nginx (copy)"),
            Self::Earlier => f.pad("earlier"),
            Self::With => f.pad("with it"),
            Self::Peer(peer) => f.pad(peer.title()),
            Self::Spillway => f.pad("spillway"),
        }
    }
}

/// Measurement of one subject in one round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReportSample {
    /// Measurement of the clients.
    pub(crate) measurement: Measurement,
    /// CPU seconds of the proxy's processes inside the window; `None` without a proxy.
    pub(crate) cpu_s: Option<f64>,
    /// Resident memory of the proxy's processes at the end of the window, in MiB.
    pub(crate) resident_mib: Option<f64>,
}

impl ReportSample {
    /// Combines the figures at both ends of the window.
    pub(crate) fn new(
        measurement: Measurement,
        before: Option<TreeUsage>,
        after: Option<TreeUsage>,
    ) -> Self {
        let cpu_s = before.zip(after).map(|(before, after)| after.cpu_s_since(&before));
        Self { measurement, cpu_s, resident_mib: after.map(|usage| usage.resident_mib) }
    }

    /// Returns the CPU seconds per 10,000 requests or 1,000,000 tokens.
    fn cpu_per_unit(&self, unit: CpuUnit) -> Option<f64> {
        let units = match unit {
            CpuUnit::Requests10k => self.measurement.requests as f64 / 1e4,
            CpuUnit::Tokens1M => self.measurement.tokens as f64 / 1e6,
        };
        // A window in which no unit ended has no cost per unit.
        self.cpu_s.filter(|_| units > 0.0).map(|cpu_s| cpu_s / units)
    }
}

/// Medians over the rounds. "Added" means the difference to the direct run of the same round.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Summary {
    /// Requests per second.
    pub(crate) requests_per_s: Option<f64>,
    /// Tokens per second.
    pub(crate) tokens_per_s: Option<f64>,
    /// CPU seconds per unit of the scenario.
    pub(crate) cpu_s_per_unit: Option<f64>,
    /// CPU per unit as a multiple of nginx's, taken round by round.
    pub(crate) cpu_ratio: Option<f64>,
    /// Median latency of requests.
    pub(crate) latency_p50_us: Option<f64>,
    /// p99 of the latency of requests.
    pub(crate) latency_p99_us: Option<f64>,
    /// Added median latency.
    pub(crate) added_p50_us: Option<f64>,
    /// Added p99 of the latency.
    pub(crate) added_p99_us: Option<f64>,
    /// Median time to first token.
    pub(crate) first_token_p50_us: Option<f64>,
    /// Added median time to first token.
    pub(crate) first_token_added_p50_us: Option<f64>,
    /// Added p99 of the time to first token.
    pub(crate) first_token_added_p99_us: Option<f64>,
    /// Median time between two tokens.
    pub(crate) gap_p50_us: Option<f64>,
    /// p99 of the time between two tokens.
    pub(crate) gap_p99_us: Option<f64>,
    /// Resident memory in MiB after the first round and after the last.
    pub(crate) resident_mib: Option<(f64, f64)>,
    /// Failed requests of all rounds.
    pub(crate) errors: u64,
}

/// Results of one subject in one scenario.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SubjectReport {
    /// Subject.
    pub(crate) subject: Subject,
    /// Medians.
    pub(crate) summary: Summary,
    /// True if the scenario's target is met; `None` for other subjects than Spillway, and without a
    /// target.
    pub(crate) is_target_met: Option<bool>,
    /// Resident memory of the proxy's processes in MiB, once it had answered its first request and
    /// was idle; `None` without a proxy.
    pub(crate) start_mib: Option<f64>,
    /// Samples of all rounds.
    pub(crate) samples: Vec<ReportSample>,
}

/// Results of one scenario.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ScenarioReport {
    /// Scenario.
    pub(crate) scenario: Scenario,
    /// Unit of CPU time.
    pub(crate) cpu_unit: CpuUnit,
    /// Target; `None` if the figures only inform.
    pub(crate) target: Option<BenchTarget>,
    /// Results of the subjects, in the order of the table.
    pub(crate) subjects: Vec<SubjectReport>,
}

impl ScenarioReport {
    /// Returns a report without samples.
    pub(crate) fn new(scenario: Scenario, subjects: impl Iterator<Item = Subject>) -> Self {
        let empty = |subject| SubjectReport {
            subject,
            summary: Summary::default(),
            is_target_met: None,
            start_mib: None,
            samples: Vec::new(),
        };
        Self {
            scenario,
            cpu_unit: scenario.cpu_unit(),
            target: scenario.target(),
            subjects: subjects.map(empty).collect(),
        }
    }

    /// Keeps the memory of the subject at `index` at its start.
    pub(crate) fn start(&mut self, index: usize, usage: Option<TreeUsage>) {
        self.subjects[index].start_mib = usage.map(|usage| usage.resident_mib);
    }

    /// Adds a sample of the subject at `index`. Every subject gets one sample in every round.
    pub(crate) fn add(&mut self, index: usize, sample: ReportSample) {
        self.subjects[index].samples.push(sample);
    }

    /// Computes medians and verdicts. Call this after the last sample.
    pub(crate) fn summarize(&mut self) {
        let samples_of = |wanted| {
            let found = self.subjects.iter().find(|report| report.subject == wanted);
            found.map(|report| report.samples.clone()).unwrap_or_default()
        };
        let (nginx, direct) = (samples_of(Subject::Nginx), samples_of(Subject::Direct));
        for report in &mut self.subjects {
            report.summary = summarize(&report.samples, &nginx, &direct, self.cpu_unit);
            // The other subjects are there to compare with, so no target binds them.
            if matches!(report.subject, Subject::Spillway) {
                report.is_target_met =
                    self.target.and_then(|target| target.is_met(&report.summary));
            }
        }
    }
}

impl BenchTarget {
    /// Returns true if the target is met; `None` if the figure is missing.
    fn is_met(self, summary: &Summary) -> Option<bool> {
        match self {
            Self::CpuRatioMax(max) => summary.cpu_ratio.map(|ratio| ratio <= max),
            Self::AddedP50UsMax(max) => summary.added_p50_us.map(|added| added <= max),
        }
    }
}

fn summarize(
    samples: &[ReportSample],
    nginx: &[ReportSample],
    direct: &[ReportSample],
    unit: CpuUnit,
) -> Summary {
    let of = |pick: &dyn Fn(&ReportSample) -> Option<f64>| median(samples.iter().filter_map(pick));
    let added = |pick: &dyn Fn(&ReportSample) -> Option<f64>| {
        median_difference(samples.iter().map(pick), direct.iter().map(pick))
    };
    let latency = |pick: fn(&Percentiles) -> f64| {
        move |sample: &ReportSample| Some(pick(&sample.measurement.latency))
    };
    let first_token = |pick: fn(&Percentiles) -> f64| {
        move |sample: &ReportSample| sample.measurement.first_token.as_ref().map(pick)
    };
    let gap = |pick: fn(&Percentiles) -> f64| {
        move |sample: &ReportSample| sample.measurement.gap.as_ref().map(pick)
    };
    let (p50, p99) = (|at: &Percentiles| at.p50_us, |at: &Percentiles| at.p99_us);
    let cpu = |sample: &ReportSample| sample.cpu_per_unit(unit);
    let resident = |sample: Option<&ReportSample>| sample.and_then(|sample| sample.resident_mib);
    Summary {
        requests_per_s: of(&|sample| Some(sample.measurement.requests_per_s())),
        tokens_per_s: of(&|sample| Some(sample.measurement.tokens_per_s())),
        cpu_s_per_unit: of(&cpu),
        cpu_ratio: median_ratio(samples.iter().map(cpu), nginx.iter().map(cpu)),
        latency_p50_us: of(&latency(p50)),
        latency_p99_us: of(&latency(p99)),
        added_p50_us: added(&latency(p50)),
        added_p99_us: added(&latency(p99)),
        first_token_p50_us: of(&first_token(p50)),
        first_token_added_p50_us: added(&first_token(p50)),
        first_token_added_p99_us: added(&first_token(p99)),
        gap_p50_us: of(&gap(p50)),
        gap_p99_us: of(&gap(p99)),
        resident_mib: resident(samples.first()).zip(resident(samples.last())),
        errors: samples.iter().map(|sample| sample.measurement.errors).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(requests: u64, cpu_s: Option<f64>, p50_us: f64) -> ReportSample {
        let latency = Percentiles { p50_us, p90_us: p50_us, p99_us: p50_us, max_us: p50_us };
        let measurement = Measurement {
            seconds: 2.0,
            requests,
            errors: 1,
            first_error: None,
            tokens: 0,
            latency,
            first_token: None,
            gap: None,
        };
        ReportSample { measurement, cpu_s, resident_mib: cpu_s }
    }

    fn report(scenario: Scenario) -> ScenarioReport {
        let subjects = [Subject::Direct, Subject::Nginx, Subject::Spillway];
        let mut report = ScenarioReport::new(scenario, subjects.into_iter());
        // A calm round, one in which everything took twice as long, and another calm one.
        for (slow, spillway_p50_us) in [(1.0, 500.0), (2.0, 1000.0), (1.0, 540.0)] {
            report.add(0, sample(40_000, None, 200.0 * slow));
            report.add(1, sample(20_000, Some(0.5 * slow), 300.0 * slow));
            report.add(2, sample(10_000, Some(0.3 * slow), spillway_p50_us));
        }
        report.summarize();
        report
    }

    #[test]
    fn ratios_are_per_unit_of_work_and_per_round() {
        let report = report(Scenario::Rps1k);
        let nginx = &report.subjects[1].summary;
        assert_eq!((nginx.cpu_s_per_unit, nginx.cpu_ratio), (Some(0.25), Some(1.0)));
        assert_eq!(nginx.requests_per_s, Some(10_000.0));
        let spillway = &report.subjects[2];
        // 0.3 s for half the requests: 1.2 times as much for each.
        assert!((spillway.summary.cpu_ratio.unwrap() - 1.2).abs() < 1e-9);
        assert_eq!(spillway.summary.errors, 3);
        assert_eq!(spillway.is_target_met, Some(true));
        assert_eq!(report.subjects[0].summary.cpu_ratio, None);
        assert_eq!(report.subjects[1].is_target_met, None);
    }

    #[test]
    fn added_latency_is_over_the_direct_run_of_the_same_round() {
        let report = report(Scenario::Open500);
        let spillway = &report.subjects[2];
        // 300, 600 and 340: the median misses the target of 250.
        assert_eq!(spillway.summary.added_p50_us, Some(340.0));
        assert_eq!(spillway.is_target_met, Some(false));
    }
}
