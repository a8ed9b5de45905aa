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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    /// Real memory of this process in MiB.
    fn resident_mib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }

    #[test]
    fn memory_that_is_free_is_returned_though_nobody_allocates() {
        let before = resident_mib();
        let (freed, was_freed) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let worker = thread::spawn(move || {
            let held: Vec<_> = (0..256).map(|_| vec![1_u8; 1 << 20]).collect();
            drop(std::hint::black_box(held));
            freed.send(()).unwrap();
            // A thread that ends would give it back by itself.
            let _: Result<(), _> = ended.recv();
        });
        was_freed.recv().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            spillway_node::reclaim_memory().unwrap().join().unwrap();
            let grown = resident_mib().saturating_sub(before);
            if grown < 64 {
                break;
            }
            assert!(Instant::now() < deadline, "{grown} MiB are kept");
            // wait: until the memory was free for as long as the allocator keeps it
            thread::sleep(Duration::from_millis(100));
        }
        drop(end);
        worker.join().unwrap();
    }
}
