//! A CA in one folder, nodes with a folder each, and `spillway` as people type it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use spillway_link::certs::{AuthorityFiles, NodeFiles};
pub(crate) use spillway_testkit::eventually_blocking as eventually;
use tempfile::TempDir;

use crate::machines::{self, Machines, Network, NodeConfig, spillway};

/// Nodes, each with its own certificates, one in each region.
pub(crate) struct World {
    machines: Machines,
    network: Network,
}

/// Runs `spillway certs` with these words.
pub(crate) fn certs(words: &[&str]) -> Output {
    spillway(&[&["certs"], words].concat())
}

/// Runs `spillway certs`, which must succeed, and returns its JSON.
pub(crate) fn done(words: &[&str]) -> Value {
    let output = certs(&[words, &["--json"]].concat());
    assert!(output.status.success(), "{words:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs `spillway certs`, which must fail with exit code 1, and returns its error.
pub(crate) fn refused(words: &[&str]) -> String {
    let output = certs(words);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

impl World {
    /// A CA, and so many nodes with certificates of it; none is started.
    pub(crate) fn new(count: usize, network: u8) -> Self {
        let world = Self::without_certificates(count, network);
        let ca = world.at("ca");
        done(&["init", "--cluster", "test", "--dir", &ca]);
        for node in 0..count {
            let (name, region, out) = names(node, &world);
            let words = ["node", "--dir", &ca, "--region", &region, "--node", &name];
            done(&[&words[..], &["--out", &out]].concat());
            world.hand_out(node);
        }
        world
    }

    /// Nodes that get their certificates from elsewhere.
    pub(crate) fn without_certificates(count: usize, network: u8) -> Self {
        let machines = Machines::in_folder(count, TempDir::new().unwrap());
        let world = Self { machines, network: Network(network) };
        for node in 0..count {
            std::fs::create_dir_all(world.path(&format!("n{node}"))).unwrap();
        }
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.machines.path(name)
    }

    /// Returns a path in the folder, as an argument.
    pub(crate) fn at(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Gives a node the files of the CA's folder that are for all nodes.
    pub(crate) fn hand_out(&self, node: usize) {
        for file in ["ca.pem", "prefix.key"] {
            let (from, to) = (self.path("ca").join(file), self.path(&format!("n{node}")));
            let beside = to.join("copy");
            std::fs::copy(from, &beside).unwrap();
            std::fs::rename(beside, to.join(file)).unwrap();
        }
    }

    /// Returns the address at which clients reach a node.
    pub(crate) fn data(&self, node: usize) -> SocketAddr {
        self.network.data(node)
    }

    /// Returns the URL of a node's admin listener.
    pub(crate) fn admin(&self, node: usize) -> String {
        format!("http://{}", self.admin_address(node))
    }

    pub(crate) fn admin_address(&self, node: usize) -> SocketAddr {
        self.network.admin(node)
    }

    /// Starts a node; `lines` are the end of its config.
    pub(crate) fn start(&mut self, node: usize, lines: &str) {
        let text = format!("spill.reserve_percent = 0\n{}{lines}", self.config(node));
        std::fs::write(self.path(&format!("n{node}.toml")), text).unwrap();
        self.machines.start(node);
    }

    /// Waits until a node has ended, and returns its exit code.
    pub(crate) fn ended(&mut self, node: usize) -> Option<i32> {
        self.machines.ended(node).code()
    }

    /// Stops a node, and waits until it has ended.
    pub(crate) fn stop(&mut self, node: usize) {
        self.machines.stop(node);
    }

    pub(crate) fn log(&self, node: usize) -> String {
        self.machines.log(node)
    }

    fn config(&self, node: usize) -> String {
        let (name, region, out) = names(node, self);
        let shared = AuthorityFiles::in_folder(Path::new(&out));
        let files = NodeFiles::in_folder(Path::new(&out), &region, &name).with_authority(&shared);
        let config = NodeConfig {
            network: self.network,
            node,
            count: self.machines.nodes.len(),
            files,
            prefix_key: shared.prefix_key,
            cluster_lines: String::new(),
        };
        config.text()
    }
}

/// Returns the name, region and folder of a node.
pub(crate) fn names(node: usize, world: &World) -> (String, String, String) {
    let (name, region) = machines::names(node);
    (name, region, world.at(&format!("n{node}")))
}
