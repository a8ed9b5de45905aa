//! Command line of the simulator.

mod arguments;
mod batch;
mod capacity;
mod compare;
mod files;
mod one;
mod records;
mod tables;

use std::io::{self, Write};

pub(crate) use arguments::Arguments;
use arguments::Command;

/// Carries out a command.
///
/// # Errors
///
/// Returns an error if a file can't be read or written.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Compare(contest) => compare::run(contest),
        Command::Run(one) => one::run(one),
        Command::Capacity(plan) => capacity::run(plan),
    }
}

/// Writes an error to standard error.
pub(crate) fn complain(error: &anyhow::Error) {
    // If standard error is closed, the message is lost, and nothing more can be done.
    let _unread = writeln!(io::stderr(), "{error:#}");
}
