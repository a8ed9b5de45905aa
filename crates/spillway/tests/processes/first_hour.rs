//! The first hour of a newcomer: the usual config file, a node that is waited for, and addresses
//! that belong to another program.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use spillway_testkit::eventually_blocking;

/// A node in a folder of its own, ended when it is dropped.
struct Newcomer {
    folder: tempfile::TempDir,
    node: Child,
}

impl Newcomer {
    /// Runs a node by the `spillway.toml` of a new folder, without naming it.
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
            [[replica]]\nname = \"a\"\nurl = \"http://127.0.0.1:9\"\nmodels = [\"m\"]\n";
        std::fs::write(folder.path().join("spillway.toml"), config).unwrap();
        let said = File::create(folder.path().join("ready.json")).unwrap();
        let log = File::create(folder.path().join("node.log")).unwrap();
        let mut command = command(folder.path(), &["run", "--json"]);
        let node = command.stdin(Stdio::null()).stdout(said).stderr(log).spawn().unwrap();
        Self { folder, node }
    }

    /// Returns where clients and operators reach the node.
    fn addresses(&self) -> [SocketAddr; 2] {
        let mut ready = Value::Null;
        eventually_blocking("the node serves", || {
            let text = std::fs::read(self.folder.path().join("ready.json")).unwrap();
            ready = serde_json::from_slice(&text).unwrap_or_default();
            ready.is_object()
        });
        [&ready["listeners"][0], &ready["admin"]].map(|it| it.as_str().unwrap().parse().unwrap())
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        // An error means that the node has ended.
        drop(self.node.kill());
        drop(self.node.wait());
    }
}

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    for name in ["SPILLWAY_ADMIN", "SPILLWAY_TOKEN_FILE", "SPILLWAY_CA", "SPILLWAY_CONFIG"] {
        command.env_remove(name);
    }
    command.current_dir(folder).args(words);
    command
}

fn run(folder: &Path, words: &[&str]) -> Output {
    command(folder, words).output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn run_and_check_take_the_file_of_the_folder_and_health_waits_for_the_node() {
    let newcomer = Newcomer::start();
    let folder = newcomer.folder.path();
    let checked = run(folder, &["config", "check"]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert_eq!(said, "spillway.toml: ok, 1 replica, 1 route\n", "{checked:?}");
    let [clients, admin] = newcomer.addresses();
    let ready = run(folder, &["health", "--url", &admin.to_string(), "--wait", "60", "--json"]);
    assert!(ready.status.success(), "{ready:?}");
    let report: Value = serde_json::from_slice(&ready.stdout).unwrap();
    assert_eq!((&report["ok"], &report["cause"]), (&true.into(), &Value::Null));
    let log = std::fs::read_to_string(folder.join("node.log")).unwrap();
    assert!(log.contains("config=spillway.toml"), "{log}");

    let there = run(folder, &["status", "--admin", &clients.to_string()]);
    let mistaken = format!("{clients} is a listener for clients, not the admin listener of a node");
    assert!(told(&there).contains(&mistaken), "{there:?}");
}

#[test]
fn a_drain_at_a_node_without_a_cluster_names_the_command_that_works_there() {
    let newcomer = Newcomer::start();
    let folder = newcomer.folder.path();
    let admin = newcomer.addresses()[1].to_string();
    for (action, target) in [("drain", "a"), ("drain", "local/a"), ("undrain", "local/a")] {
        let refused = run(folder, &[action, target, "--admin", &admin]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let named = format!("`spillway replicas {action} a`");
        assert!(told(&refused).contains(&named), "{refused:?}");
        let done = run(folder, &["replicas", action, "a", "--admin", &admin]);
        assert!(done.status.success(), "{done:?}");
    }
}

#[test]
fn without_any_config_file_the_usual_places_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for words in [&["run"][..], &["config", "check"]] {
        let refused = run(folder.path(), words);
        assert_eq!(refused.status.code(), Some(64), "{refused:?}");
        let told = told(&refused);
        assert!(
            told.contains("/etc/spillway/spillway.toml") && told.contains("--config"),
            "{told}"
        );
    }
}

#[test]
fn a_node_that_does_not_come_up_ends_the_wait_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing listens at port 1, which only root may open.
    let address = "127.0.0.1:1";
    let begun = Instant::now();
    let waited = run(folder.path(), &["health", "--url", address, "--wait", "1", "--json"]);
    assert_eq!(waited.status.code(), Some(1), "{waited:?}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "it gave up at once");
    let told = told(&waited);
    assert!(told.contains("not ready after 1 s") && told.contains("no node at"), "{told}");
    let report: Value = serde_json::from_slice(&waited.stdout).unwrap();
    assert_eq!(report["ok"], false);
    assert!(report["cause"].as_str().unwrap().contains("no node at"), "{report}");
}

#[test]
fn manual_pages_go_into_a_new_folder() {
    let folder = tempfile::tempdir().unwrap();
    let made = run(folder.path(), &["man", "share/man/man1"]);
    assert!(made.status.success(), "{made:?}");
    assert!(folder.path().join("share/man/man1/spillway.1").exists());
}
