//! The project's own tasks: `cargo xtask verify | fix | pages | tidy | test | fuzz | chaos | pgo | dist |
//! book`.
//!
//! Everything CI runs is here, so that a person can run the same thing with the same words.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool reports by printing"
)]

mod book;
mod cli;
mod command;
mod dist;
mod fix;
mod fuzz;
mod metadata;
mod pages;
mod pgo;
mod report;
mod test;
mod tidy;
mod venv;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Task};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.task {
        Task::Verify => verify::run(&root(), cli.json),
        Task::Fix => fix::run(&root(), cli.json),
        Task::Pages => pages::run(&root(), cli.json),
        Task::Tidy => tidy::run(&root(), cli.json),
        Task::Test { suite } => test::run(&root(), suite, cli.json),
        Task::Fuzz { target, seconds } => fuzz::run(&root(), target.as_deref(), seconds, cli.json),
        Task::Chaos => test::chaos(&root(), cli.json),
        Task::Book => book::run(&root(), cli.json),
        Task::Pgo => pgo::run(&root(), cli.json),
        Task::Dist(args) => dist::run(&root(), &args, cli.json),
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

/// Returns the workspace root, even if cargo was called in another folder.
fn root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or_else(|| xtask.clone(), PathBuf::from)
}
