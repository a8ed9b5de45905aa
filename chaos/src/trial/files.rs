//! Certificates and configs of a trial's nodes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use spillway_harness::certs;

use super::site::{ADMIN_PORT, DATA_PORT, LINK_PORT, REPLICA_PORT, TrialSite};

/// Name of the cluster.
const CLUSTER: &str = "chaos";

/// Makes the certificates with `spillway certs` and writes each node's config. Returns the paths of
/// the configs.
pub(crate) fn write(
    binary: &Path,
    folder: &Path,
    sites: &[TrialSite],
) -> anyhow::Result<Vec<PathBuf>> {
    let folder_of_certs = folder.join("certs");
    certs(binary, &folder_of_certs, &["init", "--cluster", CLUSTER])?;
    let mut paths = Vec::new();
    for site in sites {
        let arguments = ["node", "--region", &site.region, "--node", &site.name];
        certs(binary, &folder_of_certs, &arguments)?;
        let path = folder.join(format!("{}.toml", site.name));
        std::fs::write(&path, config(folder, site, sites, None)?).context("write a config")?;
        paths.push(path);
    }
    Ok(paths)
}

/// Writes the configs of a cluster that the last `joiners` sites join later. A joining node knows
/// only the first node, and the other nodes do not know the joining ones.
pub(crate) fn write_joining(
    folder: &Path,
    sites: &[TrialSite],
    joiners: usize,
) -> anyhow::Result<()> {
    let founders = &sites[..sites.len() - joiners];
    for (index, site) in sites.iter().enumerate() {
        let text = if index < founders.len() {
            config(folder, site, founders, None)?
        } else {
            // A joining node knows one member only; it learns the others from the cluster.
            config(folder, site, &sites[..1], Some(&token(folder, site)))?
        };
        let path = folder.join(format!("{}.toml", site.name));
        std::fs::write(&path, text).context("write a config")?;
    }
    Ok(())
}

/// Returns the path of a node's join token.
pub(crate) fn token(folder: &Path, site: &TrialSite) -> PathBuf {
    folder.join(format!("{}.token", site.name))
}

/// Returns the folder of a node's log and state.
pub(crate) fn data(folder: &Path, site: &TrialSite) -> PathBuf {
    folder.join(format!("{}.data", site.name))
}

fn config(
    folder: &Path,
    site: &TrialSite,
    sites: &[TrialSite],
    token: Option<&Path>,
) -> Result<String, std::fmt::Error> {
    let certs = folder.join("certs");
    let TrialSite { name, region, public, .. } = site;
    let mut text = String::new();
    writeln!(text, "[node]\nname = {name:?}\nregion = {region:?}\nworkers = 1\ndrain_ms = 2000")?;
    writeln!(text, "drain_notice_ms = {}", site.profile.drain_notice_ms)?;
    writeln!(text, "[admin]\naddress = \"127.0.0.1:{ADMIN_PORT}\"")?;
    writeln!(text, "[[listener]]\naddress = \"127.0.0.1:{DATA_PORT}\"\n{}", site.profile.listener)?;
    writeln!(text, "[cluster]\nid = {CLUSTER:?}\naddress = \"0.0.0.0:{LINK_PORT}\"")?;
    writeln!(text, "advertise = \"{public}\"\ndata = {:?}", data(folder, site))?;
    if let Some(token) = token {
        writeln!(text, "join_token_file = {token:?}")?;
    }
    writeln!(text, "ca = {:?}\nprefix_key = {:?}", certs.join("ca.pem"), certs.join("prefix.key"))?;
    writeln!(text, "certificate = {:?}", certs.join(format!("{name}.{region}.pem")))?;
    writeln!(text, "key = {:?}", certs.join(format!("{name}.{region}-key.pem")))?;
    for other in sites.iter().filter(|other| other.name != *name) {
        let TrialSite { name, region, public, .. } = other;
        writeln!(text, "[[peer]]\nname = {name:?}\nregion = {region:?}\naddress = \"{public}\"")?;
    }
    for (region, rtt_ms) in &site.rtts_ms {
        writeln!(text, "[[region]]\nname = {region:?}\nrtt_ms = {rtt_ms}")?;
    }
    if site.has_replica {
        writeln!(text, "[[replica]]\nname = \"{name}-gpu\"\nmodels = [\"tiny\"]")?;
        writeln!(text, "url = \"http://127.0.0.1:{REPLICA_PORT}\"")?;
        writeln!(text, "connections_max = {}", site.profile.slots)?;
    }
    Ok(text)
}
