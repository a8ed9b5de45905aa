//! Arguments that all commands share that change a record.

use clap::Args;

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

impl ChangeArgs {
    /// Returns these with the permission to make a record whose name looks like a slip.
    pub(crate) fn creating(&self, create: bool) -> Self {
        Self { create, ..self.clone() }
    }
}
