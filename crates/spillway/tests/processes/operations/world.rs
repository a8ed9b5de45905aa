//! Cluster of three regions, with one node and one replica each, and commands to it.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

use spillway_emulator::{Emulator, EmulatorConfig};
use spillway_testkit::PATIENCE;

use crate::caller::chat;
use crate::machines::{Machines, admin, data, spillway};

pub(crate) const NODES: usize = 3;

pub(crate) struct World {
    pub(crate) machines: Machines,
    _emulators: Vec<Emulator>,
}

impl World {
    /// Starts all nodes as one cluster.
    pub(crate) async fn started() -> Self {
        let mut emulators = Vec::new();
        for _ in 0..NODES {
            let config = EmulatorConfig { time_scale: 0.1, ..EmulatorConfig::default() };
            emulators.push(Emulator::start(config).await.unwrap());
        }
        let replica = |node: usize| {
            let address = emulators[node].addresses()[0];
            format!("[[replica]]\nname = \"a\"\nurl = \"http://{address}\"\nmodels = [\"tiny\"]\n")
        };
        let machines = Machines::new(NODES, "node.drain_notice_ms = 100", replica);
        let mut world = Self { machines, _emulators: emulators };
        (0..NODES).for_each(|node| world.machines.start(node));
        (0..NODES).for_each(|node| world.has_members(node, NODES));
        world
    }

    /// Runs `spillway` with these words, against node `at`.
    pub(crate) fn order(at: usize, words: &[&str]) -> Output {
        spillway(&[words, &["--admin", &format!("http://{}", admin(at))]].concat())
    }

    /// Runs `spillway` again while there is no leader.
    pub(crate) fn order_with_leader(at: usize, words: &[&str]) -> Output {
        let mut done = Self::order(at, words);
        let by = Instant::now() + PATIENCE;
        while !done.status.success() && Instant::now() < by && said(&done).contains("quorum") {
            // wait: between two attempts
            std::thread::sleep(Duration::from_millis(50));
            done = Self::order(at, words);
        }
        done
    }

    /// Returns the output of a command; retries while there is no leader.
    pub(crate) fn text(at: usize, words: &[&str]) -> String {
        let done = Self::order_with_leader(at, words);
        assert!(done.status.success(), "{words:?}: {}", said(&done));
        String::from_utf8(done.stdout).unwrap()
    }

    /// Waits until node `at` reports `count` members and a leader.
    pub(crate) fn has_members(&self, at: usize, count: usize) {
        self.until("the members", at, || {
            let nodes = Self::order(at, &["get", "nodes"]);
            let status = Self::order(at, &["status"]);
            let lines = String::from_utf8_lossy(&nodes.stdout).lines().count();
            lines == count + 1
                && String::from_utf8_lossy(&status.stdout).contains(" leads in term ")
        });
    }

    /// Waits until so many nodes vote, as node `at` reports.
    pub(crate) fn has_voters(&self, at: usize, count: usize) {
        self.until("the voters", at, || {
            // Nodes that were stopped make it exit with 1.
            let status = Self::order(at, &["status", "--json"]);
            let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
            let members = status["log"]["members"].as_array().unwrap();
            members.iter().filter(|member| member["is_voter"] == true).count() == count
        });
    }

    /// Waits until node `at` knows that membership is enforced: from then on removed nodes are remembered.
    pub(crate) fn enforces_membership(&self, at: usize) {
        self.until("enforced membership", at, || {
            let done = Self::order(at, &["audit", "--system", "--last", "100"]);
            String::from_utf8_lossy(&done.stdout).contains("enforce membership")
        });
    }

    /// Waits until node `at` knows the tenant.
    pub(crate) fn has_tenant(&self, at: usize, name: &str) {
        let words = ["get", "tenant", name];
        self.until("the tenant", at, || Self::order(at, &words).status.success());
    }

    pub(crate) fn until(&self, what: &str, at: usize, condition: impl Fn() -> bool) {
        let by = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < by, "n{at}: {what}:\n{}", self.machines.log(at));
            // wait: between two looks
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn folder(&self, node: usize) -> PathBuf {
        self.file(&format!("data-{node}"))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.machines.path(name)
    }

    pub(crate) fn wipe(&self, node: usize) {
        fs::remove_dir_all(self.folder(node)).unwrap();
    }

    /// Lets a node with an empty folder join by a token made at `at`, and waits until it is a
    /// member.
    pub(crate) fn join(&mut self, node: usize, at: usize, members: usize) {
        let token = Self::text(at, &["join-token", "create", "--hours", "1"]);
        self.give_token(node, token.trim());
        self.machines.start(node);
        self.has_members(node, members);
    }

    pub(crate) fn give_token(&self, node: usize, token: &str) {
        let file = self.file(&format!("join-{node}.token"));
        fs::write(&file, token).unwrap();
        let config = self.file(&format!("n{node}.toml"));
        let text = fs::read_to_string(&config).unwrap();
        if !text.contains("join_token_file") {
            let line = format!("silence_ms = 5000\njoin_token_file = {file:?}\n");
            fs::write(&config, text.replace("silence_ms = 5000\n", &line)).unwrap();
        }
    }

    /// Waits until node `at` answers a request in full.
    pub(crate) async fn serves(&self, at: usize) {
        let by = Instant::now() + PATIENCE;
        while let Err(why) = chat(data(at), true, 5).await {
            assert!(Instant::now() < by, "n{at}: {why}\n{}", self.machines.log(at));
        }
    }
}

/// Returns a command's text on standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Formats the duration of a step, for the tables of the page.
pub(crate) fn took(what: &str, since: Instant) -> String {
    format!("{what}: {} ms", since.elapsed().as_millis())
}
