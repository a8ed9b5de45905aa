//! Program `spillway-chaos`: a network, programs inside, and the state left afterwards.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use spillway_chaos::wan::{ControlAnswer, NodeReport};
use tempfile::TempDir;

use super::support::{is_root, wait_until};

const CONFIG: &str = r#"
    every_link = { rtt_ms = 1 }
    [[region]]
    name = "a"
    subnet = "10.77.1.0/24"
    [[region]]
    name = "b"
    subnet = "192.168.0.0/24"
    nat.public = "203.0.113.1"
"#;

/// Network that the program runs; killed at the end.
struct Wan {
    folder: TempDir,
    process: Child,
}

impl Drop for Wan {
    fn drop(&mut self) {
        // The program may have ended already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Wan {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("wan.toml"), CONFIG).unwrap();
        let socket = folder.path().join("socket");
        let process = program()
            .arg("wan")
            .arg("--config")
            .arg(folder.path().join("wan.toml"))
            .arg("--socket")
            .arg(&socket)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut wan = Self { folder, process };
        let line = first_line(wan.process.stdout.take().unwrap()).0;
        assert_eq!(line, format!("ready: {}\n", socket.display()));
        wan
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        program().arg("ctl").args(arguments).arg("--socket").arg(self.socket()).output().unwrap()
    }

    fn exec(&self, region: &str, command: &[&str]) -> Child {
        let mut program = program();
        program.args(["exec", "--region", region, "--socket"]).arg(self.socket()).arg("--");
        program.args(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn nodes(&self) -> Vec<NodeReport> {
        let output = self.ctl(&["nodes", "--json"]);
        match serde_json::from_slice(&output.stdout).unwrap() {
            ControlAnswer::Nodes(nodes) => nodes,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the kernel's identities of the namespaces.
    fn namespaces(&self) -> Vec<u64> {
        self.nodes().iter().map(|node| fs::metadata(&node.namespace).unwrap().ino()).collect()
    }
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_spillway-chaos"))
}

fn first_line(stdout: ChildStdout) -> (String, BufReader<ChildStdout>) {
    let mut reader = BufReader::new(stdout);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    (line, reader)
}

/// Returns true if a process or an open file still holds one of `namespaces`.
fn is_held(namespaces: &[u64]) -> bool {
    let links: Vec<String> = namespaces.iter().map(|number| format!("net:[{number}]")).collect();
    let leads_there = |path: &Path| {
        fs::read_link(path).is_ok_and(|target| links.iter().any(|link| *target == **link))
    };
    fs::read_dir("/proc").unwrap().flatten().any(|process| {
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        leads_there(&process.path().join("ns/net"))
            || files.map(|f| f.path()).any(|f| leads_there(&f))
    })
}

/// Command line of a shell that starts a process of its own and then prints a line.
const WITH_CHILD: [&str; 3] = ["sh", "-c", "sleep 1000 & echo started; wait"];

#[test]
fn nothing_is_left_after_the_network_is_killed() {
    if !is_root() {
        return;
    }
    let mut wan = Wan::start();
    let namespaces = wan.namespaces();
    assert_eq!(namespaces.len(), 2);
    let mut inside = wan.exec("a", &WITH_CHILD);
    let (line, mut rest) = first_line(inside.stdout.take().unwrap());
    assert_eq!(line, "started\n");
    assert!(is_held(&namespaces));
    wan.process.kill().unwrap();
    assert!(!inside.wait().unwrap().success());
    // The pipe ends only after the shell's child has ended, too.
    rest.read_to_string(&mut String::new()).unwrap();
    wait_until("the namespaces vanish", || !is_held(&namespaces));
}

#[test]
fn stopping_ends_what_runs_inside_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let mut wan = Wan::start();
    let namespaces = wan.namespaces();
    let inside =
        wan.exec("b", &["sh", "-c", "trap 'echo bye; exit 3' TERM; echo on; sleep 1000 & wait"]);
    let mut inside = inside;
    let (_, mut rest) = first_line(inside.stdout.take().unwrap());
    assert_eq!(wan.ctl(&["stop"]).stdout, b"done\n");
    assert_eq!(inside.wait().unwrap().code(), Some(3), "it was asked to end, not killed");
    let mut last = String::new();
    rest.read_to_string(&mut last).unwrap();
    assert_eq!(last, "bye\n");
    assert!(wan.process.wait().unwrap().success());
    assert!(!wan.socket().exists());
    wait_until("the namespaces vanish", || !is_held(&namespaces));
}

#[test]
fn a_command_inside_is_the_same_process_and_knows_its_address() {
    if !is_root() {
        return;
    }
    let wan = Wan::start();
    let tell = "echo $$ $CHAOS_REGION $CHAOS_NODE $CHAOS_ADDRESS $CHAOS_PUBLIC_ADDRESS; \
                grep -c wan0 /proc/net/dev";
    let inside = wan.exec("b", &["sh", "-c", tell]);
    let process = inside.id();
    let output = inside.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, format!("{process} b 1 192.168.0.1 203.0.113.1\n1\n"));
}

#[test]
fn a_command_inside_dies_with_whoever_started_it() {
    if !is_root() {
        return;
    }
    let wan = Wan::start();
    let script = format!(
        "{} exec --socket {} --region a -- sh -c 'echo $$; sleep 1000' & wait",
        env!("CARGO_BIN_EXE_spillway-chaos"),
        wan.socket().display(),
    );
    let mut starter =
        Command::new("sh").arg("-c").arg(script).stdout(Stdio::piped()).spawn().unwrap();
    let (inside, _rest) = first_line(starter.stdout.take().unwrap());
    let path = PathBuf::from(format!("/proc/{}", inside.trim()));
    assert!(path.exists());
    starter.kill().unwrap();
    starter.wait().unwrap();
    wait_until("the command inside is killed", || !path.exists());
}

#[test]
fn the_network_lasts_as_long_as_its_command_and_ends_with_its_code() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("wan.toml");
    fs::write(&config, CONFIG).unwrap();
    let chaos = env!("CARGO_BIN_EXE_spillway-chaos");
    let script = format!("{chaos} ctl cut a b --one-way && {chaos} ctl stats && exit 7");
    let output = program()
        .args(["wan", "--socket"])
        .arg(folder.path().join("socket"))
        .arg("--config")
        .arg(config)
        .args(["--", "sh", "-c", &script])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(text.contains("a -> b (0.5 ms CUT)") && text.contains("b -> a (0.5 ms)"), "{text}");
}

#[test]
fn what_cannot_be_done_is_said_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = folder.path().join("nobody");
    let output = program().args(["ctl", "stats", "--socket"]).arg(nobody).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(text.contains("start one with `spillway-chaos wan`"), "{text}");
    let help = program().args(["ctl", "--help"]).output().unwrap();
    assert!(String::from_utf8(help.stdout).unwrap().contains("Example:"));
    if !is_root() {
        return;
    }
    let wan = Wan::start();
    let output = wan.ctl(&["cut", "a", "nowhere"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text, "spillway-chaos: there is no region nowhere; there are: a, b\n");
    let second = program()
        .args(["wan", "--config"])
        .arg(wan.folder.path().join("wan.toml"))
        .arg("--socket")
        .arg(wan.socket())
        .output()
        .unwrap();
    let text = String::from_utf8(second.stderr).unwrap();
    assert!(text.contains("another network listens"), "{text}");
    assert_eq!(wan.ctl(&["reset-stats", "--json"]).stdout, b"\"done\"\n");
}
