//! What must survive a crash: the log, the vote, snapshots.

mod fault;
mod folder;
mod log_file;
mod log_store;
mod snapshots;
mod witness;
mod writer;

#[cfg(test)]
mod disk_test;
#[cfg(test)]
pub(crate) use witness::Note;

pub use fault::DiskFault;
pub(crate) use folder::Folder;
pub use folder::{FolderOwner, owner_of};
pub(crate) use log_file::Change;
#[cfg(test)]
pub(crate) use log_file::LogState;
pub(crate) use log_store::LogStore;
pub(crate) use snapshots::{Snapshots, StoredSnapshot, read_snapshot, write_snapshot};
