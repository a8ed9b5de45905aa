//! Command line of the commands about a cluster.

use clap::{Args, Subcommand};

use super::change_args::ChangeArgs;
use super::debug::DebugArgs;
use super::files::backup_args::{BackupArgs, BackupKeyArgs, RestoreArgs};
use super::files::offline_args::ForceArgs;
use super::orders::leader::LeaderArgs;
use super::orders::members::NodesArgs;
use super::orders::target_args::{DrainArgs, UndrainArgs, WeightArgs};
use super::records::apply::ApplyArgs;
use super::records::edit::EditArgs;
use super::records::get::GetArgs;
use super::records::import::ImportArgs;
use super::records::limits::LimitsArgs;
use super::records::names::NamesArgs;
use super::records::remove::RemoveArgs;
use super::records::splits::SplitsArgs;
use super::view::audit::AuditArgs;
use super::view::top::TopArgs;
use super::view::usage::UsageArgs;
use super::view::watch::WatchArgs;
use crate::connect::Connect;

/// Commands about what the nodes of a cluster agree on.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Shows the health of a node and its cluster; exits with 0 if healthy, else with 1.
    #[command(after_help = "Example: spillway status --admin http://127.0.0.1:9900\n\n\
        The first line is a summary; exit code 0 means that it begins with `healthy`.")]
    Status(Connect),
    /// Shows regions, replicas and failing requests, updated every second.
    Top(TopArgs),
    /// Prints names that exist, for completions of shells.
    #[command(hide = true)]
    Names(NamesArgs),
    /// Shows the audit trail of the cluster.
    Audit(AuditArgs),
    /// Shows changes in the cluster as they happen.
    Watch(WatchArgs),
    /// Shows the leader, or transfers leadership.
    Leader(LeaderArgs),
    /// Collects the files that support needs to analyse a problem, in a folder.
    Debug(DebugArgs),
    /// Changes which nodes may send orders, join again or vote.
    Nodes(NodesArgs),
    /// Sets limits: `global`, `tenant:NAME`, `model:NAME` or `key:ID`.
    Limits(LimitsArgs),
    /// Sets the arms of splits, and steers their rollouts.
    Splits(SplitsArgs),
    /// Shows the usage of clients and its cost, over all nodes.
    #[command(after_help = "Example: spillway usage --by tenant\n\
        Example: spillway usage --tenant acme --since 2026-11-01 --by day,model --json\n\n\
        Prices are those of [[price]] in the configs. Nodes that don't answer are listed; the usage of \
        their clients is missing.")]
    Usage(UsageArgs),
    /// Shows records of the cluster: one, or all of a kind; without a kind, lists the kinds.
    Get(GetArgs),
    /// Writes fields of a record, or all records of files that differ from the cluster's.
    Apply(ApplyArgs),
    /// Changes a record of the cluster in an editor.
    Edit(EditArgs),
    /// Removes a record and everything that belongs to it.
    Remove(RemoveArgs),
    /// Imports the tenants, keys, limits and names of a config file into the cluster.
    #[command(after_help = "Example: spillway import /etc/spillway/spillway.toml --dry-run\n\n\
        Can be repeated: equal records are left unchanged, and records that were changed since are \
        reset to the file. Replicas need no import, because their nodes register them.")]
    Import(ImportArgs),
    /// Stops sending requests from other regions to a region, or new requests to a replica.
    #[command(after_help = "Example: spillway drain eu-central-1\n\
        Example: spillway drain eu-central-1/gpu-1 --dry-run\n\
        Example: spillway drain eu-central-1 --evacuate")]
    Drain(DrainArgs),
    /// Sends requests to a region or a replica again.
    #[command(after_help = "Example: spillway undrain eu-central-1/gpu-1")]
    Undrain(UndrainArgs),
    /// Sets the share of requests that a region or a replica takes.
    #[command(after_help = "Example: spillway weight eu-central-1 50\n\
        Example: spillway weight eu-central-1/gpu-1 3\n\
        Example: spillway weight eu-central-1/gpu-1 own")]
    Weight(WeightArgs),
    /// Creates tokens with which nodes join.
    JoinToken(JoinTokenArgs),
    /// Writes the cluster's replicated state to a file.
    #[command(after_help = "Example: spillway backup state.backup.age --encrypt-to age1...\n\
        Example: spillway backup state.backup.age --passphrase-file backup.passphrase\n\n\
        An encrypted backup is a file of age-encryption.org/v1: `age` and `rage` read it, too.")]
    Backup(BackupArgs),
    /// Creates a private key for backups and prints its public key, for `backup --encrypt-to`.
    #[command(after_help = "Example: spillway backup-key backup.key\n\n\
        Keep it away from the nodes: they need only the public key.")]
    BackupKey(BackupKeyArgs),
    /// Creates the data folder of a new cluster's first node from a backup. The node must not be
    /// running.
    #[command(after_help = "Example: spillway restore state.backup --folder data --node a\n\n\
        The node starts alone, with its old number. The others join with empty folders and a token, \
        also under their old names: see docs/explanation/control-plane.md.\n\n\
        An encrypted backup needs --passphrase-file or --identity.")]
    Restore(RestoreArgs),
    /// Turns a node's data folder into that of a new cluster, when most voters are lost
    /// permanently.
    #[command(after_help = "Example: spillway force-new-cluster --folder data --node a \
        --region eu-central-1 --yes\n\n\
        The node must not be running. Nodes of the old cluster can't join with their folders: empty \
        them, and let the nodes join with a token. See docs/explanation/control-plane.md.")]
    ForceNewCluster(ForceArgs),
}

