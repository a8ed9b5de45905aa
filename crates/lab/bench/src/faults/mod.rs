//! Effects of faults on requests: every policy against every fault, with emulated replicas.
//!
//! Everything runs as processes of the `spillway` binary, so the same tool measures any build.

mod account;
mod arguments;
mod config;
mod emulators;
mod ending;
mod exchange;
mod fault;
mod gateway;
mod herd;
mod latency;
mod ledger;
mod limits;
mod machine;
mod matrix;
mod mixed;
mod page;
mod plan;
mod results;
mod run;
mod schema;
mod script;
mod share;
mod slow;
mod special;
mod stage;
mod svg;
mod tables;

use std::{
    fs,
    future::Future,
    io::{self, Write as _},
    process::ExitCode,
};

use anyhow::Context as _;
use futures_util::{StreamExt as _, stream};

pub(crate) use self::arguments::FaultsArguments;
use self::{
    arguments::FaultsPart,
    config::PolicyChoice,
    fault::Fault,
    results::{ResultOutcome, ResultRow, Results, Run, SlowStart},
    run::{Bench, Unavailable},
    schema::Features,
};
use crate::origin::Origin;

/// Measures, prints and writes the results. Returns exit code 1 if a limit that must hold is
/// broken.
///
/// # Errors
/// Returns an error if the binary does not print its config schema, an argument does not fit the
/// schema, or a file cannot be written. A run that fails is a result, not an error.
pub(crate) async fn run(arguments: &FaultsArguments) -> anyhow::Result<ExitCode> {
    let features = Features::of(&arguments.spillway)?;
    let health = arguments.health(&features.health)?;
    let bench = Bench {
        spillway: &arguments.spillway,
        features: &features,
        seed: arguments.seed,
        rate_per_s: f64::from(arguments.rate),
        health: &health,
    };
    let policies = choices(arguments, &features)?;
    let mut results = empty(&bench, arguments);
    let session = FaultsSession { arguments, bench, policies };
    for part in arguments.parts()? {
        match part {
            FaultsPart::Matrix => session.matrix(&mut results).await?,
            FaultsPart::Mixed => session.mixed(&mut results).await?,
            FaultsPart::Slow => session.slow(&mut results).await?,
            FaultsPart::Herd => session.herd(&mut results).await?,
        }
    }
    session.publish(&results)?;
    // Judged after the page is written, which is needed most when a limit is broken.
    let is_sound = limits::is_sound(&limits::limits(&results));
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn choices(arguments: &FaultsArguments, features: &Features) -> anyhow::Result<Vec<PolicyChoice>> {
    let folder = tempfile::tempdir()?;
    let names = arguments.policies(&features.policies)?;
    let find =
        |name: &String| PolicyChoice::find(&arguments.spillway, features, name, folder.path());
    names.iter().map(find).collect()
}

fn empty(bench: &Bench<'_>, arguments: &FaultsArguments) -> Results {
    Results {
        origin: Origin::here(&arguments.spillway),
        seed: arguments.seed,
        rate_per_s: bench.rate_per_s,
        seconds: (arguments.seconds, arguments.mixed_seconds),
        jobs: arguments.jobs,
        health: (!bench.features.health.is_empty()).then(|| bench.health.clone()),
        matrix: Vec::new(),
        mixed: Vec::new(),
        slow: Vec::new(),
        herd: Vec::new(),
    }
}

/// Measurement in progress.
struct FaultsSession<'a> {
    arguments: &'a FaultsArguments,
    bench: Bench<'a>,
    policies: Vec<PolicyChoice>,
}

