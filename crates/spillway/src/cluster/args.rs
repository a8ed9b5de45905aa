//! Command line of the commands about a cluster.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::backup_args::{BackupArgs, BackupKeyArgs, RestoreArgs};
use super::connect::Connect;
use super::limit_args::PutLimit;
use super::members::NodesArgs;
use super::resource_args::{ChangeArgs, ResourceArgs, StatusArgs};

/// Commands about what the nodes of a cluster agree on.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Shows who leads, who votes, and how far a node has come.
    #[command(after_help = "Example: spillway status --admin http://127.0.0.1:9900")]
    Status(StatusArgs),
    /// Shows or changes nodes.
    #[command(after_help = "Example: spillway nodes put c '{\"role\": \"learner\"}' --dry-run\n\
        Example: spillway nodes remove c --dry-run\n\
        Example: spillway nodes set c --operators allow\n\
        Example: spillway nodes readmit c\n\n\
        A removed node never comes back with its disk: it joins anew, with an empty folder.")]
    Nodes(NodesArgs),
    /// Shows or changes regions.
    #[command(after_help = "Example: spillway regions\n\
        Example: spillway regions put eu '{\"country\": \"DE\", \"price_ms\": 5}'")]
    Regions(ResourceArgs),
    /// Shows or changes what names of models stand for.
    #[command(after_help = "Example: spillway models put small '{\"fallbacks\": [\"big\"]}'\n\
        Example: spillway models put gpt '{\"alias_of\": \"meta/llama-3.1-8b\"}' --dry-run")]
    Models(ResourceArgs),
    /// Shows or changes routes.
    #[command(after_help = "Example: spillway routes put chat \
        '{\"models\": [\"big\"], \"policy\": \"power_of_two\"}'")]
    Routes(ResourceArgs),
    /// Shows or changes splits.
    #[command(after_help = "Example: spillway splits put big '{\"arms\": [\
        {\"name\": \"old\", \"model\": \"big-1\", \"weight_percent\": 90}, \
        {\"name\": \"new\", \"model\": \"big-2\", \"weight_percent\": 10}]}'")]
    Splits(ResourceArgs),
    /// Shows or changes limits: `global`, `tenant:NAME`, `model:NAME` or `key:ID`.
    #[command(after_help = "Example: spillway limits put tenant:acme --requests-per-min 600 \
        --tokens-per-min 600000\n\
        Example: spillway limits put key:5c1d0a9be2f34a77 '{\"requests_per_s\": 50}'\n\
        Example: spillway limits put global global.json")]
    Limits(ResourceArgs<PutLimit>),
    /// Shows or changes tenants.
    #[command(after_help = "Example: spillway tenants put acme '{\"title\": \"Acme\"}'\n\
        Example: spillway tenants put acme '{\"countries\": [\"DE\", \"FR\"]}'\n\n\
        A record is written as a whole: what is left out gets its default.")]
    Tenants(ResourceArgs),
    /// Shows or changes settings of the whole cluster.
    #[command(after_help = "Example: spillway settings\n\
        Example: spillway settings put voters.dead_after_ms 30000")]
    Settings(ResourceArgs),
    /// Gives a region no work from elsewhere, or a replica no new work.
    #[command(after_help = "Example: spillway drain eu-central-1\n\
        Example: spillway drain eu-central-1/gpu-1 --dry-run\n\
        Example: spillway drain eu-central-1 --evacuate")]
    Drain(DrainArgs),
    /// Gives a region or a replica work again.
    #[command(after_help = "Example: spillway undrain eu-central-1/gpu-1")]
    Undrain(UndrainArgs),
    /// Sets how much work a region or a replica takes.
    #[command(after_help = "Example: spillway weight eu-central-1 50\n\
        Example: spillway weight eu-central-1/gpu-1 3\n\
        Example: spillway weight eu-central-1/gpu-1 own")]
    Weight(WeightArgs),
    /// Makes, shows or removes what lets nodes join.
    #[command(after_help = "Example: spillway join-token create --region eu-central-1 --hours 2 \
        > join.token\n\
        Example: spillway join-token remove 5c1d0a9be2f34a77\n\n\
        The new node's config names the file as `join_token_file` in [cluster].")]
    JoinToken(JoinTokenArgs),
    /// Writes all that the nodes agree on into a file.
    #[command(after_help = "Example: spillway backup state.backup.age --encrypt-to age1...\n\
        Example: spillway backup state.backup.age --passphrase-file backup.passphrase\n\n\
        An encrypted backup is a file of age-encryption.org/v1: `age` and `rage` read it, too.")]
    Backup(BackupArgs),
    /// Makes a private key for backups and prints its public key, for `backup --encrypt-to`.
    #[command(after_help = "Example: spillway backup-key backup.key\n\n\
        Keep it away from the nodes: they need the public key alone.")]
    BackupKey(BackupKeyArgs),
    /// Makes the data folder of a new cluster's first node from a backup. The node must not run.
    #[command(after_help = "Example: spillway restore state.backup --folder data --node a\n\n\
        The node begins alone, with the number that it had. The others join with empty folders and \
        a token, under their old names if they like: see docs/explanation/control-plane.md.\n\n\
        An encrypted backup needs --passphrase-file or --identity.")]
    Restore(RestoreArgs),
    /// Makes a node's data folder that of a new cluster, when most voters are gone for good.
    #[command(after_help = "Example: spillway force-new-cluster --folder data --node a \
        --region eu-central-1 --yes\n\n\
        The node must not run. Nodes of the old cluster can't join with their folders: empty them, \
        and let them join by token. See docs/explanation/control-plane.md.")]
    ForceNewCluster(ForceArgs),
}

