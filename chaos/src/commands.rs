//! Implementations of the subcommands.

mod control;
mod ctl;
mod exec;
mod load;
mod measure;
mod results;
mod wan;

use std::process::ExitCode;

use crate::cli::{Cli, Command};

pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Wan { config, socket, program } => {
            return wan::run(&config, &socket.socket, &program);
        }
        Command::Exec { socket, region, node, program } => {
            return Err(exec::run(&socket.socket, &region, node, &program));
        }
        Command::Ctl { socket, json, request } => ctl::run(&socket.socket, request, json)?,
        Command::Measure { config, probes, packets_per_s, json } => {
            measure::run(&config, probes, packets_per_s, json)?;
        }
        Command::Control(trials) => return control::run(trials),
        Command::Load(loads) => return load::run(loads),
        Command::Sweep { namespaces } => spillway_chaos::wan::sweep_at_end(&namespaces)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints one line for a person or a program to read.
#[expect(clippy::print_stdout, reason = "it is what was asked for")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}
