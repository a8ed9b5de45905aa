//! Cluster of real nodes in an emulated network.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Instant;

use anyhow::Context as _;
use spillway_harness::{Process, emulate, spawn};
use tempfile::TempDir;
use tokio::time::sleep;

use super::api::{Status, Write};
use super::disk_delay::DiskDelay;
use super::files;
use super::inside;
use super::patience::{LOOK, PATIENCE, patiently};
use super::site::{REPLICA_PORT, TrialSite, sites};
use super::site_profile::SiteProfile;
use crate::wan::{ControlCommand, Topology, WanNetwork};

/// Most recent log indexes to show for a cluster that does not settle.
const INDEXES_SHOWN: usize = 40;
/// Key of the writes that test if every node takes writes.
const PROBE: &str = "probe";

/// Real nodes, one in each region of a network. Dropping this ends all of them.
#[derive(Debug)]
pub struct TrialCluster {
    pub(crate) sites: Vec<TrialSite>,
    nodes: Vec<Option<Process>>,
    replicas: BTreeMap<usize, Process>,
    disk_delays: BTreeMap<usize, DiskDelay>,
    configs: Vec<PathBuf>,
    binary: PathBuf,
    // Below the processes, so that these are dropped first.
    pub(crate) network: WanNetwork,
    folder: TempDir,
    written: u64,
}

/// State of a settled cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Index of the leader's region in the network.
    pub leader: usize,
    /// Term of the leader.
    pub term: u64,
    /// Id of the cluster.
    pub cluster: String,
    /// Index of the last entry in the log.
    pub index: u64,
}

impl TrialCluster {
    /// Makes the network, certificates and configs, and starts the emulated replicas.
    /// [`Self::start`] starts the nodes. `programs` are the paths of `spillway` and
    /// `spillway-chaos`; regions with an index in `edges` have no replica.
    ///
    /// # Errors
    /// Returns an error if the system refuses something or a program fails.
    pub fn new(
        topology: Topology,
        programs: (&Path, &Path),
        edges: &[usize],
    ) -> anyhow::Result<Self> {
        Self::with_profile(topology, programs, edges, SiteProfile::default())
    }

    /// Makes a cluster as [`Self::new`] does, with the replicas and listeners of `profile`.
    pub(crate) fn with_profile(
        topology: Topology,
        (binary, launcher): (&Path, &Path),
        edges: &[usize],
        profile: SiteProfile,
    ) -> anyhow::Result<Self> {
        let mut network = WanNetwork::start(topology)?;
        network.guard(launcher).context("start the sweeper")?;
        let folder = tempfile::Builder::new().prefix("spillway-chaos-").tempdir()?;
        let sites = sites(&network, edges, profile)?;
        let configs = files::write(binary, folder.path(), &sites)?;
        let nodes = sites.iter().map(|_| None).collect();
        let (binary, replicas, disk_delays) = (binary.to_owned(), BTreeMap::new(), BTreeMap::new());
        let mut cluster = Self {
            sites,
            nodes,
            replicas,
            disk_delays,
            configs,
            binary,
            network,
            folder,
            written: 0,
        };
        cluster.start_replicas()?;
        Ok(cluster)
    }

    fn start_replicas(&mut self) -> anyhow::Result<()> {
        let listen = SocketAddr::from(([127, 0, 0, 1], REPLICA_PORT));
        for (index, site) in self.sites.iter().enumerate().filter(|(_, site)| site.has_replica) {
            let SiteProfile { profile, time_scale, .. } = site.profile;
            let mut command = Command::new(&self.binary);
            command.args(emulate(listen, "tiny", profile, time_scale));
            let log = self.folder.path().join(format!("{}.replica.log", site.name));
            let process = inside::start(&self.network, &site.region, &mut command, &log)?;
            self.replicas.insert(index, process);
        }
        Ok(())
    }

    /// Keeps logs and configs after the end of the cluster, and returns their folder.
    pub(crate) fn keep_folder(&mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        self.folder.path().to_owned()
    }

    /// Starts a node.
    ///
    /// # Errors
    /// Returns an error if the program cannot be run.
    pub fn start(&mut self, node: usize) -> anyhow::Result<()> {
        self.start_by(node, Command::new(&self.binary))
    }

