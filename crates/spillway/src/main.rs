//! The `spillway` command: an inference gateway node, its config checks, a demo and an emulator.

mod admin_stream;
mod certs;
mod check;
mod cli;
mod cluster;
mod demo;
mod emulate;
mod keys;
mod output;
mod replicas;
mod run;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command, ConfigCommand, KeysCommand};
use spillway_telemetry::logs;

/// See the dependency's reason in the workspace manifest.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What sysexits.h calls EX_USAGE: the config is wrong, and trying again won't help.
const EXIT_CONFIG: u8 = 64;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let format = if cli.log_json { logs::Format::Json } else { logs::Format::Text };
    if let Err(error) = logs::install(cli.log(), format) {
        output::error(&error.into());
        return ExitCode::from(EXIT_CONFIG);
    }
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Emulate(args) => emulate::run(&args),
        Command::Replicas(args) => replicas::run(&args),
        Command::Cluster(command) => cluster::run(&command),
        Command::Trie(args) => cluster::trie(&args),
        Command::Explain(args) => cluster::explain(&args),
        Command::Certs { command } => certs::run(&command),
        Command::Keys { command: KeysCommand::Make(args) } => keys::make(&args),
        Command::Keys { command: KeysCommand::Cluster(command) } => cluster::keys(&command),
        Command::Config { command: ConfigCommand::Check(args) } => check::check(&args),
        Command::Config { command: ConfigCommand::Schema } => check::schema(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            let is_config = error.is::<spillway_node::ConfigError>();
            ExitCode::from(if is_config { EXIT_CONFIG } else { 1 })
        }
    }
}
