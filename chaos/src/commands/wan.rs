//! `wan`: runs a network until it is stopped.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use spillway_chaos::wan::{Topology, WanNetwork, config, server};
use tokio::net::UnixListener;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use super::output::say;

pub(crate) fn run(file: &Path, socket: &Path, program: &[OsString]) -> anyhow::Result<ExitCode> {
    let topology = config::read(file).with_context(|| file.display().to_string())?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("runtime")?;
    runtime.block_on(async {
        // Before the network starts: if another one listens here already, there is nothing to undo.
        let listener = server::listen(socket).await?;
        let ended = run_network(topology, listener, socket, program).await;
        // Removal fails only if the file is gone already.
        drop(std::fs::remove_file(socket));
        ended
    })
}

async fn run_network(
    topology: Topology,
    listener: UnixListener,
    socket: &Path,
    program: &[OsString],
) -> anyhow::Result<ExitCode> {
    let mut network = WanNetwork::start(topology)?;
    network.guard(&std::env::current_exe()?).context("start the sweeper")?;
    let serving = server::serve(listener, network.handle());
    say(&format!("ready: {}", socket.display()));
    // Programs that still run inside end with the network, which is dropped here.
    tokio::select! {
        () = serving => Ok(ExitCode::SUCCESS),
        ended = wait_for_signal() => ended,
        ended = run_program(program, socket), if !program.is_empty() => ended,
    }
}

async fn wait_for_signal() -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn run_program(program: &[OsString], socket: &Path) -> anyhow::Result<ExitCode> {
    let (name, arguments) = program.split_first().context("no command")?;
    let status = Command::new(name)
        .args(arguments)
        .env("SPILLWAY_CHAOS_SOCKET", socket)
        .kill_on_drop(true)
        .status()
        .await
        .with_context(|| format!("run {}", name.display()))?;
    // A program that a signal ended has no code.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
