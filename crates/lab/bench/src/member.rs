//! Nodes of a cluster, one in each region, all on loopback.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use spillway_harness::{LoadClient, Process, ScrapedPage, certs};

use crate::request::MODEL;

/// Most nodes that form a cluster: as many as vote.
const FOUNDERS_MAX: usize = 5;

/// File with the token by which the others join.
const TOKEN: &str = "join.token";

/// Longest wait until the founders have formed the cluster.
const FORMING_MAX: Duration = Duration::from_secs(60);

/// Cluster to start.
pub(crate) struct ClusterSpec<'a> {
    /// The Spillway binary.
    pub(crate) spillway: &'a Path,
    /// Existing folder for certificates, configs, logs and data.
    pub(crate) folder: &'a Path,
    /// Replicas of each node.
    pub(crate) replicas: Vec<&'a [SocketAddr]>,
    /// Lines of each replica.
    pub(crate) replica: String,
    /// Lines of the route.
    pub(crate) route: &'a str,
}

/// Running node of a cluster, alone in its region.
pub(crate) struct Member {
    /// Address for clients.
    pub(crate) address: SocketAddr,
    process: Process,
    admin: LoadClient,
}

/// Nodes of a cluster. Dropping this ends all of them at the same time: one after the other takes up
/// to a few seconds each.
pub(crate) struct Members(pub(crate) Vec<Member>);

/// Names and addresses of a node, chosen before any starts: each config names all others.
struct Seat {
    name: String,
    listen: SocketAddr,
    admin: SocketAddr,
    link: SocketAddr,
}

/// Starts the nodes, each with its state on disk. The first ones form the cluster, the others join
/// it by a token.
pub(crate) async fn start_all(spec: &ClusterSpec<'_>) -> anyhow::Result<Members> {
    let (spillway, folder) = (spec.spillway, spec.folder);
    certs(spillway, folder, &["init", "--cluster", "bench"])?;
    let seats: Vec<Seat> =
        (1..).zip(&spec.replicas).map(|(number, _)| Seat::choose(number)).collect();
    let founders = &seats[..seats.len().min(FOUNDERS_MAX)];
    let mut members = Members(Vec::new());
    for (index, seat) in seats.iter().enumerate() {
        let name = seat.name.as_str();
        certs(spillway, folder, &["node", "--region", name, "--node", name])?;
        if index == founders.len() {
            write_token(spillway, folder, founders[0].admin, &mut members).await?;
        }
        let mut config = seat.config(folder, founders, index >= founders.len())?;
        write!(config, "\n[[route]]\nname = \"llm\"\n{}", spec.route)?;
        for (number, replica) in spec.replicas[index].iter().enumerate() {
            write!(
                config,
                "\n[[replica]]\nname = \"replica-{number}\"\nurl = \"http://{replica}\"\n\
                 models = [\"{MODEL}\"]\n{}",
                spec.replica
            )?;
        }
        let path = folder.join(format!("{name}.toml"));
        fs::write(&path, config)?;
        let command: Vec<OsString> =
            vec![spillway.into(), "run".into(), "--config".into(), path.into()];
        let process = Process::guarded(name, &command, &folder.join(format!("{name}.log")))?;
        let (address, admin) = (seat.listen, LoadClient::new(seat.admin));
        members.0.push(Member { address, process, admin });
    }
    Ok(members)
}

/// Waits until the cluster is formed, and writes a token by which all others may join.
async fn write_token(
    spillway: &Path,
    folder: &Path,
    admin: SocketAddr,
    members: &mut Members,
) -> anyhow::Result<()> {
    let create = async || {
        let mut command = Command::new(spillway);
        command.args(["join-token", "create", "--uses", "255", "--admin"]);
        let output = command.arg(format!("http://{admin}")).output()?;
        let is_made = output.status.success();
        anyhow::ensure!(is_made, "{}", String::from_utf8_lossy(&output.stderr));
        Ok(fs::write(folder.join(TOKEN), output.stdout)?)
    };
    let founder = members.0.first_mut().context("a founder")?;
    founder.process.ready(FORMING_MAX, create).await.context("make a join token")
}

impl Drop for Members {
    fn drop(&mut self) {
        std::thread::scope(|scope| {
            for member in self.0.drain(..) {
                scope.spawn(move || drop(member));
            }
        });
    }
}

impl Member {
    /// Returns the id of the guard above the node.
    pub(crate) fn guard(&self) -> u32 {
        self.process.id()
    }

    /// Waits until `check` succeeds.
    ///
    /// # Errors
    /// Returns an error with the end of the node's log if the node ends, or `check` still fails
    /// after `limit`.
    pub(crate) async fn ready(
        &mut self,
        limit: Duration,
        check: impl AsyncFn() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.process.ready(limit, check).await
    }

    /// Checks that the node runs.
    ///
    /// # Errors
    /// Returns an error with the end of its log if it has ended.
    pub(crate) fn check_alive(&mut self) -> anyhow::Result<()> {
        self.process.check_alive()
    }

    /// Reads the node's metrics.
    ///
    /// # Errors
    /// Returns an error if the node does not answer yet.
    pub(crate) async fn metrics(&self) -> anyhow::Result<ScrapedPage> {
        ScrapedPage::scrape(&self.admin).await.context("read the metrics of a node")
    }
}

impl Seat {
    /// Returns a seat at a loopback address of its own. Free ports of one address would not do:
    /// connections that the first nodes open could take those of the last.
    fn choose(number: u8) -> Self {
        let run = 1 + u8::try_from(std::process::id() % 250).unwrap_or_default();
        let at = |port| SocketAddr::from(([127, run, 0, number], port));
        let name = format!("region-{number:02}");
        Self { name, listen: at(18_080), admin: at(19_900), link: at(17_946) }
    }

    fn config(&self, folder: &Path, founders: &[Self], joins: bool) -> anyhow::Result<String> {
        let (folder, name) = (folder.display(), self.name.as_str());
        let token = format!("join_token_file = \"{folder}/{TOKEN}\"\n");
        let mut config = format!(
            "[node]\nname = \"{name}\"\nregion = \"{name}\"\n\n\
             [[listener]]\naddress = \"{}\"\n\n[admin]\naddress = \"{}\"\n\n\
             [cluster]\nid = \"bench\"\naddress = \"{}\"\nca = \"{folder}/ca.pem\"\n\
             certificate = \"{folder}/{name}.{name}.pem\"\n\
             key = \"{folder}/{name}.{name}-key.pem\"\n\
             prefix_key = \"{folder}/prefix.key\"\ndata = \"{folder}/data-{name}\"\n{}",
            self.listen,
            self.admin,
            self.link,
            if joins { token.as_str() } else { "" },
        );
        for other in founders.iter().filter(|other| other.name != self.name) {
            write!(
                config,
                "\n[[peer]]\nname = \"{0}\"\nregion = \"{0}\"\naddress = \"{1}\"\n",
                other.name, other.link
            )?;
        }
        Ok(config)
    }
}
