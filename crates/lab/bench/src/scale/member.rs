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
use crate::scale::site::ScaleSite;

/// Most nodes that form a cluster: as many as vote.
const FOUNDERS_MAX: usize = 5;

/// File with the token by which the others join.
const TOKEN: &str = "join.token";

/// Longest wait until the founders have formed the cluster.
const FORMING_MAX: Duration = Duration::from_secs(60);

/// Running node of a cluster, alone in its region.
pub(super) struct Member {
    process: Process,
    admin: LoadClient,
}

/// Nodes of a cluster. Dropping this ends all of them at the same time: one after the other takes up
/// to a few seconds each.
pub(super) struct Members(pub(super) Vec<Member>);

/// Names and addresses of a node, chosen before any starts: each config names all others.
struct Seat {
    name: String,
    listen: SocketAddr,
    admin: SocketAddr,
    link: SocketAddr,
}

/// Starts `count` nodes. Each has one of the site's backends as its replica and keeps the cluster's
/// state. The first ones form the cluster, the others join it by a token.
pub(super) async fn start_all(
    spillway: &Path,
    site: &ScaleSite,
    count: u8,
) -> anyhow::Result<Members> {
    let folder = site.folder();
    certs(spillway, folder, &["init", "--cluster", "bench"])?;
    let seats: Vec<Seat> = (1..=count).map(Seat::choose).collect();
    let founders = &seats[..seats.len().min(FOUNDERS_MAX)];
    let mut members = Members(Vec::new());
    for (index, seat) in seats.iter().enumerate() {
        let name = seat.name.as_str();
        certs(spillway, folder, &["node", "--region", name, "--node", name])?;
        if index == founders.len() {
            write_token(spillway, folder, founders[0].admin, &mut members).await?;
        }
        let joins = index >= founders.len();
        let backend = site.backends()[index % site.backends().len()];
        let path = folder.join(format!("{name}.toml"));
        fs::write(&path, seat.config(folder, backend, founders, joins)?)?;
        let command: Vec<OsString> =
            vec![spillway.into(), "run".into(), "--config".into(), path.into()];
        let process = Process::guarded(name, &command, &folder.join(format!("{name}.log")))?;
        members.0.push(Member { process, admin: LoadClient::new(seat.admin) });
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
    pub(super) fn guard(&self) -> u32 {
        self.process.id()
    }

    /// Checks that the node runs.
    ///
    /// # Errors
    /// Returns an error with the end of its log if it has ended.
    pub(super) fn check_alive(&mut self) -> anyhow::Result<()> {
        self.process.check_alive()
    }

    /// Reads the node's metrics.
    ///
    /// # Errors
    /// Returns an error if the node does not answer yet.
    pub(super) async fn metrics(&self) -> anyhow::Result<ScrapedPage> {
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

    fn config(
        &self,
        folder: &Path,
        backend: SocketAddr,
        founders: &[Self],
        joins: bool,
    ) -> anyhow::Result<String> {
        let (folder, name) = (folder.display(), self.name.as_str());
        let token = format!("join_token_file = \"{folder}/{TOKEN}\"\n");
        let mut config = format!(
            "[node]\nname = \"{name}\"\nregion = \"{name}\"\n\n\
             [[listener]]\naddress = \"{}\"\n\n[admin]\naddress = \"{}\"\n\n\
             [cluster]\nid = \"bench\"\naddress = \"{}\"\nca = \"{folder}/ca.pem\"\n\
             certificate = \"{folder}/{name}.{name}.pem\"\n\
             key = \"{folder}/{name}.{name}-key.pem\"\n\
             prefix_key = \"{folder}/prefix.key\"\ndata = \"{folder}/data-{name}\"\n{}\n\
             [[route]]\nname = \"llm\"\n\n[[replica]]\nname = \"replica\"\n\
             url = \"http://{backend}\"\nmodels = [\"{MODEL}\"]\n",
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
