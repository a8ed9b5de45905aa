//! Command line of `spillway certs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cluster::ClusterCertsCommand;
use crate::connect::Connect;

/// Returns a parser of the number of days that a certificate may be valid.
fn days() -> impl clap::builder::TypedValueParser<Value = u32> {
    clap::builder::RangedU64ValueParser::<u32>::new().range(1..=36_500)
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertsCommand {
    /// Creates the CA of a cluster and the secret of its prompt hashes.
    Init(InitArgs),
    /// Creates the certificate of a node.
    Node(NodeArgs),
    /// Shows the subjects of certificates, when they expire, and whether they can be used.
    Show(ShowArgs),
    /// Creates a node's key, and a certificate request to sign on the CA's machine.
    Request(RequestArgs),
    /// Signs a node's certificate request.
    Sign(SignArgs),
    /// Renews a node's certificate before it expires.
    Renew(RenewArgs),
    /// Replaces the CA in three steps, while all nodes keep running.
    RotateCa {
        #[command(subcommand)]
        command: RotateCommand,
    },
    #[command(flatten)]
    Cluster(ClusterCertsCommand),
}

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway certs init --cluster prod --dir certs\n\n\
    Writes ca.pem and prefix.key, which every node needs, and ca-key.pem, which no node needs:\n\
    keep it where you create certificates. Keys are readable only by their owner.")]
pub(crate) struct InitArgs {
    /// Name of the cluster: a-z, 0-9 and `-`.
    #[arg(long)]
    pub(crate) cluster: String,
    /// Folder for the files.
    #[arg(long, default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// Days for which the CA is valid.
    #[arg(long, default_value_t = 3_650, value_parser = days())]
    pub(crate) days: u32,
    /// Replaces existing files. Certificates of the previous CA become useless.
    #[arg(long)]
    pub(crate) force: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example: spillway certs node --dir certs --region eu-central-1 --node a\n\n\
    Writes a.eu-central-1.pem and a.eu-central-1-key.pem. A running node reloads changed files\n\
    automatically."
)]
pub(crate) struct NodeArgs {
    /// Folder with ca.pem and ca-key.pem.
    #[arg(long, default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// Folder for the node's files, if it differs from that of the CA.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// The region of the node, as in its config: a-z, 0-9 and `-`.
    #[arg(long)]
    pub(crate) region: String,
    /// The name of the node, as in its config: a-z, 0-9 and `-`.
    #[arg(long)]
    pub(crate) node: String,
    /// Days for which the certificate is valid.
    #[arg(long, default_value_t = 365, value_parser = days())]
    pub(crate) days: u32,
    /// Replaces existing files.
    #[arg(long)]
    pub(crate) force: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway certs show --dir certs --warn-days 30\n\
    Example: spillway certs show /etc/spillway/a.eu.pem --authority /etc/spillway/ca.pem\n\
    Example: spillway certs show --admin https://10.0.0.7:9900 --ca admin-ca.pem\n\n\
    Without files or --dir, shows the certificates of the node at --admin. Exits with 1 if one has\n\
    expired or expires within --warn-days, if it is not from the CA, or if its key does not match.")]
pub(crate) struct ShowArgs {
    /// Certificates in PEM form.
    pub(crate) files: Vec<PathBuf>,
    /// A folder, to show every certificate in it.
    #[arg(long, conflicts_with = "files")]
    pub(crate) dir: Option<PathBuf>,
    /// The cluster's CA; by default `ca.pem` in the folder of each certificate.
    #[arg(long)]
    pub(crate) authority: Option<PathBuf>,
    /// Days before expiry from which a certificate counts as expiring.
    #[arg(long, default_value_t = 21)]
    pub(crate) warn_days: u32,
    #[command(flatten)]
    pub(crate) connect: Connect,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example: spillway certs request --cluster prod --region eu --node a --out /etc/spillway\n\n\
    Writes a.eu-key.pem, which stays on the node, and a.eu.csr, to be copied to the CA's machine."
)]
pub(crate) struct RequestArgs {
    /// The cluster, as in `id` of `[cluster]`.
    #[arg(long)]
    pub(crate) cluster: String,
    /// The region of the node, as in its config.
    #[arg(long)]
    pub(crate) region: String,
    /// The name of the node, as in its config.
    #[arg(long)]
    pub(crate) node: String,
    /// Folder for the key and the request.
    #[arg(long, default_value = ".")]
    pub(crate) out: PathBuf,
    /// Uses the existing key.
    #[arg(long)]
    pub(crate) keep_key: bool,
    /// Replaces existing files. A node whose key is replaced before it has the new certificate
    /// keeps running with the old pair, but can't restart.
    #[arg(long, conflicts_with = "keep_key")]
    pub(crate) force: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway certs sign a.eu.csr --dir certs\n\n\
    Writes a.eu.pem next to the request. It uses only the public key and the node's identity of the\n\
    request. A request for another cluster, for the rights of a CA or for other nodes' names is\n\
    refused.")]
pub(crate) struct SignArgs {
    /// The certificate request.
    pub(crate) request: PathBuf,
    /// Folder with ca.pem and ca-key.pem.
    #[arg(long, default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// File for the certificate, by default next to the request.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Days for which the certificate is valid.
    #[arg(long, default_value_t = 365, value_parser = days())]
    pub(crate) days: u32,
    /// Replaces an existing certificate.
    #[arg(long)]
    pub(crate) force: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway certs renew --dir certs --region eu --node a\n\
    Example: spillway certs renew --from /etc/spillway/next --region eu --node a \
      --out /etc/spillway\n\n\
    Files are written only after a check that a node can run with them. A running node reloads the\n\
    files automatically, within ten seconds; open connections continue.")]
pub(crate) struct RenewArgs {
    /// Folder with ca.pem and ca-key.pem.
    #[arg(long, default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// Folder with a key and a certificate made on request, to use instead of new ones.
    #[arg(long, conflicts_with_all = ["dir", "days"])]
    pub(crate) from: Option<PathBuf>,
    /// Folder with the node's files, by default that of the CA.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// The region of the node, as in its config.
    #[arg(long)]
    pub(crate) region: String,
    /// The name of the node, as in its config.
    #[arg(long)]
    pub(crate) node: String,
    /// Days for which the certificate is valid.
    #[arg(long, default_value_t = 365, value_parser = days())]
    pub(crate) days: u32,
    /// Keeps the node's key.
    #[arg(long, conflicts_with = "from")]
    pub(crate) keep_key: bool,
    /// Does nothing if the current certificate is valid for more than this number of days.
    #[arg(long)]
    pub(crate) if_days_left: Option<u32>,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RotateCommand {
    /// 1: creates the next CA; from now on ca.pem has both CAs, and must be copied to every node.
    #[command(after_help = "Example: spillway certs rotate-ca begin --dir certs\n\n\
        Then copy ca.pem to every node, and wait until `spillway certs show --admin` has two\n\
        authorities at each of them.")]
    Begin {
        #[command(flatten)]
        at: RotateAt,
        /// Days for which the next CA is valid.
        #[arg(long, default_value_t = 3_650, value_parser = days())]
        days: u32,
    },
    /// 2: signs with the new CA, and renews those certificates of nodes that are in the folder with
    /// their keys.
    #[command(after_help = "Example: spillway certs rotate-ca issue --dir certs\n\n\
        Can be repeated: certificates from the new CA are kept. Nodes whose keys are elsewhere need\n\
        `certs renew`, or `certs request` and `certs sign`.")]
    Issue {
        #[command(flatten)]
        at: RotateAt,
        /// Days for which the certificates are valid.
        #[arg(long, default_value_t = 365, value_parser = days())]
        days: u32,
    },
    /// 3: removes the old CA from ca.pem, unless a node still uses a certificate of it.
    #[command(after_help = "Example: spillway certs rotate-ca finish --dir certs --ask\n\n\
        Then copy ca.pem to every node. With --ask the node at --admin checks the certificate that\n\
        each node of the cluster presents now.")]
    Finish {
        #[command(flatten)]
        at: FinishAt,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RotateAt {
    /// Folder with ca.pem and ca-key.pem.
    #[arg(long, default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FinishAt {
    /// Folder with ca.pem and ca-key.pem.
    #[arg(long, default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// Further certificates of nodes, besides those in the folder, that must be from the new CA.
    pub(crate) certificates: Vec<PathBuf>,
    /// Asks the cluster which certificates its nodes present now.
    #[arg(long)]
    pub(crate) ask: bool,
    #[command(flatten)]
    pub(crate) connect: Connect,
}
