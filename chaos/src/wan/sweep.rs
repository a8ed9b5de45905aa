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

/// How long killed processes may take to be gone.
const KILL_TIME: Duration = Duration::from_secs(5);

/// How often it looks whether they are.
const STEP: Duration = Duration::from_millis(5);

/// A process that outlives this one just long enough to end what runs in its namespaces.
///
/// It holds the read end of a pipe; the kernel closes the other end whatever way this process
/// ends, SIGKILL included. It keeps the namespaces open until then: an identity that the kernel
/// gives to a new namespace could hit the wrong processes.
#[derive(Debug)]
pub(crate) struct Sweeper(Child);

impl Sweeper {
    /// Starts it from the program at `launcher`, which must be `spillway-chaos`.
    pub(crate) fn start(launcher: &Path, namespaces: &[String]) -> io::Result<Self> {
        let mut child = Command::new(launcher)
            .arg("sweep")
            .args(namespaces)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Signals to this process's group must not reach it.
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
        drop(self.0.stdin.take());
        // An error means that it is gone already.
        drop(self.0.wait());
    }
}

/// The sweeper's side: opens `namespaces`, says so, waits for the end of stdin, and sweeps.
///
/// # Errors
///
/// When a namespace cannot be opened, or processes do not end.
pub fn sweep_at_end(namespaces: &[String]) -> io::Result<()> {
    let files: Vec<File> = namespaces.iter().map(File::open).collect::<Result<_, _>>()?;
    let ids = files.iter().map(identity).collect::<Result<BTreeSet<_>, _>>()?;
    let mut stdout = io::stdout();
    stdout.write_all(b"ready\n")?;
    stdout.flush()?;
    // Whatever ends the reading, the other side is gone.
    drop(io::copy(&mut io::stdin(), &mut io::sink()));
    end_all(&ids, Duration::ZERO)
}

/// Ends all processes inside `namespaces`: first politely, unless `grace` is zero, then by SIGKILL.
pub(crate) fn end_all(namespaces: &BTreeSet<NamespaceId>, grace: Duration) -> io::Result<()> {
    if !grace.is_zero() && signal_until_gone(namespaces, Signal::TERM, grace)? {
        return Ok(());
    }
    match signal_until_gone(namespaces, Signal::KILL, KILL_TIME)? {
        true => Ok(()),
        false => Err(io::Error::other("processes inside the network do not end")),
    }
}

/// Signals each process once, and those that appear meanwhile. True when none is left.
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

/// A process id may be given to another process at any time; an open one may not.
fn send(process: Pid, signal: Signal, namespaces: &BTreeSet<NamespaceId>) {
    let Ok(file) = pidfd_open(process, PidfdFlags::empty()) else { return };
    if is_inside(process, namespaces) {
        // An error means that it has ended.
        let _: Result<(), _> = pidfd_send_signal(file, signal);
    }
}

/// A process that has ended, but whose parent has not asked for it yet, is in no namespace.
fn is_inside(process: Pid, namespaces: &BTreeSet<NamespaceId>) -> bool {
    let path = format!("/proc/{}/ns/net", process.as_raw_nonzero());
    File::open(path).and_then(|file| identity(&file)).is_ok_and(|id| namespaces.contains(&id))
}

/// All processes but this one, which is never inside: only threads of it are, for moments.
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
