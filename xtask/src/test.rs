//! `cargo xtask test`: prepares the environment of the tests and runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::command::{self, BackgroundCommand, command, first_line};
use crate::metadata::Metadata;
use crate::report::{CheckOutcome, Report};
use crate::venv::Venv;

/// Beginning of build commands. They name the whole workspace and at least one test because of
/// features: with other ones, cargo would build all crates a second time.
const BUILD: &str = "cargo build --locked --workspace";
/// Regular expression for the begin of an example in a doc comment.
const EXAMPLE: &str = "^[[:space:]]*//[/!].*```";

/// Suites of clients that run again against several nodes behind a load balancer: those about state
/// that a client keeps from request to request, and about faults.
const BALANCED: [&str; 9] = [
    "test_curl.py",
    "test_keys.py",
    "test_openai_chat.py",
    "test_openai_emulator.py",
    "test_openai_emulator_responses.py",
    "test_openai_errors.py",
    "test_openai_models.py",
    "test_openai_responses.py",
    "test_round_robin.py",
];

/// A choice of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Everything below.
    All,
    /// Rust tests and doctests.
    Unit,
    /// Real Python clients and a real model server against the built binary.
    Clients,
    /// What is deployed: packages, Terraform, DNS, announced addresses. Skips what the machine lacks, and says so.
    Deploy,
}

/// Runs the tests of `suite`. Returns true if all passed.
pub(crate) fn run(root: &Path, suite: Suite, json: bool) -> Result<bool> {
    let mut report = Report::default();
    let suites: &[&str] = match suite {
        Suite::All => &["clients", "deploy"],
        Suite::Unit => &[],
        Suite::Clients => &["clients"],
        Suite::Deploy => &["deploy"],
    };
    std::thread::scope(|scope| {
        // Packages come over the network, which the Rust tests leave to them.
        let installing = scope.spawn(|| {
            let packages = suites.iter().map(|suite| packages(root, suite));
            let packages: Vec<Result<CheckOutcome>> = packages.collect();
            // Rust tests wait for a third of their time: enough to build the packages.
            let deployed = matches!(suite, Suite::All).then(|| pack(root)).and_then(Result::ok);
            (packages, deployed)
        });
        if matches!(suite, Suite::All | Suite::Unit) {
            rust_tests(&mut report, root);
        }
        let (packages, deployed) =
            installing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let mut balanced = None;
        for (suite, packages) in suites.iter().zip(packages) {
            let is_ready = python_tests(&mut report, root, suite, deployed.as_deref(), packages);
            if *suite == "clients" && is_ready {
                // Beside the tests of deployment, which wait for most of their time.
                balanced = Some(balanced_tests(root));
            }
        }
        if let Some(balanced) = balanced {
            report.step("clients behind a load balancer", || {
                balanced.and_then(BackgroundCommand::finish).map(|()| CheckOutcome::Passed)
            });
        }
    });
    report.finish(json)
}

/// Runs short trials of real nodes over an emulated network; needs root. Returns true if all held.
pub(crate) fn chaos(root: &Path, json: bool) -> Result<bool> {
    let mut report = Report::default();
    let tools = report.step("tools for trials", || {
        need_tool(root, "cc --version", "gcc")?;
        Ok(CheckOutcome::Passed)
    });
    // The dev profile: tests have built it already, and the trials' bounds leave room for it.
    let built = report.step("build spillway and spillway-chaos", || {
        let line = format!("{BUILD} --bin spillway --bin spillway-chaos --test trial");
        command::run(&mut command(root, &line)).map(|()| CheckOutcome::Passed)
    });
    if tools && built {
        // One after the other, since bounds assume that no other cluster takes the processor.
        report.step("trials", || {
            let line = "cargo test --locked --workspace --test trial -- \
                        --ignored --nocapture --test-threads 1";
            let mut trials = command(root, line);
            trials
                .env("SPILLWAY_BIN", Metadata::load(root)?.target_directory.join("debug/spillway"));
            command::run(&mut trials).map(|()| CheckOutcome::Passed)
        });
    }
    report.finish(json)
}

