//! Backups, and the data folder of a node that does not run.

pub(crate) mod backup;
pub(crate) mod backup_args;
pub(crate) mod offline;
pub(crate) mod offline_args;
pub(crate) mod seal;
