//! Command line of the commands about backups.

use std::path::PathBuf;

use clap::Args;

use super::connect::Connect;
use super::seal::Recipient;

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Where the backup goes.
    pub(crate) file: PathBuf,
    /// Replaces a file that is there.
    #[arg(long)]
    pub(crate) force: bool,
    /// Encrypts it for this public key (age1...); several times for several.
    #[arg(long, value_name = "PUBLIC_KEY", conflicts_with = "passphrase_file")]
    pub(crate) encrypt_to: Vec<Recipient>,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseArgs,
}

/// Where the passphrase of a backup is. Never on the command line, which others can see.
#[derive(Debug, Args)]
pub(crate) struct PassphraseArgs {
    /// The file that holds the passphrase of the backup, or - for standard input. Without it,
    /// the environment variable SPILLWAY_BACKUP_PASSPHRASE counts if it is set.
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BackupKeyArgs {
    /// Where the private key goes.
    pub(crate) file: PathBuf,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The backup.
    pub(crate) file: PathBuf,
    /// The node's data folder: empty, or not there yet.
    #[arg(long)]
    pub(crate) folder: PathBuf,
    /// The node that begins the new cluster: one of those that the backup knows.
    #[arg(long)]
    pub(crate) node: String,
    /// The file with the private key of an encrypted backup; several times for several.
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) passphrase: PassphraseArgs,
    /// Checks all, and changes nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