    /// Starts all nodes that do not run, each with a disk that can be made slow later.
    pub(crate) fn start_all_with_disk_delays(&mut self) -> anyhow::Result<()> {
        for node in self.all().filter(|node| self.nodes[*node].is_none()).collect::<Vec<_>>() {
            let delay = DiskDelay::new(self.folder.path(), &self.sites[node].name)?;
            let mut command = Command::new("env");
            command.args(delay.words()).arg(&self.binary);
            self.start_by(node, command)?;
            self.disk_delays.insert(node, delay);
        }
        Ok(())
    }

    /// Returns the delay of a node's disk that [`Self::start_all_with_disk_delays`] has started.
    pub(crate) fn disk_delay(&self, node: usize) -> anyhow::Result<&DiskDelay> {
        self.disk_delays.get(&node).context("its disk can't be made slow")
    }

    fn start_by(&mut self, node: usize, mut command: Command) -> anyhow::Result<()> {
        let site = &self.sites[node];
        let log = self.folder.path().join(format!("{}.log", site.name));
        command.args(["run", "--config"]).arg(&self.configs[node]);
        self.nodes[node] = Some(inside::start(&self.network, &site.region, &mut command, &log)?);
        Ok(())
    }

    /// Starts all nodes that do not run.
    ///
    /// # Errors
    /// Returns an error if a program cannot be run.
    pub fn start_all(&mut self) -> anyhow::Result<()> {
        let missing: Vec<_> = self.all().filter(|node| self.nodes[*node].is_none()).collect();
        missing.into_iter().try_for_each(|node| self.start(node))
    }