fn rust_tests(report: &mut Report, root: &Path) {
    report.step("rust tests", || {
        let nextest = first_line(&mut command(root, "cargo nextest --version")).is_some();
        let which = "--locked --workspace --lib --bins --tests --no-fail-fast";
        let line = if nextest {
            // Most tests wait most of the time: for a timer, a lease, an election.
            let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
            format!("cargo nextest run {which} --test-threads {threads}")
        } else {
            eprintln!("note: cargo-nextest is not installed; using cargo test");
            format!("cargo test {which}")
        };
        command::run(&mut command(root, &line)).map(|()| CheckOutcome::Passed)
    });
    report.step("doctests", || doctests(root));
}

/// Runs the examples in doc comments, if any: rustdoc would compile every crate to find none.
fn doctests(root: &Path) -> Result<CheckOutcome> {
    let mut search = command(root, &format!("git grep --untracked --quiet -E {EXAMPLE} -- *.rs"));
    // With 1, git has found nothing. After any other failure, the tests are run to be safe.
    if search.status().is_ok_and(|status| status.code() == Some(1)) {
        return Ok(CheckOutcome::Skipped("no doc comment has an example".to_owned()));
    }
    command::run(&mut command(root, "cargo test --locked --workspace --doc"))?;
    Ok(CheckOutcome::Passed)
}

/// Installs the packages for the suite of the folder `tests/<suite>`, and those of programs that the
/// suite runs, which have environments of their own.
fn packages(root: &Path, suite: &str) -> Result<CheckOutcome> {
    let venv = Venv::new(root.join("tests").join(suite));
    need_tool(root, "curl --version", "curl")?;
    venv.need_python()?;
    let prepared = venv.prepare()?;
    let more = if suite == "clients" { "others.py" } else { "cloud.py" };
    command::run(venv.python().arg(more).current_dir(root.join("tests").join(suite)))?;
    Ok(prepared)
}

/// Makes the packages that tests of deployment look at, whenever nothing else wants the processor.
/// Returns their folder. If this fails, those tests make them, and report why they can't.
fn pack(root: &Path) -> Result<PathBuf> {
    let folder = Metadata::load(root)?.target_directory.join("tested-packages");
    let mut dist = command(root, "nice -n 19");
    dist.arg(std::env::current_exe()?).args(["dist", "--profile", "dev", "--out"]).arg(&folder);
    command::run(&mut dist)?;
    Ok(folder)
}

/// Runs the suite of the folder `tests/<suite>` against the built binary, and the packages in
/// `deployed` if they are there. Returns true if the suite could be run.
fn python_tests(
    report: &mut Report,
    root: &Path,
    suite: &str,
    deployed: Option<&Path>,
    packages: Result<CheckOutcome>,
) -> bool {
    let venv = Venv::new(root.join("tests").join(suite));
    let prepared = report.step(format!("packages for {suite}"), || packages);
    // The dev profile shares its dependencies with the tests above, and these tests compare
    // behaviour, not speed.
    let built = report.step(format!("build spillway for {suite}"), || {
        let line = format!("{BUILD} --bin spillway --test demo");
        command::run(&mut command(root, &line)).map(|()| CheckOutcome::Passed)
    });
    if !prepared || !built {
        return false;
    }
    report.step(suite.to_owned(), || {
        let mut pytest = pytest(root, suite, &venv)?;
        if let Some(deployed) = deployed {
            pytest.env("SPILLWAY_PACKAGES", deployed);
        }
        command::run(&mut pytest).map(|()| CheckOutcome::Passed)
    });
    true
}

/// Starts the suites of clients that run behind a load balancer, in one process: each process has a
/// world of six.
fn balanced_tests(root: &Path) -> Result<BackgroundCommand> {
    let mut pytest = pytest(root, "clients", &Venv::new(root.join("tests").join("clients")))?;
    pytest.env("SPILLWAY_WORLD", "balanced").args(["-n", "0"]).args(BALANCED);
    Ok(command::run_in_background(pytest))
}

/// Returns the command that runs a suite against the built binary.
fn pytest(root: &Path, suite: &str, venv: &Venv) -> Result<Command> {
    let mut pytest = venv.python();
    pytest.args(["-m", "pytest"]).current_dir(root.join("tests").join(suite));
    pytest.env("SPILLWAY_BIN", Metadata::load(root)?.target_directory.join("debug/spillway"));
    Ok(pytest)
}

fn need_tool(root: &Path, line: &str, package: &str) -> Result<()> {
    match first_line(&mut command(root, line)) {
        Some(version) => eprintln!("{version}"),
        None => bail!("{package} is missing: install it (Debian: apt-get install {package})"),
    }
    Ok(())
}
