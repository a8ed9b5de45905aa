//! Gateway under test: its process, config file and admin listener.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde::Deserialize;
use spillway_harness::{LoadClient, Process, ScrapedPage};

use super::{
    config::{ConfigSpec, Health, PolicyChoice, config, replica_name},
    schema::Features,
};

/// Running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    /// Process under guard.
    pub(crate) process: Process,
    address: SocketAddr,
    admin: LoadClient,
    file: PathBuf,
    features: Features,
    policy: PolicyChoice,
    replicas: Vec<SocketAddr>,
    members: BTreeSet<u16>,
    health: Health,
}

#[derive(Deserialize)]
struct Announced {
    listeners: Vec<SocketAddr>,
    admin: SocketAddr,
}

impl Gateway {
    /// Starts the gateway with a config in `folder`.
    ///
    /// # Errors
    /// Returns an error if the gateway does not announce its addresses.
    pub(crate) fn start(
        spillway: &Path,
        spec: &ConfigSpec<'_>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let file = folder.join("spillway.toml");
        fs::write(&file, config(spec)?)?;
        let mut command: Vec<OsString> = vec![spillway.into()];
        command.extend(["--log", "warn", "run", "--json", "--config"].map(Into::into));
        command.push(file.clone().into());
        let mut process = Process::guarded("gateway", &command, &folder.join("gateway.log"))?;
        let announced: Announced =
            serde_json::from_str(&process.first_line()?).context("addresses of the gateway")?;
        Ok(Self {
            process,
            // The config has one listener.
            address: *announced.listeners.first().context("no listener")?,
            admin: LoadClient::new(announced.admin),
            file,
            features: spec.features.clone(),
            policy: spec.policy.clone(),
            replicas: spec.replicas.to_vec(),
            members: spec.members.clone(),
            health: spec.health.clone(),
        })
    }

    /// Returns the address for requests.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds replicas to the config file, which the gateway reloads by itself.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn join(&mut self, replicas: &[u16]) -> anyhow::Result<()> {
        self.members.extend(replicas);
        self.rewrite()
    }

    /// Removes a replica from the config file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn leave(&mut self, replica: u16) -> anyhow::Result<()> {
        self.members.remove(&replica);
        self.rewrite()
    }

    /// Returns true if replicas can be drained over the admin listener.
    pub(crate) async fn has_drain(&self) -> bool {
        self.admin.get("/replicas").await.is_ok()
    }

    /// Drains or resumes a replica over the admin listener.
    ///
    /// # Errors
    /// Returns an error if the gateway refuses.
    pub(crate) async fn order(&self, replica: u16, order: &str) -> anyhow::Result<()> {
        let path = format!("/replicas/{}/{order}", replica_name(replica));
        self.admin.post(&path, "").await
    }

    /// Returns the number of retries so far; `None` if the metrics cannot be read.
    pub(crate) async fn retries(&self) -> Option<u64> {
        let page = ScrapedPage::scrape(&self.admin).await.ok()?;
        Some(page.sum("spillway_retries_total", &[]) as u64)
    }

    /// Writes the config to a second file and renames it, so that the gateway never reads half a
    /// file.
    fn rewrite(&self) -> anyhow::Result<()> {
        let spec = ConfigSpec {
            features: &self.features,
            policy: &self.policy,
            replicas: &self.replicas,
            members: &self.members,
            health: &self.health,
        };
        let next = self.file.with_extension("next");
        fs::write(&next, config(&spec)?)?;
        Ok(fs::rename(next, &self.file)?)
    }
}
