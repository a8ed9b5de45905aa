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

use super::{
    config::{ConfigSpec, Health, PolicyChoice, config, replica_name},
    control,
    schema::Features,
};
use crate::guard::Guarded;

/// Lines of the log to show in an error.
const LOG_LINES: usize = 5;

/// Running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    guarded: Guarded,
    address: SocketAddr,
    admin: SocketAddr,
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
        let mut guarded = Guarded::spawn("gateway", &command, &folder.join("gateway.log"))?;
        let announced: Announced =
            serde_json::from_str(&guarded.first_line()?).context("addresses of the gateway")?;
        Ok(Self {
            guarded,
            // The config has one listener.
            address: *announced.listeners.first().context("no listener")?,
            admin: announced.admin,
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
        let reply = control::get(self.admin, "/replicas").await;
        reply.is_ok_and(|(status, _)| status.is_success())
    }

    /// Drains or resumes a replica over the admin listener.
    ///
    /// # Errors
    /// Returns an error if the gateway refuses.
    pub(crate) async fn order(&self, replica: u16, order: &str) -> anyhow::Result<()> {
        let path = format!("/replicas/{}/{order}", replica_name(replica));
        let (status, reply) = control::post(self.admin, &path, "").await?;
        let text = String::from_utf8_lossy(&reply);
        anyhow::ensure!(status.is_success(), "{path}: {status} {text}");
        Ok(())
    }

    /// Returns the number of retries so far; `None` if the metrics cannot be read.
    pub(crate) async fn retries(&self) -> Option<u64> {
        let (status, text) = control::get(self.admin, "/metrics").await.ok()?;
        let text = std::str::from_utf8(&text).ok().filter(|_| status.is_success())?;
        Some(sum_of(text, "spillway_retries_total"))
    }

    /// Returns an error with the end of the log if the gateway has ended.
    pub(crate) fn check_alive(&mut self) -> anyhow::Result<()> {
        self.guarded.check_alive()
    }

    /// Returns the last lines of the log.
    pub(crate) fn last_words(&self) -> String {
        let log = self.guarded.log_text();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
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

/// Sums all series of one counter.
fn sum_of(metrics: &str, name: &str) -> u64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let labelled = rest.starts_with('{') || rest.starts_with(' ');
        rest.rsplit(' ').next().filter(|_| labelled)?.parse::<u64>().ok()
    };
    metrics.lines().filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_summed_over_its_labels_and_nothing_else() {
        let text = "# TYPE spillway_retries counter\nspillway_retries_total{cause=\"reset\"} 3\n\
                    spillway_retries_total{cause=\"unsent\"} 4\nspillway_retries_total_x 9\n\
                    spillway_retries_refused_total 5\n";
        assert_eq!(sum_of(text, "spillway_retries_total"), 7);
        assert_eq!(sum_of(text, "spillway_retries_refused_total"), 5);
    }
}
