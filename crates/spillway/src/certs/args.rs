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
    /// Makes the CA of a cluster and the secret of its prompt hashes.
    Init(InitArgs),
    /// Makes the certificate of one node.
    Node(NodeArgs),
    /// Shows whose certificates are, how long they last, and whether they can be used.
    Show(ShowArgs),
    /// Makes a node's key, and the request with which the CA makes its certificate elsewhere.
    Request(RequestArgs),
    /// Makes the certificate that a node has requested.
    Sign(SignArgs),
    /// Gives a node another certificate before the present one ends.
    Renew(RenewArgs),
    /// Replaces the CA, in three steps between which every node goes on.
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
    /// The cluster: a-z, 0-9 and `-`.
    #[arg(long)]
    pub(crate) cluster: String,
    /// Where the files go.
    #[arg(long, default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// How long the CA is valid.
    #[arg(long, default_value_t = 3_650, value_parser = days())]
    pub(crate) days: u32,
    /// Replaces files that are there. Certificates of the CA before are worth nothing then.
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
    /// Where ca.pem and ca-key.pem are.
    #[arg(long, default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// Where the node's files go, if not there too.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// The region of the node, as its config says: a-z, 0-9 and `-`.
    #[arg(long)]
    pub(crate) region: String,
    /// The node, as its config says: a-z, 0-9 and `-`.
    #[arg(long)]
    pub(crate) node: String,
    /// How long the certificate is valid.
    #[arg(long, default_value_t = 365, value_parser = days())]
    pub(crate) days: u32,
    /// Replaces files that are there.
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
    /// A folder: every certificate in it.
    #[arg(long, conflicts_with = "files")]
    pub(crate) dir: Option<PathBuf>,
    /// The cluster's CA; `ca.pem` beside each certificate, if left out.
    #[arg(long)]
    pub(crate) authority: Option<PathBuf>,
    /// Days before its end from which a certificate counts as ending.
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
    /// The cluster, as `id` in `[cluster]` says.
    #[arg(long)]
    pub(crate) cluster: String,
    /// The region of the node, as its config says.
    #[arg(long)]
    pub(crate) region: String,
    /// The node, as its config says.
    #[arg(long)]
    pub(crate) node: String,
    /// Where the key and the request go.
    #[arg(long, default_value = ".")]
    pub(crate) out: PathBuf,
    /// Uses the key that is there.
    #[arg(long)]
    pub(crate) keep_key: bool,
    /// Replaces files that are there. A node whose key is replaced before it has the certificate of the
    /// new one goes on with the old pair, but could not start again.
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
    /// The request.
    pub(crate) request: PathBuf,
    /// Where ca.pem and ca-key.pem are.
    #[arg(long, default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// Where the certificate goes, if not beside the request.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// How long the certificate is valid.
    #[arg(long, default_value_t = 365, value_parser = days())]
    pub(crate) days: u32,
    /// Replaces a certificate that is there.
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
    /// Where ca.pem and ca-key.pem are.
    #[arg(long, default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// Where a key and a certificate are that were requested, instead of making them.
    #[arg(long, conflicts_with_all = ["dir", "days"])]
    pub(crate) from: Option<PathBuf>,
    /// Where the node's files are, if not beside the CA.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// The region of the node, as its config says.
    #[arg(long)]
    pub(crate) region: String,
    /// The node, as its config says.
    #[arg(long)]
    pub(crate) node: String,
    /// How long the certificate is valid.
    #[arg(long, default_value_t = 365, value_parser = days())]
    pub(crate) days: u32,
    /// Keeps the node's key.
    #[arg(long, conflicts_with = "from")]
    pub(crate) keep_key: bool,
    /// Does nothing as long as the present certificate is good for more days than this.
    #[arg(long)]
    pub(crate) if_days_left: Option<u32>,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RotateCommand {
    /// 1: makes the next CA; ca.pem has both from now on, and goes to every node.
    #[command(after_help = "Example: spillway certs rotate-ca begin --dir certs\n\n\
        Then copy ca.pem to every node, and wait until `spillway certs show --admin` has two\n\
        authorities at each of them.")]
    Begin {
        #[command(flatten)]
        at: RotateAt,
        /// How long the next CA is valid.
        #[arg(long, default_value_t = 3_650, value_parser = days())]
        days: u32,
    },
    /// 2: has the new CA sign, and renews the nodes' certificates that are in the folder with their keys.
    #[command(after_help = "Example: spillway certs rotate-ca issue --dir certs\n\n\
        May be repeated: what the new CA has signed already is left as it is. Nodes whose keys are\n\
        elsewhere need `certs renew`, or `certs request` and `certs sign`.")]
    Issue {
        #[command(flatten)]
        at: RotateAt,
        /// How long the certificates are valid.
        #[arg(long, default_value_t = 365, value_parser = days())]
        days: u32,
    },
    /// 3: takes the old CA out of ca.pem, unless a node still has a certificate of it.
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
    /// Where ca.pem and ca-key.pem are.
    #[arg(long, default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FinishAt {
    /// Where ca.pem and ca-key.pem are.
    #[arg(long, default_value = "certs")]
    pub(crate) dir: PathBuf,
    /// Certificates of nodes that have to be of the new CA, besides those in the folder.
    pub(crate) certificates: Vec<PathBuf>,
    /// Asks the cluster which certificates its nodes show now.
    #[arg(long)]
    pub(crate) ask: bool,
    #[command(flatten)]
    pub(crate) connect: Connect,
}
