//! What faults do to requests: every policy against every fault, against emulated replicas.
//!
//! Everything runs as processes of the `spillway` binary, so the same tool measures any build.

mod account;
mod arguments;
mod config;
mod control;
mod emulators;
mod ending;
mod exchange;
mod fault;
mod gateway;
mod grid;
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

pub(crate) use self::arguments::FaultsArguments;
use self::{
    arguments::Part,
    config::PolicyChoice,
    machine::Origin,
    results::{Outcome, Results, Row, Run, SlowStart},
    run::{Bench, Unavailable},
    schema::Features,
};

/// Measures, prints and writes.
///
/// Ends with 1 if a limit that must hold does not.
///
/// # Errors
/// A binary that can't be asked for its config schema, arguments that don't fit it, or files that
/// can't be written. A run that goes wrong is a result.
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
    let results = empty(&bench, arguments);
    let mut session = Session { arguments, bench, policies, results };
    for part in arguments.parts()? {
        match part {
            Part::Matrix => session.matrix().await?,
            Part::Mixed => session.mixed().await?,
            Part::Slow => session.slow().await?,
            Part::Herd => session.herd().await?,
        }
    }
    session.publish()?;
    let is_sound = limits::is_sound(&limits::limits(&session.results));
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
        health: (!bench.features.health.is_empty()).then(|| bench.health.clone()),
        matrix: Vec::new(),
        mixed: Vec::new(),
        slow: Vec::new(),
        herd: Vec::new(),
    }
}

/// What is being measured, and what was found so far.
struct Session<'a> {
    arguments: &'a FaultsArguments,
    bench: Bench<'a>,
    policies: Vec<PolicyChoice>,
    results: Results,
}

impl Session<'_> {
    async fn matrix(&mut self) -> anyhow::Result<()> {
        let timeline = matrix::timeline(self.arguments.seconds);
        for policy in &self.policies {
            for about in self.arguments.faults()? {
                let name = format!("{} × {}", policy.name, about.name());
                let run = || matrix::run(&self.bench, policy, about, &timeline);
                let outcome = self.attempt(&name, run).await;
                self.results.matrix.push(Row { policy: policy.name.clone(), about, outcome });
                self.save()?;
            }
        }
        Ok(())
    }

    async fn mixed(&mut self) -> anyhow::Result<()> {
        for policy in &self.policies {
            let name = format!("{} × mixed", policy.name);
            let run = || mixed::run(&self.bench, policy, self.arguments.mixed_seconds);
            let outcome = self.attempt(&name, run).await;
            self.results.mixed.push(Row { policy: policy.name.clone(), about: (), outcome });
            self.save()?;
        }
        Ok(())
    }

    async fn slow(&mut self) -> anyhow::Result<()> {
        for policy in &self.policies {
            let run = || slow::run(&self.bench, policy);
            let outcome = self.attempt(&format!("{} × slow", policy.name), run).await;
            self.results.slow.push(Row { policy: policy.name.clone(), about: (), outcome });
            self.save()?;
        }
        Ok(())
    }

    /// With slow start and without; only policies that look at load, since others send the cold
    /// ones their share whatever happens.
    async fn herd(&mut self) -> anyhow::Result<()> {
        let knows_slow_start = self.bench.features.health.contains(herd::SLOW_START);
        for policy in self.policies.iter().filter(|policy| slow::is_load_aware(&policy.name)) {
            for (about, slow_start_ms) in
                [(SlowStart::Off, 0), (SlowStart::On, herd::SLOW_START_MS)]
            {
                let name = format!("{} × herd, slow start {slow_start_ms} ms", policy.name);
                let setting = knows_slow_start.then_some(slow_start_ms);
                let run = || herd::run(&self.bench, policy, setting);
                let outcome = match about {
                    SlowStart::On if !knows_slow_start => {
                        Outcome::Unavailable("this binary has no health.slow_start_ms".to_owned())
                    }
                    SlowStart::On | SlowStart::Off => self.attempt(&name, run).await,
                };
                self.results.herd.push(Row { policy: policy.name.clone(), about, outcome });
                self.save()?;
            }
        }
        Ok(())
    }

    /// Runs one, and again while the machine had no time for it.
    async fn attempt<T, F>(&self, name: &str, run: impl Fn() -> F) -> Outcome<T>
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
                        return Outcome::Measured(seen);
                    }
                }
                Err(error) if error.is::<Unavailable>() => {
                    say(name, &format!("n/a: {error}"));
                    return Outcome::Unavailable(error.to_string());
                }
                Err(error) => {
                    say(name, &format!("broken: {error:#}"));
                    return Outcome::Broken(format!("{error:#}"));
                }
            }
        }
    }

    /// Writes what is there so far: all of it takes the better part of an hour.
    fn save(&self) -> anyhow::Result<()> {
        let Some(file) = &self.arguments.json else { return Ok(()) };
        let text = serde_json::to_string_pretty(&self.results)?;
        fs::write(file, text).with_context(|| format!("write {}", file.display()))
    }

    fn publish(&self) -> anyhow::Result<()> {
        let mut output = io::stdout().lock();
        for section in tables::sections(&self.results) {
            writeln!(output, "{}\n\n{}", section.title, section.grid.text())?;
        }
        for line in page::limit_lines(&limits::limits(&self.results)) {
            writeln!(output, "{line}")?;
        }
        match &self.arguments.markdown {
            Some(file) => page::write(&self.results, file),
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

/// Progress is a courtesy: a closed stderr must not end the run.
fn say(name: &str, text: &str) {
    drop(writeln!(io::stderr().lock(), "{name}: {text}"));
}
