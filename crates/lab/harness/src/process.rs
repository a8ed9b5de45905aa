//! Programs that a run starts and ends. Only a guarded one ends also if the run is killed.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

/// Lines of the log to show for a failure.
const LINES_SHOWN: usize = 15;
/// Longest wait in milliseconds for a guard that ends its program; the next constant is the pause
/// between two looks.
const GUARD_MS: u64 = 5_000;
const GUARD_STEP_MS: u64 = 10;
/// Pause between two tries of [`Process::ready`].
const READY_PAUSE: Duration = Duration::from_millis(50);

/// Program with its log. Dropping this ends it and waits for the end.
#[derive(Debug)]
pub struct Process {
    name: String,
    kind: ProcessKind,
    child: Child,
    log: PathBuf,
}

/// Kind of the child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessKind {
    /// The program itself, which lives on if this process is killed.
    Program,
    /// The guard, which ends the program below it however this process ends.
    Guard,
}

impl Process {
    /// Starts a program without a guard: it lives on if this process is killed. Its output is
    /// appended to the file `log`.
    ///
    /// # Errors
    /// Returns an error if the program or its log cannot be opened.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(log).context("open a log")?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        Ok(Self::new(name, ProcessKind::Program, child, log))
    }

    /// Starts `command` (program and arguments) under a guard, which ends it however this process
    /// ends: see [`crate::watch`]. Its stderr goes to the file `log`; stdout is for
    /// [`Self::first_line`].
    ///
    /// # Errors
    /// Returns an error if the guard or the log cannot be opened.
    pub fn guarded(name: &str, command: &[OsString], log: &Path) -> anyhow::Result<Self> {
        let guard = Command::new(std::env::current_exe()?)
            .args(["guard", "--"])
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(log)?)
            // An interrupt from the terminal must reach this process alone.
            .process_group(0)
            .spawn();
        let child = guard.with_context(|| format!("start the guard of {name}"))?;
        Ok(Self::new(name, ProcessKind::Guard, child, log))
    }

    fn new(name: &str, kind: ProcessKind, child: Child, log: &Path) -> Self {
        Self { name: name.to_owned(), kind, child, log: log.to_owned() }
    }

    /// Returns the process id; that of the guard if there is one, with the program below it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Reads the first line that a guarded program prints to stdout.
    ///
    /// # Errors
    /// Returns an error if the program ends without one.
    pub fn first_line(&mut self) -> anyhow::Result<String> {
        let stdout = self.child.stdout.as_mut().context("stdout is piped")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        anyhow::ensure!(!line.is_empty(), "{} ended: {}", self.name, self.last_lines());
        Ok(line)
    }

    /// Sends SIGKILL to a program without a guard and waits for the end. The program gets no chance
    /// to write anything.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Sends SIGTERM, which asks a program without a guard to end.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn terminate(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::TERM)?)
    }

    /// Returns the exit status; `None` while the program runs.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Checks that the program runs.
    ///
    /// # Errors
    /// Returns an error with the end of the log if the program has ended.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => anyhow::bail!("{} ended: {status}\n{}", self.name, self.last_lines()),
        }
    }

    /// Waits until `check` succeeds.
    ///
    /// # Errors
    /// Returns an error with the end of the log if the program ends, or `check` still fails after
    /// `limit`.
    pub async fn ready(
        &mut self,
        limit: Duration,
        check: impl AsyncFn() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            self.check_alive()?;
            let Err(error) = check().await else { return Ok(()) };
            if Instant::now() > deadline {
                let text = format!("{} is not ready: {}", self.name, self.last_lines());
                return Err(error.context(text));
            }
            // wait: until the next try
            tokio::time::sleep(READY_PAUSE).await;
        }
    }

    /// Closes the guard's pipe, which makes it end the program, and waits until it has.
    fn release_guard(&mut self) {
        drop(self.child.stdin.take());
        for _ in 0..GUARD_MS / GUARD_STEP_MS {
            // An error means that there is nothing left to wait for.
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(GUARD_STEP_MS));
        }
    }

    /// Returns the last lines of the log.
    #[must_use]
    pub fn last_lines(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        match self.kind {
            // An error means that the program has ended already.
            ProcessKind::Program => drop(self.kill()),
            ProcessKind::Guard => self.release_guard(),
        }
    }
}
