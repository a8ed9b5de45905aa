//! Real nodes with emulated replicas in real time, one node a region.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use spillway_harness::{LoadClient, Process, ScrapedPage, certs, emulate, wait_for};
use tempfile::TempDir;

use super::relay::{self, LINK_PORT, own, public};

/// Replicas of each region.
pub(crate) const REPLICAS: usize = 2;
/// Model that replicas serve.
pub(crate) const MODEL: &str = "tiny";
const DATA_PORT: u16 = 8_080;
const ADMIN_PORT: u16 = 9_900;
const FIRST_REPLICA_PORT: u16 = 9_101;
/// Longest wait until nodes and replicas serve: many times the usual time.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(100);

/// Running cluster. Dropping this ends all its processes.
pub(crate) struct LiveCluster {
    nodes: Vec<Process>,
    _replicas: Vec<Process>,
    _folder: TempDir,
}

impl LiveCluster {
    /// Starts a node with its replicas for each row of the matrix of round trips, and waits until all
    /// are connected and past their slow start.
    pub(crate) async fn start(binary: &Path, rtt_ms: &[Vec<f64>]) -> anyhow::Result<Self> {
        relay::start(rtt_ms)?;
        let folder = tempfile::Builder::new().prefix("spillway-simulated-").tempdir()?;
        let (mut nodes, mut replicas) = (Vec::new(), Vec::new());
        let certificates = folder.path().join("certs");
        certs(binary, &certificates, &["init", "--cluster", "simulated"])?;
        for index in 0..rtt_ms.len() {
            let name = region(index);
            certs(binary, &certificates, &["node", "--region", &name, "--node", &name])?;
            for replica in 0..REPLICAS {
                let mut command = Command::new(binary);
                command.args(emulate(own(index, port(replica)), MODEL, "l4", 1.0));
                let log = folder.path().join(format!("{name}.{replica}.log"));
                replicas.push(Process::start("replica", &mut command, &log)?);
            }
        }
        for index in 0..rtt_ms.len() {
            let path = folder.path().join(format!("{}.toml", region(index)));
            std::fs::write(&path, config(folder.path(), index, rtt_ms)?)?;
            let mut command = Command::new(binary);
            command.args(["run", "--config"]).arg(&path);
            nodes.push(Process::start("node", &mut command, &path.with_extension("log"))?);
        }
        let mut cluster = Self { nodes, _replicas: replicas, _folder: folder };
        for index in 0..rtt_ms.len() {
            cluster.settled(index).await?;
        }
        Ok(cluster)
    }

    async fn settled(&mut self, index: usize) -> anyhow::Result<()> {
        // Sums of fractions may miss the whole number by rounding.
        let all = REPLICAS as f64 - 0.01;
        let peers = (self.nodes.len() - 1) as f64;
        let node = &mut self.nodes[index];
        let look = async || {
            node.check_alive()?;
            let page = page(index).await?;
            let ramp = page.sum("spillway_replica_ramp", &[]);
            let reachable = page.sum("spillway_region_reachable", &[]);
            anyhow::ensure!(ramp >= all, "the ramps of its replicas sum to {ramp}");
            anyhow::ensure!(reachable >= peers, "{reachable} regions are reachable");
            Ok(())
        };
        let settled = wait_for("a node is not ready", PATIENCE, LOOK, look).await;
        settled.map_err(|error| error.context(self.nodes[index].last_lines()))
    }

    /// Returns the round trip from one node to another region in milliseconds, as the node measured it.
    pub(crate) async fn rtt_ms(&self, from: usize, to: usize) -> anyhow::Result<f64> {
        let page = page(from).await?;
        Ok(1e3 * page.sum("spillway_region_rtt_seconds", &[("region", &region(to))]))
    }
}

/// Returns a client of the node of a region.
pub(crate) fn client(index: usize) -> LoadClient {
    LoadClient::new(own(index, DATA_PORT))
}

/// Returns the name of a region, which is that of its node, too.
pub(crate) fn region(index: usize) -> String {
    format!("region-{index}")
}

async fn page(index: usize) -> anyhow::Result<ScrapedPage> {
    ScrapedPage::scrape(&LoadClient::new(own(index, ADMIN_PORT))).await
}

fn port(replica: usize) -> u16 {
    FIRST_REPLICA_PORT + u16::try_from(replica).expect("few replicas")
}

/// Returns the config of a node: all settings that have defaults keep them. The simulator's nodes know
/// the round trips, too.
fn config(folder: &Path, index: usize, rtt_ms: &[Vec<f64>]) -> Result<String, std::fmt::Error> {
    let (name, certs) = (region(index), folder.join("certs"));
    let others = || (0..rtt_ms.len()).filter(|other| *other != index);
    let mut text = String::new();
    writeln!(text, "[node]\nname = {name:?}\nregion = {name:?}\nworkers = 1")?;
    writeln!(text, "expose_routing = true")?;
    writeln!(text, "[admin]\naddress = \"{}\"", own(index, ADMIN_PORT))?;
    writeln!(text, "[[listener]]\naddress = \"{}\"", own(index, DATA_PORT))?;
    writeln!(text, "[cluster]\nid = \"simulated\"\naddress = \"{}\"", own(index, LINK_PORT))?;
    writeln!(text, "advertise = \"{}\"", public(index))?;
    writeln!(text, "data = {:?}", folder.join(format!("{name}.data")))?;
    writeln!(text, "ca = {:?}\nprefix_key = {:?}", certs.join("ca.pem"), certs.join("prefix.key"))?;
    writeln!(text, "certificate = {:?}", certs.join(format!("{name}.{name}.pem")))?;
    writeln!(text, "key = {:?}", certs.join(format!("{name}.{name}-key.pem")))?;
    for other in others() {
        let (name, address) = (region(other), public(other));
        writeln!(text, "[[peer]]\nname = {name:?}\nregion = {name:?}\naddress = \"{address}\"")?;
    }
    for other in others() {
        let rtt_ms = rtt_ms[index][other];
        writeln!(text, "[[region]]\nname = {:?}\nrtt_ms = {rtt_ms}", region(other))?;
    }
    for replica in 0..REPLICAS {
        writeln!(text, "[[replica]]\nname = \"{name}-{replica}\"\nmodels = [{MODEL:?}]")?;
        writeln!(text, "url = \"http://{}\"\nkind = \"vllm\"", own(index, port(replica)))?;
    }
    Ok(text)
}