/// Commands about the keys that the cluster agrees on.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterKeysCommand {
    /// Lists the keys of the cluster.
    #[command(after_help = "Example: spillway keys list")]
    List(StatusArgs),
    /// Makes a key of the cluster and shows its secret, once.
    #[command(after_help = "Example: spillway keys create --tenant acme --model big\n\
        Example: spillway keys create --role operate --days 90")]
    Create(CreateKeyArgs),
    /// Ends a key of the cluster for good.
    #[command(after_help = "Example: spillway keys revoke 5c1d0a9be2f34a77")]
    Revoke(OneKeyArgs),
    /// Removes a key of the cluster, with its limit.
    #[command(after_help = "Example: spillway keys remove 5c1d0a9be2f34a77 --dry-run")]
    Remove(OneKeyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OneKeyArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Which.
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CreateKeyArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// What it is good for: client, read, operate or admin.
    #[arg(long, default_value = "client")]
    pub(crate) role: String,
    /// Whose requests they are; clients need one.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// A model that it may ask for; several times for several. All without.
    #[arg(long = "model")]
    pub(crate) models: Vec<String>,
    /// A region that may serve it; several times for several. All without.
    #[arg(long = "region")]
    pub(crate) regions: Vec<String>,
    /// Class of its requests: 0 is served first.
    #[arg(long, default_value_t = 0)]
    pub(crate) priority: u8,
    /// For how long it is good. For ever without.
    #[arg(long)]
    pub(crate) days: Option<u32>,
    /// What it is called; drawn if it is left out.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Shows what would change, and makes nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// A region, or a replica as REGION/REPLICA.
    pub(crate) target: String,
    /// Sends a region's own work elsewhere too, and its votes: before it is removed.
    #[arg(long)]
    pub(crate) evacuate: bool,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UndrainArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// A region, or a replica as REGION/REPLICA.
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WeightArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// A region, or a replica as REGION/REPLICA.
    pub(crate) target: String,
    /// Of a region: percent of the usual, e.g. 50 or 12.5; more than 100 needs the sign, as 150%.
    /// Of a replica: its share against the others, 1 to 1,000, or `own`.
    pub(crate) weight: String,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct JoinTokenArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(subcommand)]
    pub(crate) command: Option<JoinTokenCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JoinTokenCommand {
    /// Lists all; the same as no command.
    List,
    /// Makes a token and shows its secret, once.
    Create {
        /// The only region that it is good for.
        #[arg(long)]
        region: Option<String>,
        /// For how long it is good.
        #[arg(long, default_value_t = 1)]
        hours: u64,
        /// How many nodes may join by it.
        #[arg(long, default_value_t = 1)]
        uses: u32,
        /// Lets operators' orders come from nodes that join by it.
        #[arg(long)]
        operators: bool,
        /// Shows what would change, and makes nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Removes a token.
    Remove {
        /// Which.
        token: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ForceArgs {
    #[command(flatten)]
    pub(crate) founder: FounderArgs,
    /// Most voters of the old cluster are gone for good.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Who begins a new cluster.
#[derive(Debug, Args)]
pub(crate) struct FounderArgs {
    /// The node's data folder.
    #[arg(long)]
    pub(crate) folder: PathBuf,
    /// The node, as its config says.
    #[arg(long)]
    pub(crate) node: String,
    /// Its region, as its config says.
    #[arg(long)]
    pub(crate) region: String,
    /// Checks all, and changes nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
