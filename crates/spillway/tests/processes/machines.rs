//! Nodes as processes on this machine.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use spillway_link::CertificateFiles;
use spillway_link::certs::AuthorityFiles;
use spillway_testkit::{CLUSTER, Certificates, eventually_blocking};
use tempfile::TempDir;

/// Nodes of a cluster, one in each region, each with a config of its own.
pub(crate) struct Machines {
    /// Certificates, configs `n<i>.toml`, data folders `data-<i>` and logs.
    pub(crate) folder: TempDir,
    pub(crate) nodes: Vec<Option<Child>>,
}

/// The loopback addresses of one cluster in this process. Clusters of tests that run at the same time need
/// different numbers.
#[derive(Clone, Copy)]
pub(crate) struct Network(pub(crate) u8);

impl Network {
    fn address(self, node: usize, port: u16) -> SocketAddr {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let last = u8::try_from(node + 1).unwrap() | (self.0 << 4);
        (Ipv4Addr::new(127, high | 0x40, low, last), port).into()
    }

    /// Returns where other nodes reach a node.
    pub(crate) fn link(self, node: usize) -> SocketAddr {
        self.address(node, 7_946)
    }

    /// Returns where clients reach a node.
    pub(crate) fn data(self, node: usize) -> SocketAddr {
        self.address(node, 8_080)
    }

    /// Returns where operators reach a node.
    pub(crate) fn admin(self, node: usize) -> SocketAddr {
        self.address(node, 9_900)
    }
}

/// The network of clusters made by [`Machines::new`].
const NETWORK: Network = Network(0);

/// Returns where clients reach a node of [`Machines::new`].
pub(crate) fn data(node: usize) -> SocketAddr {
    NETWORK.data(node)
}

/// Returns where operators reach a node of [`Machines::new`].
pub(crate) fn admin(node: usize) -> SocketAddr {
    NETWORK.admin(node)
}

/// Runs `spillway` with these words and no settings of the environment.
pub(crate) fn spillway(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    for name in ["SPILLWAY_ADMIN", "SPILLWAY_TOKEN_FILE", "SPILLWAY_CA", "SPILLWAY_CONFIG"] {
        command.env_remove(name);
    }
    command.args(words).output().unwrap()
}

/// Returns a node's name and its region.
pub(crate) fn names(node: usize) -> (String, String) {
    (format!("n{node}"), format!("region-{node}"))
}

impl Machines {
    /// Makes a folder for so many nodes, without configs and certificates.
    pub(crate) fn in_folder(count: usize, folder: TempDir) -> Self {
        Self { folder, nodes: (0..count).map(|_| None).collect() }
    }

    /// Writes configs for so many nodes of one cluster. `lines` of the config are for all of them, `replicas`
    /// are those of a node.
    pub(crate) fn new(count: usize, lines: &str, replicas: impl Fn(usize) -> String) -> Self {
        let certificates = Certificates::new();
        let shared = AuthorityFiles::in_folder(certificates.folder());
        for node in 0..count {
            let (name, region) = names(node);
            let data = certificates.folder().join(format!("data-{node}"));
            let config = NodeConfig {
                network: NETWORK,
                node,
                count,
                files: certificates.issue(&region, &name),
                prefix_key: shared.prefix_key.clone(),
                cluster_lines: format!("data = {data:?}\n"),
            };
            let lines = format!("node.expose_routing = true\n{lines}");
            let text = format!("{lines}\n{}\n{}", config.text(), replicas(node));
            let file = certificates.folder().join(format!("{name}.toml"));
            std::fs::write(file, text).unwrap();
        }
        Self::in_folder(count, certificates.into_folder())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a node by its config. Its log is kept for [`Self::log`].
    pub(crate) fn start(&mut self, node: usize) {
        self.start_with(node, &[]);
    }

    /// Starts a node with more in its environment.
    pub(crate) fn start_with(&mut self, node: usize, environment: &[(&str, &Path)]) {
        let log = File::options().create(true).append(true).open(self.log_file(node)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_spillway"))
            .args(["run", "--config"])
            .arg(self.path(&format!("n{node}.toml")))
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.nodes[node] = Some(child);
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self, node: usize) {
        let id = self.nodes[node].as_ref().unwrap().id();
        let sent = Command::new("kill").args(["-TERM", &id.to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until a node has ended, and returns its status.
    pub(crate) fn ended(&mut self, node: usize) -> ExitStatus {
        let child = self.nodes[node].as_mut().unwrap();
        let mut status = None;
        eventually_blocking(&format!("n{node} ends"), || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        self.nodes[node] = None;
        status.unwrap()
    }

    /// Stops a node, and waits for its orderly end.
    pub(crate) fn stop(&mut self, node: usize) {
        self.terminate(node);
        assert_eq!(self.ended(node).code(), Some(0), "{}", self.log(node));
    }

    /// Ends a node without a word, as a machine that is gone.
    pub(crate) fn kill(&mut self, node: usize) {
        let mut child = self.nodes[node].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Returns the log of a node.
    pub(crate) fn log(&self, node: usize) -> String {
        std::fs::read_to_string(self.log_file(node)).unwrap_or_default()
    }

    fn log_file(&self, node: usize) -> PathBuf {
        self.path(&format!("n{node}.log"))
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for node in self.nodes.iter_mut().flatten() {
            // An error means that the node has ended.
            drop(node.kill());
            drop(node.wait());
        }
    }
}

/// A node of a cluster of `count` nodes, as its config has it.
pub(crate) struct NodeConfig {
    pub(crate) network: Network,
    pub(crate) node: usize,
    pub(crate) count: usize,
    pub(crate) files: CertificateFiles,
    pub(crate) prefix_key: PathBuf,
    /// Further lines of `[cluster]`.
    pub(crate) cluster_lines: String,
}

impl NodeConfig {
    /// Returns the config; it ends with `[admin]`.
    pub(crate) fn text(&self) -> String {
        let Self { network, node, count, files, prefix_key, cluster_lines } = self;
        let (name, region) = names(*node);
        let mut text = format!(
            "node.name = \"{name}\"\nnode.region = \"{region}\"\n[[listener]]\naddress = \"{}\"\n\
             [cluster]\nid = {CLUSTER:?}\naddress = \"{}\"\nsilence_ms = 5000\n\
             ca = {:?}\ncertificate = {:?}\nkey = {:?}\nprefix_key = {prefix_key:?}\n{cluster_lines}",
            network.data(*node),
            network.link(*node),
            files.authority,
            files.certificate,
            files.key,
        );
        for other in (0..*count).filter(|other| other != node) {
            let (name, region) = names(other);
            text.push_str(&format!(
                "[[peer]]\nname = \"{name}\"\nregion = \"{region}\"\naddress = \"{}\"\n",
                network.link(other)
            ));
        }
        text + &format!("[admin]\naddress = \"{}\"\n", network.admin(*node))
    }
}
