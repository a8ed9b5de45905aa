//! Single node with emulated replicas, in a region of its own.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use spillway_harness::{LoadClient, Process, ScrapedPage, emulate, wait_for};
use tempfile::TempDir;

use crate::plan::TrialPlan;
use crate::trial::inside;
use crate::trial::patience::LOOK;
use crate::wan::{WanNetwork, config};

/// Name of the region, which has no neighbours.
const REGION: &str = "here";
const WAN: &str = "[[region]]\nname = \"here\"\nsubnet = \"10.77.1.0/24\"\n";
const DATA_PORT: u16 = 8080;
const ADMIN_PORT: u16 = 9900;
const FIRST_REPLICA_PORT: u16 = 9101;
/// Longest wait until a program serves: many times the usual time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Settings of a stage.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) replicas: u16,
    pub(crate) profile: &'static str,
    pub(crate) time_scale: f64,
    /// Most requests that the node has at one replica at a time.
    pub(crate) slots: u32,
    /// More tables of the node's config.
    pub(crate) tables: String,
    pub(crate) listener: &'static str,
}

/// Node with its replicas. Dropping this ends all of them.
pub(crate) struct LoadStage {
    pub(crate) data: LoadClient,
    pub(crate) admin: LoadClient,
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
        Self { replicas, profile, time_scale: 1.0, slots: 16, tables: String::new(), listener }
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
            writeln!(text, "kind = \"vllm\"\nconnections_max = {}", self.slots)?;
        }
        Ok(text)
    }
}

impl LoadStage {
    /// Starts the node and the replicas, and waits until a request can be served.
    pub(crate) async fn new(plan: &TrialPlan, setting: Setting) -> anyhow::Result<Self> {
        let mut network = WanNetwork::start(config::parse(WAN, Path::new("."))?)?;
        network.guard(&plan.launcher).context("start the sweeper")?;
        let folder = tempfile::Builder::new().prefix("spillway-load-").tempdir()?;
        let path = folder.path().join("node.toml");
        std::fs::write(&path, setting.config()?).context("write a config")?;
        let mut command = Command::new(&plan.binary);
        command.args(["run", "--config"]).arg(path);
        let node = inside::start(&network, REGION, &mut command, &folder.path().join("node.log"))?;
        let namespace = namespace(&network)?;
        let client = |port| inside::client(&namespace, local(port));
        let (data, admin) = (client(DATA_PORT)?, client(ADMIN_PORT)?);
        let replicas = (0..setting.replicas).map(|_| None).collect();
        let binary = plan.binary.clone();
        let mut stage = Self { data, admin, node, replicas, setting, binary, network, folder };
        for index in 0..stage.replicas.len() {
            stage.start_replica(index)?;
        }
        for index in 0..stage.replicas.len() {
            stage.replica(index)?.ready("/health", PATIENCE).await?;
        }
        stage.settled().await.with_context(|| stage.node.last_lines())?;
        Ok(stage)
    }

    /// Ends the stage, and keeps its logs and configs if the plan says so.
    pub(crate) fn done(mut self, plan: &TrialPlan) {
        if plan.keep {
            self.folder.disable_cleanup(true);
            plan.say(&format!("logs and configs are kept in {}", self.folder.path().display()));
        }
    }

    /// Starts the replica of this index, which must not be running.
    pub(crate) fn start_replica(&mut self, index: usize) -> anyhow::Result<()> {
        let Setting { profile, time_scale, .. } = &self.setting;
        let mut command = Command::new(&self.binary);
        command.args(emulate(local(self.port(index)?), "tiny", profile, *time_scale));
        let log = self.folder.path().join(format!("replica-{index}.log"));
        self.replicas[index] = Some(inside::start(&self.network, REGION, &mut command, &log)?);
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
        namespace(&self.network)
    }

    /// Returns a client of the replica itself, without the gateway.
    pub(crate) fn replica(&self, index: usize) -> anyhow::Result<LoadClient> {
        Ok(inside::client(&namespace(&self.network)?, local(self.port(index)?))?)
    }

    fn port(&self, index: usize) -> anyhow::Result<u16> {
        Ok(FIRST_REPLICA_PORT + u16::try_from(index)?)
    }

    /// Sets the fault of a replica, as JSON; `{"kind": "none"}` heals it.
    pub(crate) async fn fault(&self, index: usize, fault: &Value) -> anyhow::Result<()> {
        let body = serde_json::json!({ "fault": fault });
        self.replica(index)?.post("/emulator/fault", body).await
    }

    /// Waits until the node is ready and all replicas are open and past their slow start.
    pub(crate) async fn settled(&self) -> anyhow::Result<()> {
        self.admin.ready("/readyz", PATIENCE).await?;
        // Sums of fractions may miss the whole number by rounding.
        let all = f64::from(self.setting.replicas) - 0.01;
        let look = async || {
            let page = self.page().await?;
            let open = page.sum("spillway_replica_admission", &[("admission", "open")]);
            let ramp = page.sum("spillway_replica_ramp", &[]);
            anyhow::ensure!(
                open >= all && ramp >= all,
                "{open} are open, their ramps sum to {ramp}"
            );
            Ok(())
        };
        wait_for("not all replicas are open", 3 * PATIENCE, LOOK, look).await
    }

    pub(crate) async fn page(&self) -> anyhow::Result<ScrapedPage> {
        ScrapedPage::scrape(&self.admin).await
    }

    /// Returns the resident memory of the node's process in bytes.
    pub(crate) fn node_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.node.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        Ok(kib.context("VmRSS of the node")? * 1024)
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn namespace(network: &WanNetwork) -> anyhow::Result<String> {
    Ok(network.namespace(REGION, 1).context("the region has a node")?.path())
}
