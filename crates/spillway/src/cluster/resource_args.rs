//! Arguments that commands about all kinds of records share.

use anyhow::{Result, bail};
use clap::{Arg, Args, Command, Subcommand};
use serde_json::{Map, Value};

use super::connect::Connect;
use super::record;

/// How something is changed.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ChangeArgs {
    /// Shows what would change, without changing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Changes the record only if it has this version.
    #[arg(long)]
    pub(crate) if_version: Option<u64>,
    /// Writes it only if it does not exist. Set by commands themselves.
    #[arg(skip)]
    pub(crate) if_absent: bool,
    /// Makes it though its name may be a slip. Set by commands themselves.
    #[arg(skip)]
    pub(crate) create: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
}

/// What can be said about records of one kind. `F` are the flags for its fields.
#[derive(Debug, Args)]
pub(crate) struct ResourceArgs<F: Args> {
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(subcommand)]
    pub(crate) command: Option<ResourceCommand<F>>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResourceCommand<F: Args> {
    /// Lists all records; the default command.
    List,
    /// Shows one record.
    Show {
        /// Name of the record.
        name: String,
    },
    /// Sets the given fields of a record, and keeps the others.
    Set {
        /// Name of the record.
        name: String,
        #[command(flatten)]
        flags: F,
        /// Accepts a new name that looks like a misspelling of a known one.
        #[arg(long)]
        create: bool,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Writes a record; fields that are not given keep their values.
    Put {
        /// Name of the record.
        name: String,
        #[command(flatten)]
        record: PutArgs<F>,
        /// Replaces the whole record: fields that are not given get their defaults.
        #[arg(long)]
        replace: bool,
        /// Accepts a new name that looks like a misspelling of a known one.
        #[arg(long)]
        create: bool,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Removes a record and everything that belongs to it.
    Remove {
        /// Name of the record.
        name: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
}

/// A record to write, in JSON or in flags.
#[derive(Debug, Args)]
pub(crate) struct PutArgs<F: Args> {
    /// A JSON file, - for standard input, or literal JSON; excludes the flags below.
    record: Option<String>,
    #[command(flatten)]
    flags: F,
}

impl ChangeArgs {
    /// Returns these with the permission to make a record whose name looks like a slip.
    pub(crate) fn creating(&self, create: bool) -> Self {
        Self { create, ..self.clone() }
    }
}

/// Flags for the fields of a record.
pub(crate) trait Fields: Args {
    /// Returns the fields that the flags name.
    fn fields(&self) -> Map<String, Value>;
}

impl<F: Fields> PutArgs<F> {
    /// Returns the record.
    ///
    /// # Errors
    /// Returns an error if the record is missing, given twice, or can't be read.
    pub(crate) fn record(&self) -> Result<Value> {
        let fields = self.flags.fields();
        match &self.record {
            Some(_) if !fields.is_empty() => {
                bail!("say the record in JSON or in flags, not in both")
            }
            Some(given) => record::read(given),
            None if fields.is_empty() => bail!(
                "say what it is by {}, or give a file, - for standard input, or JSON",
                flags_of::<F>()
            ),
            None => Ok(Value::Object(fields)),
        }
    }
}

/// Returns the flags for the fields of a record, for messages.
pub(crate) fn flags_of<F: Args>() -> String {
    let command = F::augment_args(Command::new("record"));
    let flags = command.get_arguments().filter_map(Arg::get_long);
    flags.map(|flag| format!("--{flag}")).collect::<Vec<_>>().join(", ")
}
