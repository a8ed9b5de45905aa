//! The `spillway` command: an inference gateway node, its config checks, a demo and an emulator.

mod access_log_page;
mod admin_stream;
#[cfg(test)]
mod allocator_test;
mod anycast;
mod certs;
mod check;
mod cli;
mod cluster;
mod completion;
mod config_file;
mod connect;
mod demo;
mod diagnostics;
mod emulate;
mod errors_page;
mod exit_code;
mod full_screen;
mod geo;
mod groups;
mod health;
mod help;
mod keys;
mod output;
mod removed;
mod replica_table;
mod replicas;
mod run;
mod screen;
mod service;
mod variables;

use std::process::ExitCode;

use spillway_config::ConfigErrors;
use spillway_telemetry::logs;

use cli::{Cli, CliCommand, ConfigCommand};

/// Global allocator; the workspace manifest has the reason for this one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = help::parse();
    if let Err(error) = install_log(&cli) {
        output::error(&error);
        return ExitCode::from(exit_code::CONFIG);
    }
    let result = match cli.command {
        CliCommand::Run(args) => run::run(&args),
        CliCommand::Demo(args) => demo::run(&args),
        CliCommand::Anycast(args) => anycast::run(&args),
        CliCommand::Emulate(args) => emulate::run(&args),
        CliCommand::Health(args) => health::run(&args),
        CliCommand::Replicas(args) => replicas::run(&args),
        CliCommand::Cluster(command) => cluster::run(&command),
        CliCommand::Trie(args) => cluster::trie(&args),
        CliCommand::Geo(args) => geo::run(&args),
        CliCommand::Explain(args) => cluster::explain(&args),
        CliCommand::Tail(args) => cluster::tail(&args),
        CliCommand::Certs { command } => certs::run(&command),
        CliCommand::Keys { command } => keys::run(&command),
        CliCommand::Config { command: ConfigCommand::Check(args) } => check::check(&args),
        CliCommand::Config { command: ConfigCommand::Schema } => check::schema(),
        CliCommand::Config { command: ConfigCommand::Reference } => check::reference(),
        CliCommand::Completions(args) => help::completions(&args),
        CliCommand::Man(args) => help::man(&args),
        CliCommand::Reference(args) => help::reference(args.page),
    };
    logs::flush();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_unread(&error) => ExitCode::SUCCESS,
        Err(error) => {
            match error.downcast_ref::<ConfigErrors>() {
                Some(errors) if cli.log_json => diagnostics::log(errors),
                Some(errors) => diagnostics::show(errors),
                None => output::error(&error),
            }
            exit_code::of(&error)
        }
    }
}

fn install_log(cli: &Cli) -> anyhow::Result<()> {
    let format = if cli.log_json { logs::Format::Json } else { logs::Format::Text };
    let file = match &cli.command {
        CliCommand::Demo(args) => demo::log_file(args)?,
        _ => None,
    };
    match file {
        Some(file) => logs::install_in(file, cli.log(), format)?,
        None => logs::install(cli.log(), format)?,
    }
    Ok(())
}
