//! Single node with emulated replicas, in a region of its own.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use super::caller::Caller;
use super::plan::LoadPlan;
use crate::trial::process::Process;
use crate::wan::{ControlAnswer, ControlCommand, WanNetwork, config};

/// Name of the region, which has no neighbours.
const REGION: &str = "here";
const WAN: &str = "[[region]]\nname = \"here\"\nsubnet = \"10.77.1.0/24\"\n";
const DATA_PORT: u16 = 8080;
const ADMIN_PORT: u16 = 9900;
const FIRST_REPLICA_PORT: u16 = 9101;
/// Longest wait until a program serves: many times what it should take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Settings of a stage.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) replicas: u16,
    pub(crate) profile: &'static str,
    pub(crate) time_scale: f64,
    /// Most requests that the node has at one replica at a time.
    pub(crate) places: u32,
    /// More tables of the node's config.
    pub(crate) tables: String,
    pub(crate) listener: &'static str,
}

/// Node with its replicas. Dropping this ends all of them.
pub(crate) struct LoadStage {
    pub(crate) data: Caller,
    pub(crate) admin: Caller,
    node: Process,
    replicas: Vec<Option<Process>>,
    setting: Setting,
    binary: PathBuf,
    // Below the processes, so that these are dropped first.
    network: WanNetwork,
    folder: TempDir,
}

impl Setting {
    /// Returns replicas that serve at most about 45 requests of 32 tokens a second each.
    pub(crate) fn usual(replicas: u16) -> Self {
        let (profile, listener) = ("h100", "");
        Self { replicas, profile, time_scale: 1.0, places: 16, tables: String::new(), listener }
    }

    fn config(&self) -> Result<String, std::fmt::Error> {
        let mut text = self.tables.clone();
        writeln!(text, "\n[node]\nname = \"node\"\nregion = {REGION:?}\nworkers = 1")?;
        writeln!(text, "drain_ms = 2000\nexpose_routing = true")?;
        writeln!(text, "[admin]\naddress = \"127.0.0.1:{ADMIN_PORT}\"")?;
        writeln!(text, "[[listener]]\naddress = \"127.0.0.1:{DATA_PORT}\"\n{}", self.listener)?;
        for index in 0..self.replicas {
            writeln!(text, "[[replica]]\nname = \"gpu-{index}\"\nmodels = [\"tiny\"]")?;
            writeln!(text, "url = \"http://127.0.0.1:{}\"", FIRST_REPLICA_PORT + index)?;
            writeln!(text, "kind = \"vllm\"\nconnections_max = {}", self.places)?;
        }
        Ok(text)
    }
}

impl LoadStage {
    /// Starts the node and the replicas, and waits until a request can be served.
    pub(crate) async fn new(plan: &LoadPlan, setting: Setting) -> anyhow::Result<Self> {
        let mut network = WanNetwork::start(config::parse(WAN, Path::new("."))?)?;
        network.guard(&plan.launcher).context("start the sweeper")?;
        let folder = tempfile::Builder::new().prefix("spillway-load-").tempdir()?;
        let path = folder.path().join("node.toml");
        std::fs::write(&path, setting.config()?).context("write a config")?;
        let namespace = network.namespace(REGION, 1).context("a namespace")?;
        let arguments = ["run", "--config", &path.to_string_lossy()];
        let log = folder.path().join("node.log");
        let node = Process::start(namespace, &plan.binary, &arguments, &log)?;
        let inside = place(&network)?;
        let caller = |port| Caller::inside(&inside, SocketAddr::from(([127, 0, 0, 1], port)));
        let (data, admin) = (caller(DATA_PORT)?, caller(ADMIN_PORT)?);
        let replicas = (0..setting.replicas).map(|_| None).collect();
        let binary = plan.binary.clone();
        let mut stage = Self { data, admin, node, replicas, setting, binary, network, folder };
        for index in 0..stage.replicas.len() {
            stage.start_replica(index)?;
        }
        for index in 0..stage.replicas.len() {
            stage.replica(index)?.ready("/health", PATIENCE).await?;
        }
        stage.settled().await.with_context(|| stage.last_words())?;
        Ok(stage)
    }

    fn last_words(&mut self) -> String {
        format!("the node: {}", self.node.last_words().unwrap_or_default())
    }

    /// Keeps logs and configs after the end of the stage, and returns their folder.
    pub(crate) fn keep_folder(&mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        self.folder.path().to_owned()
    }

