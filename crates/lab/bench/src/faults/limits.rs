//! Limits of a run, and the verdict on each.

use serde::Serialize;

use super::{
    account::Account,
    herd,
    machine::Conditions,
    results::{Results, Run, SlowStart},
    slow,
};

/// Limit with its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Limit {
    /// Text of the limit.
    pub(crate) demand: String,
    /// Verdict.
    pub(crate) verdict: LimitVerdict,
    /// Figures that support the verdict.
    pub(crate) evidence: String,
    /// True if missing the limit fails the command.
    pub(crate) is_must: bool,
}

/// Verdict on a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LimitVerdict {
    /// The limit is kept.
    Holds,
    /// The limit is broken.
    Fails,
    /// No valid measurement.
    Unknown,
}

/// Breaches of one run of a limit that must never be broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Breach {
    /// Number of breaches that nothing excuses.
    certain: usize,
    /// Number of breaches that a busy machine can cause, so they count in valid runs only.
    possible: usize,
}

/// Returns all limits, first those that must hold.
pub(crate) fn limits(results: &Results) -> Vec<Limit> {
    let runs = results.runs();
    let mut limits = vec![
        correctness("0 lost", &runs, lost),
        correctness("0 doubled", &runs, doubled),
        correctness(
            "no error but of requests that were on a broken replica and could not be sent again",
            &runs,
            inexcusable,
        ),
        every_run_carried_out(results),
        every_run_valid(&runs),
    ];
    let aware = results.slow.iter().filter(|row| slow::is_load_aware(&row.policy));
    limits.extend(aware.map(|row| {
        let seen = row.outcome.measured().map(|slow| (slow.ratio, &slow.conditions));
        let what = "p99 with one of four replicas ten times slower";
        speed(format!("{}: {what}", row.policy), slow::RATIO_MAX, seen)
    }));
    let spared = results.herd.iter().filter(|row| row.about == SlowStart::On);
    limits.extend(spared.map(|row| {
        let seen = row.outcome.measured().map(|herd| (herd.ratio, &herd.conditions));
        let what = "p99 after ten cold replicas joined, with slow start";
        speed(format!("{}: {what}", row.policy), herd::RATIO_MAX, seen)
    }));
    limits
}

/// Returns true if no limit that must hold is broken.
pub(crate) fn is_sound(limits: &[Limit]) -> bool {
    limits.iter().all(|limit| !limit.is_must || limit.verdict != LimitVerdict::Fails)
}

/// Returns true if another run could change the verdict: the machine was too busy, and there is no
/// certain breach.
pub(crate) fn is_worth_repeating(run: &dyn Run) -> bool {
    let certain = [lost, doubled, inexcusable].map(|breach| breach(run.account()).certain);
    !run.conditions().spoilt.is_empty() && certain == [0; 3]
}

fn lost(account: &Account) -> Breach {
    // A busy machine can delay a reply past the limit, but not take it away.
    Breach { certain: account.lost - account.late, possible: account.late }
}

fn doubled(account: &Account) -> Breach {
    // However slow the machine, nothing makes it right to finish a request twice.
    Breach { certain: account.doubled, possible: 0 }
}

/// Counts errors as possible breaches: a busy machine causes time-outs on healthy replicas.
fn inexcusable(account: &Account) -> Breach {
    Breach { certain: 0, possible: account.inexcusable }
}

fn correctness(demand: &str, runs: &[(String, &dyn Run)], of: fn(&Account) -> Breach) -> Limit {
    let (mut broken, mut doubtful) = (Vec::new(), Vec::new());
    for (name, run) in runs {
        let Breach { certain, possible } = of(run.account());
        // In a valid run every breach counts; in an invalid one, only those that a busy machine
        // cannot cause.
        if run.conditions().spoilt.is_empty() && certain + possible > 0 {
            broken.push(format!("{name} {}", certain + possible));
        } else if certain > 0 {
            broken.push(format!("{name} {certain}"));
        } else if possible > 0 {
            doubtful.push(format!("{name} {possible}"));
        }
    }
    let sent: usize = runs.iter().map(|(_, run)| run.account().sent).sum();
    let (verdict, mut evidence) = match (runs.len(), broken.is_empty(), doubtful.is_empty()) {
        // No run is no proof: the limit must not hold because nothing was tried.
        (0, _, _) => (LimitVerdict::Unknown, vec!["nothing was run".to_owned()]),
        (_, false, _) => (LimitVerdict::Fails, vec![broken.join(", ")]),
        (_, true, false) => (LimitVerdict::Unknown, Vec::new()),
        (runs, true, true) => {
            (LimitVerdict::Holds, vec![format!("{sent} requests in {runs} runs")])
        }
    };
    if !doubtful.is_empty() {
        evidence.push(format!("in invalid runs, not judged: {}", doubtful.join(", ")));
    }
    let evidence = evidence.join("; ");
    Limit { demand: demand.to_owned(), verdict, evidence, is_must: true }
}

fn every_run_carried_out(results: &Results) -> Limit {
    let broken = results.broken();
    let verdict = if broken.is_empty() { LimitVerdict::Holds } else { LimitVerdict::Fails };
    let demand = "every run could be carried out".to_owned();
    Limit { demand, verdict, evidence: broken.join("; "), is_must: true }
}

/// Returns the limit on invalid runs. An invalid run is no evidence about speed: a gap in the
/// results, and no fault of the gateway.
fn every_run_valid(runs: &[(String, &dyn Run)]) -> Limit {
    let spoilt = runs.iter().filter(|(_, run)| !run.conditions().spoilt.is_empty());
    let invalid: Vec<&str> = spoilt.map(|(name, _)| name.as_str()).collect();
    let verdict = match (runs.is_empty(), invalid.is_empty()) {
        (true, _) => LimitVerdict::Unknown,
        (false, true) => LimitVerdict::Holds,
        (false, false) => LimitVerdict::Fails,
    };
    let demand = "the machine had time for every run".to_owned();
    let count =
        format!("{} of {} runs are invalid: {}", invalid.len(), runs.len(), invalid.join(", "));
    let evidence = if invalid.is_empty() { String::new() } else { count };
    Limit { demand, verdict, evidence, is_must: false }
}

/// Returns a limit on a ratio. A run on a saturated machine gives no verdict.
fn speed(demand: String, max: f64, seen: Option<(Option<f64>, &Conditions)>) -> Limit {
    let demand = format!("{demand} ≤ {max} × before");
    let (verdict, evidence) = match seen {
        None => (LimitVerdict::Unknown, "not measured".to_owned()),
        Some((None, _)) => (LimitVerdict::Unknown, "too few requests".to_owned()),
        Some((Some(ratio), conditions)) if conditions.spoilt.is_empty() => {
            let verdict = if ratio <= max { LimitVerdict::Holds } else { LimitVerdict::Fails };
            (verdict, format!("{ratio:.2}"))
        }
        Some((Some(ratio), _)) => (LimitVerdict::Unknown, format!("{ratio:.2} in an invalid run")),
    };
    Limit { demand, verdict, evidence, is_must: false }
}

#[cfg(test)]
#[path = "limits_test.rs"]
mod tests;
