//! Simulator of routing policies: `spillway-sim compare --help`.

mod cli;

use std::process::ExitCode;

use clap::Parser;

use cli::{Arguments, run};

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cli::complain(&error);
            ExitCode::FAILURE
        }
    }
}
