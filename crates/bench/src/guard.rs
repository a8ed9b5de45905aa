//! Child processes that never outlive this one.
//!
//! Each child runs under a small guard, which is this same program. The guard holds the read end of
//! a pipe and ends the child's process group when the pipe closes. The kernel closes the pipe
//! however this process ends, so an interrupt, a panic and even SIGKILL leave nothing behind.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};

/// Milliseconds that a child gets to end by itself before it is killed.
const TERMINATION_MS: u64 = 2_000;

/// Interval in milliseconds at which an ending guard is checked; the next constant is the number of
/// checks.
const WAIT_STEP_MS: u64 = 10;
const WAIT_STEPS_MAX: u32 = 500;

/// Child process under guard. Dropping this ends the child and waits for its end.
#[derive(Debug)]
pub(crate) struct Guarded {
    name: String,
    guard: Child,
    log: PathBuf,
}

impl Guarded {
    /// Starts `command` (program and arguments). Its stderr goes to the file `log`.
    pub(crate) fn spawn(name: &str, command: &[OsString], log: &Path) -> anyhow::Result<Self> {
        let guard = Command::new(std::env::current_exe()?)
            .arg("guard")
            .arg("--")
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            // An interrupt from the terminal must reach this process alone.
            .process_group(0)
            .spawn()
            .with_context(|| format!("start the guard of {name}"))?;
        Ok(Self { name: name.to_owned(), guard, log: log.to_owned() })
    }

    /// Returns the guard's process id; the child and its descendants are below it.
    pub(crate) fn process(&self) -> u32 {
        self.guard.id()
    }

    /// Reads the first line that the child prints to stdout.
    pub(crate) fn first_line(&mut self) -> anyhow::Result<String> {
        let stdout = self.guard.stdout.as_mut().context("stdout is piped")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        anyhow::ensure!(!line.is_empty(), "{} ended: {}", self.name, self.log_text());
        Ok(line)
    }

    /// Returns an error with the child's stderr if the child has ended.
    pub(crate) fn check_alive(&mut self) -> anyhow::Result<()> {
        let ended = self.guard.try_wait()?;
        anyhow::ensure!(ended.is_none(), "{} ended: {}", self.name, self.log_text());
        Ok(())
    }

    /// Returns the child's stderr so far.
    pub(crate) fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default().trim_end().to_owned()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // Closes the pipe, which makes the guard end the child.
        drop(self.guard.stdin.take());
        for _ in 0..WAIT_STEPS_MAX {
            // An error means that there is nothing left to wait for.
            if !matches!(self.guard.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(WAIT_STEP_MS));
        }
    }
}

/// Runs the guard: runs `command` until it ends or stdin closes.
pub(crate) fn watch(command: &[OsString]) -> anyhow::Result<ExitCode> {
    let (program, arguments) = command.split_first().context("no command to guard")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let group = Pid::from_child(&child);
    thread::spawn(move || end_when_stdin_closes(group));
    let status = child.wait()?;
    // Ends what the child left in its group; an error means that it left nothing.
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
