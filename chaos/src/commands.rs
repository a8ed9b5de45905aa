//! Implementations of the subcommands.

mod control;
mod ctl;
mod exec;
mod load;
mod measure;
mod output;
mod results;
mod wan;

use std::process::ExitCode;

use crate::cli::{ChaosCli, ChaosCommand};

pub(crate) fn run(cli: ChaosCli) -> anyhow::Result<ExitCode> {
    match cli.command {
        ChaosCommand::Wan { config, socket, program } => {
            return wan::run(&config, &socket.socket, &program);
        }
        ChaosCommand::Exec { socket, region, node, program } => {
            return Err(exec::run(&socket.socket, &region, node, &program));
        }
        ChaosCommand::Ctl { socket, json, request } => ctl::run(&socket.socket, &request, json)?,
        ChaosCommand::Measure { config, probes, packets_per_s, json } => {
            measure::run(&config, probes, packets_per_s, json)?;
        }
        ChaosCommand::Control(trials) => return control::run(trials),
        ChaosCommand::Load(loads) => return load::run(loads),
        ChaosCommand::Sweep { namespaces } => spillway_chaos::wan::sweep_at_end(&namespaces)?,
    }
    Ok(ExitCode::SUCCESS)
}
