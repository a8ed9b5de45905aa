//! Command line of `spillway certs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cluster::{ClusterCertsCommand, Connect};

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
    keep it where certificates are made. Keys are readable by their owner alone.")]
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
    Writes a.eu-central-1.pem and a.eu-central-1-key.pem. A running node takes changed files\n\
    into use by itself."
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
    Without files or --dir, shows what the node at --admin uses. Exits with 1 if one has ended or\n\
    ends within --warn-days, if the CA does not vouch for it, or if its key is another's.")]
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
    Writes a.eu-key.pem, which stays where it is, and a.eu.csr, which goes to where the CA is."
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
    Writes a.eu.pem beside the request. Of the request it has the public key and who the node is,\n\
    and nothing else. A request for another cluster, for the rights of a CA or for names of\n\
    others is refused.")]
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
    Nothing is written before it is known that a node could run with it. A running node takes the\n\
    files into use by itself, within ten seconds; connections that stand go on.")]
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
        May be repeated: what the new CA has signed already is left as it is. Nodes whose keys are\n\
        elsewhere need `certs renew`, or `certs request` and `certs sign`.")]
    Issue {
        #[command(flatten)]
        at: RotateAt,
        /// Days for which the certificates are valid.
        #[arg(long, default_value_t = 365, value_parser = days())]
        days: u32,
    },
    /// 3: removes the old CA from ca.pem, unless a node still uses a certificate of it.
    #[command(after_help = "Example: spillway certs rotate-ca finish --dir certs --ask\n\n\
        Then copy ca.pem to every node. --ask has the node at --admin look at the certificate that\n\
        each node of the cluster shows now.")]
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
