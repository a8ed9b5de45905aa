//! `spillway-chaos`: wide-area networks on one machine, and trials of Spillway in them.

mod cli;
mod commands;

use std::process::ExitCode;

use clap::Parser as _;

#[expect(clippy::print_stderr, reason = "the only place that tells a person what went wrong")]
fn main() -> ExitCode {
    match commands::run(cli::ChaosCli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("spillway-chaos: {error:#}");
            ExitCode::FAILURE
        }
    }
}