impl FaultsSession<'_> {
    async fn matrix(&self, results: &mut Results) -> anyhow::Result<()> {
        let timeline = &matrix::timeline(self.arguments.seconds);
        let faults = self.arguments.faults()?;
        let cells =
            self.policies.iter().flat_map(|policy| faults.iter().map(move |&f| (policy, f)));
        let row = async |(policy, about): (&PolicyChoice, Fault)| {
            let name = format!("{} × {}", policy.name, about.name());
            let run = || matrix::run(&self.bench, policy, about, timeline);
            ResultRow {
                policy: policy.name.clone(),
                about,
                outcome: self.attempt(&name, run).await,
            }
        };
        self.carry_out(cells.map(row), results, |results| &mut results.matrix).await
    }

    async fn mixed(&self, results: &mut Results) -> anyhow::Result<()> {
        let row = async |policy: &PolicyChoice| {
            let run = || mixed::run(&self.bench, policy, self.arguments.mixed_seconds);
            let outcome = self.attempt(&format!("{} × mixed", policy.name), run).await;
            ResultRow { policy: policy.name.clone(), about: (), outcome }
        };
        self.carry_out(self.policies.iter().map(row), results, |results| &mut results.mixed).await
    }

    async fn slow(&self, results: &mut Results) -> anyhow::Result<()> {
        let row = async |policy: &PolicyChoice| {
            let run = || slow::run(&self.bench, policy);
            let outcome = self.attempt(&format!("{} × slow", policy.name), run).await;
            ResultRow { policy: policy.name.clone(), about: (), outcome }
        };
        self.carry_out(self.policies.iter().map(row), results, |results| &mut results.slow).await
    }

    /// Measures the herd with and without slow start. Only policies that look at load: all others
    /// send cold replicas their share in any case.
    async fn herd(&self, results: &mut Results) -> anyhow::Result<()> {
        let knows_slow_start = self.bench.features.health.contains(herd::SLOW_START);
        let aware = self.policies.iter().filter(|policy| slow::is_load_aware(&policy.name));
        let both = [(SlowStart::Off, 0), (SlowStart::On, herd::SLOW_START_MS)];
        let rows = aware.flat_map(|policy| both.map(|(about, ms)| (policy, about, ms)));
        let row = async |(policy, about, slow_start_ms): (&PolicyChoice, SlowStart, u64)| {
            let name = format!("{} × herd, slow start {slow_start_ms} ms", policy.name);
            let setting = knows_slow_start.then_some(slow_start_ms);
            let run = || herd::run(&self.bench, policy, setting);
            let outcome = match about {
                // Without the setting both runs would be the same, and the second would look like a
                // result.
                SlowStart::On if !knows_slow_start => {
                    ResultOutcome::Unavailable("this binary has no health.slow_start_ms".to_owned())
                }
                SlowStart::On | SlowStart::Off => self.attempt(&name, run).await,
            };
            ResultRow { policy: policy.name.clone(), about, outcome }
        };
        self.carry_out(rows.map(row), results, |results| &mut results.herd).await
    }

    /// Carries out some runs at a time, keeps their rows in order and saves the results so far.
    async fn carry_out<R>(
        &self,
        runs: impl Iterator<Item = impl Future<Output = R>>,
        results: &mut Results,
        part: impl Fn(&mut Results) -> &mut Vec<R>,
    ) -> anyhow::Result<()> {
        let mut rows = std::pin::pin!(stream::iter(runs).buffered(self.arguments.jobs.into()));
        while let Some(row) = rows.next().await {
            part(results).push(row);
            self.save(results)?;
        }
        Ok(())
    }

    /// Runs a measurement, and repeats it while the machine was too busy.
    async fn attempt<T, F>(&self, name: &str, run: impl Fn() -> F) -> ResultOutcome<T>
    where
        T: Run,
        F: Future<Output = anyhow::Result<T>>,
    {
        let mut left = self.arguments.attempts;
        loop {
            left = left.saturating_sub(1);
            match run().await {
                Ok(seen) => {
                    say(name, &in_short(&seen));
                    if left == 0 || !limits::is_worth_repeating(&seen) {
                        return ResultOutcome::Measured(seen);
                    }
                }
                // Missing in this binary: another attempt cannot change that, and it is no failure.
                Err(error) if error.is::<Unavailable>() => {
                    say(name, &format!("n/a: {error}"));
                    return ResultOutcome::Unavailable(error.to_string());
                }
                Err(error) => {
                    say(name, &format!("broken: {error:#}"));
                    return ResultOutcome::Broken(format!("{error:#}"));
                }
            }
        }
    }

    /// Saves the results so far: a whole run takes most of an hour.
    fn save(&self, results: &Results) -> anyhow::Result<()> {
        let Some(file) = &self.arguments.json else { return Ok(()) };
        let text = serde_json::to_string_pretty(results)?;
        fs::write(file, text).with_context(|| format!("write {}", file.display()))
    }

    fn publish(&self, results: &Results) -> anyhow::Result<()> {
        let mut output = io::stdout().lock();
        for section in tables::sections(results) {
            writeln!(output, "{}\n\n{}", section.title, section.grid.text())?;
        }
        for line in page::limit_lines(&limits::limits(results)) {
            writeln!(output, "{line}")?;
        }
        match &self.arguments.markdown {
            Some(file) => page::write(results, file),
            None => Ok(()),
        }
    }
}

fn in_short(run: &dyn Run) -> String {
    let (account, conditions) = (run.account(), run.conditions());
    let mut text = format!(
        "{} sent, {} failed, {} without excuse, {} lost, {} doubled, CPU {:.0} % (own {:.0} %)",
        account.sent,
        account.failed(),
        account.inexcusable,
        account.lost,
        account.doubled,
        conditions.busy_mean * 100.0,
        conditions.own_mean * 100.0,
    );
    if !conditions.spoilt.is_empty() {
        text.push_str(&format!("; INVALID: {}", conditions.spoilt.join(", ")));
    }
    text
}

/// Prints progress, which is optional: a closed stderr must not end the run.
fn say(name: &str, text: &str) {
    drop(writeln!(io::stderr().lock(), "{name}: {text}"));
}