/// Commands about the keys that the cluster agrees on.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterKeysCommand {
    /// Creates a key in the cluster or for config files, and shows its secret once.
    #[command(after_help = "Example: spillway keys create --tenant acme --models big\n\
        Example: spillway keys create --role operate --days 90\n\
        Example: spillway keys create --offline --tenant acme --expires 2027-01-31T00:00:00Z\n\n\
        With --offline no node is contacted: put the printed [[key]] block into the config of every \
        node that the client uses. A running node reloads a changed file automatically.")]
    Create(CreateKeyArgs),
    /// Revokes a key of the cluster permanently.
    #[command(after_help = "Example: spillway keys revoke 5c1d0a9be2f34a77")]
    Revoke(RevokeKeyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RevokeKeyArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// The key, by its id.
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CreateKeyArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Role of the key: client, read, operate or admin.
    #[arg(long, default_value = "client", conflicts_with = "offline")]
    pub(crate) role: String,
    /// Tenant of the key; required for clients.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Models, aliases and splits that the key may use, separated by commas; all by default.
    #[arg(long, alias = "model", value_delimiter = ',')]
    pub(crate) models: Vec<String>,
    /// Regions that may serve its requests, separated by commas; all by default.
    #[arg(long, alias = "region", value_delimiter = ',')]
    pub(crate) regions: Vec<String>,
    /// Priority class of its requests, 0 to 3; 0 is served first.
    #[arg(long, default_value_t = 0)]
    pub(crate) priority: u8,
    /// Days until the key expires; never by default.
    #[arg(long, conflicts_with = "offline")]
    pub(crate) days: Option<u32>,
    /// Name of the key; random by default.
    #[arg(long, alias = "id")]
    pub(crate) name: Option<String>,
    /// Also creates a new tenant, and accepts names that look like misspellings of known ones.
    #[arg(long, conflicts_with = "offline")]
    pub(crate) create: bool,
    /// Prints a `[[key]]` block for config files, without contacting a node.
    #[arg(long, conflicts_with = "dry_run", requires = "tenant")]
    pub(crate) offline: bool,
    /// Time at which the key expires, e.g. 2027-01-31T00:00:00Z.
    #[arg(long, conflicts_with = "days")]
    pub(crate) expires: Option<String>,
    /// Shows what would change, without creating anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JoinTokenArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(subcommand)]
    pub(crate) command: JoinTokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JoinTokenCommand {
    /// Creates a token and shows its secret once.
    #[command(after_help = "Example: spillway join-token create --region eu-central-1 --hours 2 \
        > join.token\n\n\
        The new node's config names the file as `join_token_file` in [cluster]. `spillway get \
        join-tokens` lists the tokens, and `spillway remove join-token ID` removes one.")]
    Create {
        /// Region of the nodes that may use the token.
        #[arg(long)]
        region: Option<String>,
        /// Hours until the token expires.
        #[arg(long, default_value_t = 1)]
        hours: u64,
        /// Number of nodes that may use the token.
        #[arg(long, default_value_t = 1)]
        uses: u32,
        /// Allows nodes that join with the token to send operators' orders.
        #[arg(long)]
        operators: bool,
        /// Accepts a region whose name looks like a misspelling of a known one.
        #[arg(long)]
        create: bool,
        /// Shows what would change, without creating anything.
        #[arg(long)]
        dry_run: bool,
    },
}
