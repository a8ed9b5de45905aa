//! Program that runs inside a region.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::wan::Namespace;

/// Lines of the log to show for a failure.
const LINES_SHOWN: usize = 15;

/// Program inside a region. Dropping this kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the program. Its output is appended to the file `log`.
    pub(crate) fn start(
        namespace: &Namespace,
        binary: &Path,
        arguments: &[&str],
        log: &Path,
    ) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(log).context("open a log")?;
        let mut command = Command::new(binary);
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::from(File::try_clone(&file)?)).stderr(file);
        let child = namespace.run(|| command.spawn()).context("enter a region")?;
        let child = child.with_context(|| format!("run {}", binary.display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL and waits for the end. The program gets no chance to write anything.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Sends SIGTERM, which asks the program to end.
    pub(crate) fn terminate(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::TERM)?)
    }

    /// Returns the exit status; `None` while the program runs.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Returns the exit status and the last lines of the log; `None` while the program runs.
    pub(crate) fn last_words(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(LINES_SHOWN).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        Some(format!("{status}\n{}", lines.join("\n")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        drop(self.kill());
    }
}
