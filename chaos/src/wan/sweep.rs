//! Ends every process inside given namespaces, so that the namespaces vanish.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::namespace::{NamespaceId, identity};

/// Longest wait until killed processes are gone.
const KILL_TIME: Duration = Duration::from_secs(5);

/// Interval between two looks.
const STEP: Duration = Duration::from_millis(5);

/// Process that outlives this one just long enough to end what runs in its namespaces.
///
/// The sweeper holds the read end of a pipe; the kernel closes the other end however this process
/// ends, SIGKILL included. Until then the sweeper keeps the namespaces open: the kernel could
/// otherwise reuse an identity for a new namespace, and the wrong processes would be killed.
#[derive(Debug)]
pub(crate) struct Sweeper(Child);

impl Sweeper {
    /// Starts the sweeper with the program `launcher`, which must be `spillway-chaos`.
    pub(crate) fn start(launcher: &Path, namespaces: &[String]) -> io::Result<Self> {
        let mut child = Command::new(launcher)
            .arg("sweep")
            .args(namespaces)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A group of its own, so that signals to this process's group do not reach the sweeper.
            .process_group(0)
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("stdout is piped"))?;
        BufReader::new(stdout).read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::Error::other("the sweeper did not start"));
        }
        Ok(Self(child))
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // The end of its stdin makes the sweeper begin, so this comes before the wait.
        drop(self.0.stdin.take());
        // An error means that the sweeper is gone already.
        drop(self.0.wait());
    }
}

/// Runs the sweeper: opens `namespaces`, reports that it is ready, waits for the end of stdin, and
/// ends the processes inside.
///
/// # Errors
///
/// Returns an error if a namespace cannot be opened, or processes do not end.
pub fn sweep_at_end(namespaces: &[String]) -> io::Result<()> {
    let files: Vec<File> = namespaces.iter().map(File::open).collect::<Result<_, _>>()?;
    let ids = files.iter().map(identity).collect::<Result<BTreeSet<_>, _>>()?;
    let mut stdout = io::stdout();
    stdout.write_all(b"ready\n")?;
    stdout.flush()?;
    // The end of stdin and a read error both mean that the other process is gone.
    drop(io::copy(&mut io::stdin(), &mut io::sink()));
    end_all(&ids, Duration::ZERO)
}

/// Ends all processes inside `namespaces`: with SIGTERM and a wait of `grace` unless that is zero,
/// then with SIGKILL.
pub(crate) fn end_all(namespaces: &BTreeSet<NamespaceId>, grace: Duration) -> io::Result<()> {
    if !grace.is_zero() && signal_until_gone(namespaces, Signal::TERM, grace)? {
        return Ok(());
    }
    match signal_until_gone(namespaces, Signal::KILL, KILL_TIME)? {
        true => Ok(()),
        false => Err(io::Error::other("processes inside the network do not end")),
    }
}

/// Signals each process once, including those that appear during the sweep. Returns true if none is
/// left after at most `limit`.
fn signal_until_gone(
    namespaces: &BTreeSet<NamespaceId>,
    signal: Signal,
    limit: Duration,
) -> io::Result<bool> {
    let end = Instant::now() + limit;
    let mut signalled = BTreeSet::new();
    loop {
        let mut is_empty = true;
        for process in processes()? {
            if !is_inside(process, namespaces) {
                continue;
            }
            is_empty = false;
            if signalled.insert(process.as_raw_nonzero()) {
                send(process, signal, namespaces);
            }
        }
        if is_empty || Instant::now() >= end {
            return Ok(is_empty);
        }
        thread::sleep(STEP);
    }
}

/// Sends a signal to a process that is still inside. An open pidfd cannot be given to another
/// process, unlike a process id.
fn send(process: Pid, signal: Signal, namespaces: &BTreeSet<NamespaceId>) {
    let Ok(file) = pidfd_open(process, PidfdFlags::empty()) else { return };
    // Looked at again: the number may have passed to another process before it was opened.
    if is_inside(process, namespaces) {
        // An error means that the process has ended.
        let _: Result<(), _> = pidfd_send_signal(file, signal);
    }
}

/// Returns true if the process is in one of the namespaces. A zombie is in none.
fn is_inside(process: Pid, namespaces: &BTreeSet<NamespaceId>) -> bool {
    let path = format!("/proc/{}/ns/net", process.as_raw_nonzero());
    File::open(path).and_then(|file| identity(&file)).is_ok_and(|id| namespaces.contains(&id))
}

/// Lists all processes but this one, which is never inside: only some of its threads are, for
/// moments.
fn processes() -> io::Result<Vec<Pid>> {
    let own = i32::try_from(std::process::id()).ok();
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if number != own {
            processes.extend(number.and_then(Pid::from_raw));
        }
    }
    Ok(processes)
}
