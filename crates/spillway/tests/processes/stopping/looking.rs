//! One node without a cluster: its rows in `spillway status`, `replicas` and `regions`.

use std::process::{Command, Output};

use serde_json::Value;
use spillway_emulator::{Emulator, EmulatorConfig};
use spillway_testkit::eventually_blocking;

use super::alone::{Alone, free_port};

const BINARY: &str = env!("CARGO_BIN_EXE_spillway");

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Node with a live replica and one at a port without a listener.
struct Looking {
    node: Alone,
    admin: String,
    _emulator: Emulator,
}

impl Looking {
    async fn started() -> Self {
        let emulator = Emulator::start(EmulatorConfig::default()).await.unwrap();
        let (url, port, dead) = (emulator.addresses()[0], free_port(), free_port());
        let config = format!(
            "[node]\nname = \"solo\"\nregion = \"here\"\n[auth]\nmode = \"none\"\n\
             [[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:{port}\"\n\
             [[replica]]\nname = \"gpu-a\"\nurl = \"http://{url}\"\nmodels = [\"tiny\"]\n\
             [[replica]]\nname = \"gpu-b\"\nurl = \"http://127.0.0.1:{dead}\"\nmodels = [\"tiny\"]\n"
        );
        let mut node = Alone::start(&config);
        assert!(node.serves(), "{}", node.log());
        Self { node, admin: format!("http://127.0.0.1:{port}"), _emulator: emulator }
    }

    fn ask(&self, words: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(words).args(["--admin", &self.admin]).env_remove("COLUMNS");
        command.output().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_alone_has_a_status_replicas_and_a_region() {
    let looking = Looking::started().await;
    let mut status = looking.ask(&["status"]);
    eventually_blocking("the dead replica is known to be so", || {
        status = looking.ask(&["status"]);
        text(&status)
            .starts_with("degraded: serves 1 of 2 replicas (gpu-b is down: connection refused)")
    });
    assert_eq!(status.status.code(), Some(1), "{status:?}");
    assert!(status.stderr.is_empty(), "{status:?}");
    let shown = text(&status);
    assert!(shown.lines().next().unwrap().ends_with("no cluster: this node alone"), "{shown}");
    for told in ["solo in region here", "spillway.toml", ": no authentication", "version   "] {
        assert!(shown.contains(told), "{told}: {shown}");
    }
    let json: Value = serde_json::from_slice(&looking.ask(&["status", "--json"]).stdout).unwrap();
    assert_eq!((&json["health"], &json["log"]), (&"degraded".into(), &Value::Null));
    assert_eq!(json["node"]["listeners"][0]["auth"], "none");

    let replicas = text(&looking.ask(&["replicas"]));
    let line = replicas.lines().find(|line| line.starts_with("gpu-b")).unwrap();
    assert!(
        line.contains("127.0.0.1:") && line.contains("down") && line.contains("tiny"),
        "{line}"
    );
    let regions = text(&looking.ask(&["get", "regions"]));
    let line = regions.lines().nth(1).unwrap();
    assert!(line.starts_with("here    here"), "{regions}");

    let log = looking.node.log();
    let start = log.lines().next().unwrap();
    for told in
        ["starting", "version=", "spillway.toml", "region=\"here\"", "auth=\"none\"", "replicas=2"]
    {
        assert!(start.contains(told), "{told}: {start}");
    }
    assert!(log.contains("WARN") && log.contains("replica is down"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_of_a_log_rotation_does_not_end_a_node() {
    let mut looking = Looking::started().await;
    let id = looking.node.id().to_string();
    assert!(Command::new("kill").args(["-USR1", &id]).status().unwrap().success());
    // A command after the signal is answered after it, too.
    assert!(text(&looking.ask(&["status"])).contains("version"), "{}", looking.node.log());
    looking.node.terminate();
    assert_eq!(looking.node.ended().code(), Some(0), "{}", looking.node.log());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_fault() {
    for words in ["config schema", "config reference", "completions bash", "reference"] {
        let script = format!("{BINARY} {words} | head -n 1; exit ${{PIPESTATUS[0]}}");
        let done = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{words}: {done:?}");
        assert!(!done.stdout.is_empty(), "{words}");
    }
}

#[test]
fn help_has_groups_and_manual_pages_are_written() {
    let help = text(&Command::new(BINARY).arg("--help").output().unwrap());
    for told in ["Run:\n  run ", "Cluster:\n  nodes", "Exit codes: 0 done", "-V, --version"] {
        assert!(help.contains(told), "{told}: {help}");
    }
    let folder = tempfile::tempdir().unwrap();
    let done = Command::new(BINARY).arg("man").arg(folder.path()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    for page in ["spillway.1", "spillway-run.1", "spillway-limits-set.1"] {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.contains(".SH NAME"), "{page}");
    }
    let wrong = Command::new(BINARY).arg("statu").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}
