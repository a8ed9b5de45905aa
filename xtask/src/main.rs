//! The project's own tasks: `cargo xtask verify | fix | tidy | test | fuzz | chaos`.
//!
//! Everything CI runs is here, so that a person can run the same thing with the same words.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool reports by printing"
)]

mod command;
mod fix;
mod fuzz;
mod metadata;
mod report;
mod test;
mod tidy;
mod venv;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::test::Suite;

/// The project's own tasks.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", after_help = EXAMPLES)]
struct Cli {
    /// Prints the result as JSON on stdout; what the steps print goes to stderr.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Checks formatting, lints, docs, dependencies and the rules of `tidy`; writes nothing.
    Verify,
    /// Applies what clippy and rustfmt can repair by themselves.
    Fix,
    /// Checks the rules of this project that no public tool knows.
    Tidy,
    /// Sets up what the tests need and runs them.
    Test {
        /// Which tests; all of them when left out.
        #[arg(value_enum, default_value_t = Suite::All)]
        suite: Suite,
    },
    /// Looks for inputs that break parsers, guided by what code they reach; needs a C++ compiler.
    Fuzz {
        /// Which target; all of them when left out.
        target: Option<String>,
        /// For how long, all targets together.
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
    /// Puts real nodes on trial over an emulated network; needs Linux and root.
    Chaos,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask verify         what must be clean before a change goes in
  cargo xtask fix            repair formatting and simple lints
  cargo xtask tidy --json    findings as JSON, one array
  cargo xtask test           everything: Rust tests, doctests, real clients
  cargo xtask test clients   only the real clients
  cargo xtask fuzz           a minute of guided fuzzing, all targets together
  cargo xtask fuzz snapshot --seconds 600
  cargo xtask chaos          kills, cuts, crashes and slow disks, about six minutes";

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.task {
        Task::Verify => verify::run(&root(), cli.json),
        Task::Fix => fix::run(&root(), cli.json),
        Task::Tidy => tidy::run(&root(), cli.json),
        Task::Test { suite } => test::run(&root(), suite, cli.json),
        Task::Fuzz { target, seconds } => fuzz::run(&root(), target.as_deref(), seconds, cli.json),
        Task::Chaos => test::chaos(&root(), cli.json),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The workspace root, wherever cargo was called from.
fn root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or_else(|| xtask.clone(), PathBuf::from)
}
