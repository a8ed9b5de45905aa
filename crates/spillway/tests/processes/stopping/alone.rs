//! Nodes without a cluster, as processes on this machine.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use spillway_testkit::PATIENCE;
use tempfile::TempDir;

/// Node without a cluster, as a process.
pub(crate) struct Alone {
    folder: TempDir,
    child: Child,
}

impl Alone {
    pub(crate) fn start(text: &str) -> Self {
        Self::command("spillway.toml", text, &["run", "--config"])
    }

    /// Starts a node with these places for its output.
    pub(crate) fn start_to(text: &str, stdout: Stdio, stderr: Stdio) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("spillway.toml");
        std::fs::write(&path, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
        command.args(["run", "--config"]).arg(&path).stdin(Stdio::null());
        Self { child: command.stdout(stdout).stderr(stderr).spawn().unwrap(), folder }
    }

    /// Writes another config over the one that the node was started with.
    pub(crate) fn reconfigure(&self, text: &str) {
        std::fs::write(self.folder.path().join("spillway.toml"), text).unwrap();
    }

    /// Starts a node in a shell that ran `before`.
    pub(crate) fn start_with(before: &str, text: &str) -> Self {
        let binary = env!("CARGO_BIN_EXE_spillway");
        Self::spawn("spillway.toml", text, |path| {
            let mut command = Command::new("sh");
            let script = format!("{before} && exec \"$0\" run --config \"$1\"");
            command.arg("-c").arg(script).arg(binary).arg(path);
            command
        })
    }

    pub(crate) fn command(file: &str, text: &str, words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
        command.args(words);
        Self::spawn(file, text, |path| {
            if words.contains(&"run") {
                command.arg(path);
            }
            command
        })
    }

    /// Writes `text` to a file, and starts the command that `command` returns for it.
    fn spawn(file: &str, text: &str, command: impl FnOnce(&Path) -> Command) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(file);
        std::fs::write(&path, text).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = command(&path);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Self { child: command.spawn().unwrap(), folder }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        let by = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < by, "it does not end:\n{}", self.log());
            // wait: between two looks
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn terminate(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// Waits until the node serves or has ended, and returns true if it serves.
    pub(crate) fn serves(&mut self) -> bool {
        let by = Instant::now() + PATIENCE;
        loop {
            if self.log().contains("serving") {
                return true;
            }
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(Instant::now() < by, "neither serves nor ends:\n{}", self.log());
            // wait: between two looks
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // An error means that the node has ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
