//! Nodes as processes on this machine.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use spillway_link::certs::{Authority, AuthorityFiles, IfExists, NodeFiles, PrefixKey, Validity};
use tempfile::TempDir;

/// How long anything may take that takes some seconds at most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const CLUSTER: &str = "test";

/// Nodes of a cluster, one in each region, each with a config of its own.
pub(crate) struct Machines {
    folder: TempDir,
    nodes: Vec<Option<Child>>,
}

/// Addresses of this process and node alone.
pub(crate) fn address(node: usize, port: u16) -> SocketAddr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let last = u8::try_from(node + 1).unwrap();
    (Ipv4Addr::new(127, high | 0x40, low, last), port).into()
}

/// Where clients reach a node.
pub(crate) fn data(node: usize) -> SocketAddr {
    address(node, 8_080)
}

/// Where operators reach it.
pub(crate) fn admin(node: usize) -> SocketAddr {
    address(node, 9_900)
}

impl Machines {
    /// Writes configs for so many nodes of one cluster. `lines` of the config are for all of them, `replicas`
    /// are those of a node.
    pub(crate) fn new(count: usize, lines: &str, replicas: impl Fn(usize) -> String) -> Self {
        let folder = TempDir::new().unwrap();
        let validity = || Validity::days(SystemTime::now(), 2).unwrap();
        let authority = Authority::new(CLUSTER, validity()).unwrap();
        let files = AuthorityFiles::in_folder(folder.path());
        files.write(&authority, &PrefixKey::random().unwrap(), IfExists::Refuse).unwrap();
        for node in 0..count {
            let (name, region) = (format!("n{node}"), format!("region-{node}"));
            let own = NodeFiles::in_folder(folder.path(), &region, &name);
            own.write(authority.issue(&region, &name, validity()).unwrap(), IfExists::Refuse)
                .unwrap();
            let own = (own.certificate.as_path(), own.key.as_path());
            let shared = (files.certificate.as_path(), files.prefix_key.as_path());
            let text = config(folder.path(), (node, count), own, shared);
            let text = format!("{lines}\n{text}\n{}", replicas(node));
            std::fs::write(folder.path().join(format!("{name}.toml")), text).unwrap();
        }
        Self { folder, nodes: (0..count).map(|_| None).collect() }
    }

    /// Starts a node. What it logs is kept for [`Self::log`].
    pub(crate) fn start(&mut self, node: usize) {
        let log = File::options().create(true).append(true).open(self.log_file(node)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_spillway"))
            .args(["run", "--config"])
            .arg(self.folder.path().join(format!("n{node}.toml")))
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

    /// Waits until a node has ended.
    pub(crate) fn ended(&mut self, node: usize) -> ExitStatus {
        let by = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.nodes[node].as_mut().unwrap().try_wait().unwrap() {
                self.nodes[node] = None;
                return status;
            }
            assert!(Instant::now() < by, "n{node} does not end:\n{}", self.log(node));
            // wait: between two looks
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What a node has logged.
    pub(crate) fn log(&self, node: usize) -> String {
        std::fs::read_to_string(self.log_file(node)).unwrap_or_default()
    }

    fn log_file(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("n{node}.log"))
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for node in self.nodes.iter_mut().flatten() {
            // An error means that it has ended.
            drop(node.kill());
            drop(node.wait());
        }
    }
}

fn config(
    folder: &Path,
    (node, count): (usize, usize),
    (certificate, key): (&Path, &Path),
    (authority, prefix_key): (&Path, &Path),
) -> String {
    let data = folder.join(format!("data-{node}"));
    let mut text = format!(
        "[cluster]\nsilence_ms = 5000\nid = {CLUSTER:?}\naddress = \"{}\"\nca = {authority:?}\n\
         certificate = {certificate:?}\nkey = {key:?}\nprefix_key = {prefix_key:?}\ndata = {data:?}\n\
         ramp_ms = 500\n[[listener]]\naddress = \"{}\"\n[admin]\naddress = \"{}\"\n",
        address(node, 7_946),
        self::data(node),
        admin(node),
    );
    text = text.replace("[cluster]", &format!(
        "node.name = \"n{node}\"\nnode.region = \"region-{node}\"\nnode.expose_routing = true\n[cluster]"
    ));
    for other in (0..count).filter(|other| *other != node) {
        text.push_str(&format!(
            "[[peer]]\nname = \"n{other}\"\nregion = \"region-{other}\"\naddress = \"{}\"\n",
            address(other, 7_946)
        ));
    }
    text
}
