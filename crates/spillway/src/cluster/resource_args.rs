//! Arguments that commands about all kinds of records share.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::connect::Connect;
use super::record;

/// How something is changed.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ChangeArgs {
    /// Shows what would change, and changes nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Changes it only if it has this version.
    #[arg(long)]
    pub(crate) if_version: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
}

/// What can be said about records of one kind. `P` is what writing one needs.
#[derive(Debug, Args)]
pub(crate) struct ResourceArgs<P: Args = PutRecord> {
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(subcommand)]
    pub(crate) command: Option<ResourceCommand<P>>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResourceCommand<P: Args = PutRecord> {
    /// Lists all; the same as no command.
    List,
    /// Shows one.
    Show {
        /// Its name.
        name: String,
    },
    /// Writes one as a whole.
    Put {
        /// Its name.
        name: String,
        #[command(flatten)]
        record: P,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Removes one, with what belongs to it.
    Remove {
        /// Its name.
        name: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
}

/// A record to write.
#[derive(Debug, Args)]
pub(crate) struct PutRecord {
    /// A file with JSON, - for standard input, or JSON; what is left out gets its default. Of a
    /// setting, its value.
    record: String,
}

/// Arguments that make a record.
pub(crate) trait Recorded: Args {
    /// Makes the record of a `resource`.
    ///
    /// # Errors
    /// Returns an error if the record is missing or can't be read.
    fn record(&self, resource: &str) -> Result<Value>;
}

impl Recorded for PutRecord {
    fn record(&self, resource: &str) -> Result<Value> {
        record::read(resource, &self.record)
    }
}
