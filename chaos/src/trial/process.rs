//! A program that runs inside a region.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::wan::Namespace;

/// Lines of its log that a failure shows.
const LINES_SHOWN: usize = 15;

/// A program inside a region. Dropping kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it; what it says is added to the file `log`.
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

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL: it gets no chance to say or write anything.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// SIGTERM: it is asked to end.
    pub(crate) fn terminate(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::TERM)?)
    }

    /// How it ended; `None` while it runs.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// What it said last, if it has ended.
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
        // An error means that it has ended already.
        drop(self.kill());
    }
}
