//! Commands about members: nodes, their rights, and revoked certificates.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Value, json};
use spillway_link::certs::serial_of_pem;
use spillway_node::Resource;

use crate::cluster::calls::{change, show};
use crate::cluster::change_args::ChangeArgs;
use crate::cluster::client::AdminClient;
use crate::cluster::records::kind::path_of;
use crate::connect::Connect;

#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    command: NodesCommand,
}

#[derive(Debug, Subcommand)]
enum NodesCommand {
    /// Allows or forbids a node to send operators' orders.
    #[command(after_help = "Example: spillway nodes operators n3 allow")]
    Operators {
        /// Name of the node.
        name: String,
        /// Permission of the node.
        #[arg(value_enum)]
        permission: Permission,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Allows a removed node to join again, as a new member.
    #[command(after_help = "Example: spillway nodes readmit n3\n\n\
        `spillway get removed-nodes` lists the removed nodes.")]
    Readmit {
        /// Name of the node.
        name: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Lets a node vote with an outdated disk, before a leader has brought it up to date.
    #[command(
        after_help = "Example: spillway nodes trust-disk n2 --yes --admin http://127.0.0.1:9902\n\n\
        Only for a cluster that can't elect a leader because the missing voters are lost permanently: \
        entries that neither this disk nor the other remaining ones have are lost. Only the node itself \
        accepts the order, so give its address."
    )]
    TrustDisk {
        /// Name of the node.
        name: String,
        /// Confirms that the missing voters are lost permanently.
        #[arg(long)]
        yes: bool,
    },
}

/// Permission that a node has or has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Permission {
    /// It is.
    Allow,
    /// It is not.
    Deny,
}

/// Commands about certificates that no node is to accept.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCertsCommand {
    /// Makes all nodes refuse a certificate, and closes its connections at once.
    Revoke(RevokeArgs),
    /// Withdraws a revocation.
    #[command(after_help = "Example: spillway certs unrevoke 5c1d0a9b\n\n\
        `spillway get revoked-certificates` lists the revoked certificates.")]
    Unrevoke {
        #[command(flatten)]
        connect: Connect,
        /// The certificate's hexadecimal serial number, or its PEM file.
        certificate: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway certs revoke certs/edge-1.edge.pem --reason stolen\n\
    Example: spillway certs revoke 5C:1D:0A:9B\n\
    Example: spillway certs revoke certs/edge-1.edge.pem --local --dir certs\n\n\
    Without --local a majority of the voters has to agree. With it the CA's key signs the list, and\n\
    all nodes get it from the first one that has the file.")]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// The certificate's hexadecimal serial number, or its PEM file.
    pub(crate) certificate: String,
    /// Reason, for people who read the list.
    #[arg(long, default_value = "", conflicts_with = "local")]
    pub(crate) reason: String,
    /// Writes a revocation list signed with the CA's key to a file, without contacting a node.
    #[arg(long, conflicts_with = "if_version")]
    pub(crate) local: bool,
    /// Folder with ca.pem and ca-key.pem, for --local.
    #[arg(long, default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// The file of --local, by default revoked.pem in that folder. Lists in it are kept.
    #[arg(long, requires = "local")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

pub(crate) async fn nodes(args: &NodesArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    match &args.command {
        NodesCommand::Operators { name, permission, change: how } => {
            let path = format!("{}/operators", path_of(Resource::Nodes, name)?);
            let body = json!({ "operators": *permission == Permission::Allow });
            change(&client, Method::POST, &path, Some(&body), how).await
        }
        NodesCommand::Readmit { name, change: how } => {
            let path = path_of(Resource::RemovedNodes, name)?;
            change(&client, Method::DELETE, &path, None, how).await
        }
        NodesCommand::TrustDisk { name, yes } => trust_disk(&client, name, *yes).await,
    }
}

async fn trust_disk(client: &AdminClient, name: &str, is_meant: bool) -> Result<()> {
    if !is_meant {
        bail!(
            "{name} would vote without what its disk lacks, which is lost if no other voter has it; \
             start the voters that are away, or say --yes if they are gone for good"
        );
    }
    let path = format!("{}/trust-disk", path_of(Resource::Nodes, name)?);
    let answer = client.change(Method::POST, &path, None, &ChangeArgs::default()).await?;
    show(client, &answer, &format!("{name} votes with its disk as it is"))
}

pub(crate) async fn certs(command: &ClusterCertsCommand) -> Result<()> {
    match command {
        ClusterCertsCommand::Revoke(args) => {
            let body = json!({ "reason": args.reason });
            let path = certificate_path(&args.certificate)?;
            put_or_remove(&args.connect, Method::PUT, &path, Some(&body), &args.change).await
        }
        ClusterCertsCommand::Unrevoke { connect, certificate, change: how } => {
            put_or_remove(connect, Method::DELETE, &certificate_path(certificate)?, None, how).await
        }
    }
}

async fn put_or_remove(
    connect: &Connect,
    method: Method,
    path: &str,
    body: Option<&Value>,
    how: &ChangeArgs,
) -> Result<()> {
    change(&AdminClient::new(connect)?, method, path, body, how).await
}

fn certificate_path(certificate: &str) -> Result<String> {
    path_of(Resource::RevokedCertificates, &serial(certificate)?)
}

/// Returns a serial number, read from the certificate if the text names a file.
pub(crate) fn serial(certificate: &str) -> Result<String> {
    let path = Path::new(certificate);
    if !path.exists() {
        let is_serial = certificate.bytes().all(|it| it.is_ascii_hexdigit() || it == b':');
        anyhow::ensure!(
            is_serial && !certificate.is_empty(),
            "{certificate:?} is neither a file nor a serial number in hexadecimal digits"
        );
        // Other tools show serial numbers with colons and in capitals.
        return Ok(certificate.replace(':', "").to_ascii_lowercase());
    }
    let pem = std::fs::read(path).with_context(|| format!("{certificate} can't be read"))?;
    serial_of_pem(&pem).with_context(|| format!("{certificate} holds no certificate in PEM form"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_named_by_number_or_file() {
        assert_eq!(serial("5C:1D").unwrap(), "5c1d");
        assert!(serial("").is_err() && serial("no-such-file.pem").is_err());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pem");
        let real = certificate_in(folder.path());
        std::fs::write(&file, "no certificate").unwrap();
        assert!(serial(file.to_str().unwrap()).is_err());
        assert!(!serial(&real).unwrap().is_empty());
    }

    fn certificate_in(folder: &Path) -> String {
        use spillway_link::certs::{Authority, Validity};
        let validity = Validity::days(std::time::SystemTime::now(), 1).unwrap();
        let path = folder.join("ca.pem");
        std::fs::write(&path, Authority::new("test", validity).unwrap().certificate_pem()).unwrap();
        path.to_str().unwrap().to_owned()
    }
}
