//! Guard of a program that must not outlive the process which started it.
//!
//! The guard is a small process of the tool's own program. It holds the read end of a pipe and ends the child's
//! process group when the pipe closes. The kernel closes the pipe however the starting process ends, so an
//! interrupt, a panic and even SIGKILL leave nothing behind.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};

/// Milliseconds that a child gets to end by itself before it is killed.
const TERMINATION_MS: u64 = 2_000;

/// Runs `command` until it ends or stdin closes, for the subcommand `guard` of a tool.
///
/// # Errors
/// Returns an error if the command cannot be started.
pub fn watch(command: &[OsString]) -> anyhow::Result<ExitCode> {
    let (program, arguments) = command.split_first().context("no command to guard")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        // A group of its own, so that all that the command starts can be ended with it.
        .process_group(0)
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let group = Pid::from_child(&child);
    thread::spawn(move || end_when_stdin_closes(group));
    let status = child.wait()?;
    // Ends the remaining processes of the child's group; an error means that there were none.
    let _: Result<(), _> = kill_process_group(group, Signal::KILL);
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn end_when_stdin_closes(group: Pid) {
    let mut ignored = [0; 64];
    let mut stdin = std::io::stdin().lock();
    // Only the end of the pipe counts.
    while matches!(stdin.read(&mut ignored), Ok(length) if length > 0) {}
    let _: Result<(), _> = kill_process_group(group, Signal::TERM);
    thread::sleep(Duration::from_millis(TERMINATION_MS));
    let _: Result<(), _> = kill_process_group(group, Signal::KILL);
}
