//! Command line of the commands about backups.

use std::path::PathBuf;

use clap::Args;

use super::seal::Recipient;
use crate::connect::Connect;

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// File for the backup.
    pub(crate) file: PathBuf,
    /// Replaces an existing file.
    #[arg(long)]
    pub(crate) force: bool,
    /// Encrypts the backup for this public key (age1...); can be repeated.
    #[arg(long, value_name = "PUBLIC_KEY", conflicts_with = "passphrase_file")]
    pub(crate) encrypt_to: Vec<Recipient>,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseArgs,
}

/// Where the passphrase of a backup is. Never on the command line, which others can see.
#[derive(Debug, Args)]
pub(crate) struct PassphraseArgs {
    /// File with the passphrase of the backup, or - for standard input; by default the environment
    /// variable SPILLWAY_BACKUP_PASSPHRASE, if it is set.
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BackupKeyArgs {
    /// File for the private key.
    pub(crate) file: PathBuf,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The backup.
    pub(crate) file: PathBuf,
    /// The node's data folder, which must be empty or missing.
    #[arg(long)]
    pub(crate) folder: PathBuf,
    /// The first node of the new cluster: one of the nodes in the backup.
    #[arg(long)]
    pub(crate) node: String,
    /// File with a private key of an encrypted backup; can be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseArgs,
    /// Checks everything, without changing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