    /// Kills a node with SIGKILL. Does nothing if the node does not run.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn kill(&mut self, node: usize) -> anyhow::Result<()> {
        match self.nodes[node].take() {
            Some(mut process) => Ok(process.kill()?),
            None => Ok(()),
        }
    }

    /// Asks a node to end with SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// Returns an error if the node does not run, or does not end within [`PATIENCE`].
    pub(crate) async fn stop(&mut self, node: usize) -> anyhow::Result<ExitStatus> {
        let process = self.nodes[node].as_mut().context("the node runs")?;
        process.terminate()?;
        let ended = async || match process.ended() {
            Ok(Some(status)) => Ok(status),
            other => Err(format!("{other:?}")),
        };
        let status = patiently("the node does not end", ended).await?;
        // Otherwise `settled` would take this end for a crash.
        self.nodes[node] = None;
        Ok(status)
    }

    /// Kills the replica in a node's region with SIGKILL.
    pub(crate) fn kill_replica(&mut self, node: usize) -> anyhow::Result<()> {
        match self.replicas.remove(&node) {
            Some(mut process) => Ok(process.kill()?),
            None => Ok(()),
        }
    }

    /// Kills all nodes, one right after the other.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn kill_all(&mut self) -> anyhow::Result<()> {
        self.all().try_for_each(|node| self.kill(node))
    }

    /// Kills all nodes and deletes their data.
    ///
    /// # Errors
    /// Returns an error if the data cannot be deleted.
    pub fn wipe(&mut self) -> anyhow::Result<()> {
        self.kill_all()?;
        for site in &self.sites {
            let data = files::data(self.folder.path(), site);
            if data.exists() {
                std::fs::remove_dir_all(&data).context("remove a node's data")?;
            }
        }
        Ok(())
    }

    /// Writes configs with which the last `joiners` nodes join by token. For nodes that have not
    /// started.
    pub(crate) fn let_join(&self, joiners: usize) -> anyhow::Result<()> {
        files::write_joining(self.folder.path(), &self.sites, joiners)
    }

    /// Writes the join token of a node into its file.
    pub(crate) fn give_token(&self, node: usize, token: &str) -> anyhow::Result<()> {
        let file = files::token(self.folder.path(), &self.sites[node]);
        std::fs::write(file, token).context("write a token")
    }

    pub(crate) fn all(&self) -> std::ops::Range<usize> {
        0..self.sites.len()
    }

    pub(crate) fn others(&self, node: usize) -> Vec<usize> {
        self.all().filter(|other| *other != node).collect()
    }

    pub(crate) fn region(&self, node: usize) -> String {
        self.sites[node].region.clone()
    }

    /// Sends a command to the network.
    pub(crate) async fn ask(&self, command: ControlCommand) -> anyhow::Result<()> {
        self.network.handle().ask_async(command).await.map(drop).context("change the network")
    }

    pub(crate) async fn heal(&self) -> anyhow::Result<()> {
        self.ask(ControlCommand::Heal {}).await
    }

    /// Cuts a node off from all others, in both directions.
    pub(crate) async fn isolate(&self, node: usize) -> anyhow::Result<()> {
        let (from, to) = (self.region(node), "*".to_owned());
        self.ask(ControlCommand::Cut { from, to, one_way: false }).await
    }

    /// Cuts all packets to a node, while packets from the node still arrive.
    pub(crate) async fn deafen(&self, node: usize) -> anyhow::Result<()> {
        let (from, to) = ("*".to_owned(), self.region(node));
        self.ask(ControlCommand::Cut { from, to, one_way: true }).await
    }

    /// Cuts two nodes off from each other.
    pub(crate) async fn part(&self, one: usize, other: usize) -> anyhow::Result<()> {
        let (from, to) = (self.region(one), self.region(other));
        self.ask(ControlCommand::Cut { from, to, one_way: false }).await
    }

    /// Asks each node for its status; `None` for a node that does not answer.
    pub(crate) async fn statuses(&self) -> Vec<Option<Status>> {
        let ask = |site: &TrialSite| {
            let admin = site.admin.clone();
            spawn(async move { admin.status().await })
        };
        // All at once, so that the statuses are of about the same moment.
        let asked: Vec<_> = self.sites.iter().map(ask).collect();
        let mut all = Vec::new();
        for status in asked {
            all.push(status.await.ok().flatten());
        }
        all
    }

    /// Waits until all nodes run, agree on the leader, all vote (five in a larger cluster), have
    /// the same log and take writes.
    ///
    /// # Errors
    /// Returns an error after a minute, or if a node has ended by itself.
    pub async fn settled(&mut self) -> anyhow::Result<State> {
        let start = Instant::now();
        // Kept for the error text: the last refused write and the recent log indexes.
        let (mut refused, mut indexes) = (None, Vec::new());
        loop {
            let statuses = self.statuses().await;
            if let Some(state) = self.at_rest(&statuses) {
                // Agreement is not enough: a node may still know too little to take writes.
                refused = self.refused_write().await;
                if refused.is_none() {
                    return Ok(state);
                }
            }
            let applied = |status: &Option<Status>| status.as_ref().and_then(|it| it.applied_index);
            indexes.push(statuses.iter().map(applied).collect::<Vec<_>>());
            for process in self.nodes.iter_mut().flatten() {
                process.check_alive().context("a node has ended by itself")?;
            }
            anyhow::ensure!(
                start.elapsed() < PATIENCE,
                "the cluster does not settle: {statuses:#?}\nlast refused: {refused:?}\napplied: {:?}",
                &indexes[indexes.len().saturating_sub(INDEXES_SHOWN)..]
            );
            sleep(LOOK).await;
        }
    }

    fn at_rest(&self, statuses: &[Option<Status>]) -> Option<State> {
        let all: Vec<&Status> = statuses.iter().map(Option::as_ref).collect::<Option<_>>()?;
        let first = all.first()?;
        let (cluster, leader) = (first.cluster.clone()?, first.leader.clone()?);
        let agrees = |status: &&&Status| {
            status.cluster.as_ref() == Some(&cluster)
                && status.leader.as_ref() == Some(&leader)
                && status.term == first.term
                // At most five nodes vote.
                && status.voters == self.sites.len().min(5)
                && status.applied_index == first.applied_index
        };
        let leader = self.sites.iter().position(|site| site.name == leader)?;
        let is_leading = all[leader].role == "leader";
        let is_at_rest = is_leading && all.iter().filter(agrees).count() == all.len();
        let index = first.applied_index?;
        is_at_rest.then_some(State { leader, term: first.term, cluster, index })
    }

    /// Writes once at each node. Returns the first node that refuses, with its answer; `None` if
    /// all take the write.
    async fn refused_write(&mut self) -> Option<(usize, Write)> {
        for node in self.all() {
            self.written += 1;
            let written = self.sites[node].admin.write(PROBE, self.written, None).await;
            if !matches!(written, Write::Done(_)) {
                return Some((node, written));
            }
        }
        None
    }

    /// Transfers leadership to `node` and waits until the cluster has settled.
    pub(crate) async fn led_by(&mut self, node: usize) -> anyhow::Result<State> {
        let start = Instant::now();
        loop {
            let state = self.settled().await?;
            if state.leader == node {
                return Ok(state);
            }
            anyhow::ensure!(start.elapsed() < PATIENCE, "the lead is not handed over");
            let to = self.sites[node].name.clone();
            self.sites[state.leader].admin.hand_over(&to).await;
        }
    }
}
