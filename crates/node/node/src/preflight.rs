//! Finds what would keep a node from starting, without starting one.

use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use rustix::fs::Access;
use spillway_config::{
    ClusterConfig, ClusterPositions, Config, ConfigError, ConfigErrors, SettingPosition,
};
use spillway_front::port_holder::{PortTransport, holder_of};
use spillway_link::{CertificateFiles, CredentialError, Identity, check_certificates};

use crate::cluster::prefix_key;
use crate::workers::bound_socket;

/// Checks what a start needs of this machine: certificates, keys, folders, ports. Nothing is
/// written, and no port is listened on.
///
/// A port that can't be had is a warning: the file may be meant for another machine, or the process
/// that has the port may be the node that is to be replaced.
#[must_use]
pub fn preflight(config: &Config) -> ConfigErrors {
    let mut found = Vec::new();
    for (listener, named) in config.listeners.iter().zip(&config.places.listeners) {
        found.extend(check_tcp(listener.address, listener.shares_port, named));
    }
    if let (Some(admin), Some(named)) = (&config.admin, &config.places.admin) {
        found.extend(check_tcp(admin.address, false, named));
    }
    if let (Some(dns), Some(named)) = (&config.dns, &config.places.dns) {
        found.extend(check_udp(dns.listen, named));
        found.extend(check_tcp(dns.listen, false, named));
    }
    if let (Some(cluster), Some(places)) = (&config.cluster, &config.places.cluster) {
        found.extend(check_udp(cluster.address, &places.address));
        let (region, node) = (config.gateway.region.as_str(), config.node.as_str());
        found.extend(check_cluster(cluster, region, node, places));
    }
    if let (Some(folder), Some(named)) = (&config.usage.folder, &config.places.usage) {
        let remedy = "let the node's user write there; until then usage is kept in memory alone";
        found.extend(check_folder(folder, named, remedy));
    }
    found.into()
}

fn check_cluster(
    cluster: &ClusterConfig,
    region: &str,
    node: &str,
    places: &ClusterPositions,
) -> Vec<ConfigError> {
    let mut found = Vec::new();
    let files = CertificateFiles {
        authority: cluster.ca.clone(),
        certificate: cluster.certificate.clone(),
        key: cluster.key.clone(),
    };
    if let Ok(me) = Identity::new(&cluster.id, region, node)
        && let Err(error) = check_certificates(&files, &me)
    {
        // The node runs without its cluster until the clock or the certificate is right.
        if let CredentialError::Untimely { .. } = error {
            let remedy =
                "look at the clock first; until it is right, the node serves without its cluster";
            found.push(places.certificate.warning(error.to_string(), remedy));
            return found;
        }
        let remedy = match error {
            CredentialError::OtherIdentity { .. } => {
                "take this node's certificate, or correct [node] and the cluster's id to what it says"
            }
            _ => "`spillway certs node` makes certificate and key of a node",
        };
        found.push(places.certificate.error(error.to_string(), remedy));
    }
    if let Err(error) = prefix_key(cluster) {
        let remedy = "copy the file that `spillway certs init` made";
        found.push(places.prefix_key.error(error.to_string(), remedy));
    }
    if let (Some(folder), Some(named)) = (&cluster.data, &places.data) {
        let remedy = "let the node's user write there; until then it serves clients and takes no \
                      part in its cluster";
        found.extend(check_folder(folder, named, remedy));
    }
    found
}

/// Reason why nothing can be kept in a folder.
enum FolderFault {
    /// Something else has the name.
    NoFolder(String),
    /// The folder that it would be made in is missing: most likely a typing error.
    NoParent(String),
    /// The system refuses now.
    Closed(String),
}

/// Checks that a node can keep data in a folder. `closed` is the remedy if the system refuses.
fn check_folder(folder: &Path, named: &SettingPosition, closed: &str) -> Option<ConfigError> {
    Some(match writable(folder).err()? {
        FolderFault::NoFolder(message) => named.error(message, "name a folder"),
        FolderFault::NoParent(message) => {
            let remedy = "correct the path, or make that folder: a node makes only the last folder \
                          of the path";
            named.error(message, remedy)
        }
        // Disks get mounted, and permissions given: until then the node serves without the folder.
        FolderFault::Closed(message) => named.warning(message, closed),
    })
}

/// Checks that a folder is there or can be made in one that is there.
fn writable(folder: &Path) -> Result<(), FolderFault> {
    let told = |error: &Error| {
        FolderFault::Closed(format!("can't keep data in {}: {error}", folder.display()))
    };
    // The ancestors of a relative path end before the working folder.
    let whole = std::path::absolute(folder).map_err(|error| told(&error))?;
    let parent = whole.parent().unwrap_or(&whole);
    let existing = whole.ancestors().find(|path| path.exists()).unwrap_or(&whole);
    let about = std::fs::metadata(existing).map_err(|error| told(&error))?;
    if !about.is_dir() {
        return Err(FolderFault::NoFolder(format!("{} is no folder", existing.display())));
    }
    // Asks the kernel, which also knows of read-only disks and of users without rights.
    let access = |needed| rustix::fs::access(existing, needed).map_err(|error| told(&error.into()));
    // Without it, what is in the folder only looks as if it were missing.
    access(Access::EXEC_OK)?;
    if existing != whole && existing != parent {
        let message = format!("can't make {}: {} is missing", folder.display(), parent.display());
        return Err(FolderFault::NoParent(message));
    }
    access(Access::WRITE_OK)
}

/// Checks a TCP port. A bound socket that does not listen takes no connection.
fn check_tcp(address: SocketAddr, shares: bool, named: &SettingPosition) -> Option<ConfigError> {
    let bound = bound_socket(address, shares).map(drop);
    taken(address, PortTransport::Tcp, bound, named)
}

fn check_udp(address: SocketAddr, named: &SettingPosition) -> Option<ConfigError> {
    let bound = UdpSocket::bind(address).map(drop);
    taken(address, PortTransport::Udp, bound, named)
}

fn taken(
    address: SocketAddr,
    transport: PortTransport,
    bound: std::io::Result<()>,
    named: &SettingPosition,
) -> Option<ConfigError> {
    let error = bound.err()?;
    if error.kind() != ErrorKind::AddrInUse {
        let message = format!("this process can't listen on {address}: {error}");
        let remedy = "fine if the file is for another machine or user, else correct the address";
        return Some(named.warning(message, remedy));
    }
    let message = holder_of(address, transport)
        .unwrap_or_else(|| format!("{address} is taken by another process"));
    let remedy = "fine if that is the node to be replaced, else stop it or take another port";
    Some(named.warning(message, remedy))
}