    /// Starts the replica of this index, which must not be running.
    pub(crate) fn start_replica(&mut self, index: usize) -> anyhow::Result<()> {
        let Setting { profile, time_scale, .. } = &self.setting;
        let listen = format!("127.0.0.1:{}", self.port(index)?);
        let scale = time_scale.to_string();
        let words = ["emulate", "--listen", &listen, "--model", "tiny"];
        let machine = ["--profile", *profile, "--time-scale", &scale];
        let namespace = self.network.namespace(REGION, 1).context("a namespace")?;
        let log = self.folder.path().join(format!("replica-{index}.log"));
        let process =
            Process::start(namespace, &self.binary, &[words.as_slice(), &machine].concat(), &log)?;
        self.replicas[index] = Some(process);
        Ok(())
    }

    /// Kills a replica with SIGKILL. Does nothing if it does not run.
    pub(crate) fn kill_replica(&mut self, index: usize) -> anyhow::Result<()> {
        match self.replicas[index].take() {
            Some(mut process) => Ok(process.kill()?),
            None => Ok(()),
        }
    }

    /// Returns the path of the region's namespace file.
    pub(crate) fn namespace(&self) -> anyhow::Result<String> {
        place(&self.network)
    }

    /// Returns a client of the replica itself, without the gateway.
    pub(crate) fn replica(&self, index: usize) -> anyhow::Result<Caller> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port(index)?));
        Ok(Caller::inside(&place(&self.network)?, address)?)
    }

    fn port(&self, index: usize) -> anyhow::Result<u16> {
        Ok(FIRST_REPLICA_PORT + u16::try_from(index)?)
    }

    /// Sets the fault of a replica, as JSON; `{"kind": "none"}` heals it.
    pub(crate) async fn fault(&self, index: usize, fault: &Value) -> anyhow::Result<()> {
        let body = serde_json::json!({ "fault": fault }).to_string();
        let (status, said) = self.replica(index)?.post("/emulator/fault", body).await?;
        anyhow::ensure!(status < 300, "a fault: {status} {said:?}");
        Ok(())
    }

    /// Waits until the node is ready and all replicas are open and past their slow start.
    pub(crate) async fn settled(&self) -> anyhow::Result<()> {
        self.admin.ready("/readyz", PATIENCE).await?;
        let start = Instant::now();
        loop {
            let page = self.page().await?;
            let open = page.sum("spillway_replica_admission", "admission=\"open\"");
            let ramp = page.sum("spillway_replica_ramp", "");
            // Sums of fractions may miss the whole number by rounding.
            let all = f64::from(self.setting.replicas) - 0.01;
            if open >= all && ramp >= all {
                return Ok(());
            }
            anyhow::ensure!(start.elapsed() < 3 * PATIENCE, "only {open} replicas are open");
            // wait: until the next look
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn page(&self) -> anyhow::Result<StagePage> {
        let bytes = self.admin.get("/metrics").await?;
        Ok(StagePage(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Returns the resident memory of the node's process in bytes.
    pub(crate) fn node_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.node.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        Ok(kib.context("VmRSS of the node")? * 1024)
    }
}

/// Page of Prometheus metrics.
pub(crate) struct StagePage(String);

impl StagePage {
    /// Returns the series of a name that are not zero, for a person to read.
    pub(crate) fn lines(&self, name: &str) -> String {
        let lines = self.0.lines().filter(|line| line.starts_with(name) && !line.ends_with(" 0"));
        lines.collect::<Vec<_>>().join(" ")
    }

    /// Sums the series of a name that have `label` among their labels.
    pub(crate) fn sum(&self, name: &str, label: &str) -> f64 {
        let series = |line: &&str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(label)
        };
        let value =
            |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        self.0.lines().filter(series).filter_map(value).sum()
    }
}

fn place(network: &WanNetwork) -> anyhow::Result<String> {
    let ControlAnswer::Places(places) = network.handle().ask(ControlCommand::Places {})? else {
        anyhow::bail!("the network answered something else");
    };
    Ok(places.first().context("a place")?.namespace.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_added_up_by_name_and_label() {
        let page =
            StagePage("a{x=\"1\"} 2\na{x=\"2\"} 3.5\nab{x=\"1\"} 100\na 1\n# a 7\n".to_owned());
        assert!((page.sum("a", "") - 6.5).abs() < 1e-9);
        assert!((page.sum("a", "x=\"1\"") - 2.0).abs() < 1e-9);
        assert!((page.sum("b", "")).abs() < 1e-9);
    }
}
