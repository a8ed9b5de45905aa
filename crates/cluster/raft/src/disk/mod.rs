//! Data that must survive a crash: the log, the vote, snapshots.

mod commit_marker;
mod disk_clock;
mod fault;
mod folder;
mod log_file;
mod log_store;
mod snapshots;
mod system;
mod writer;

#[cfg(test)]
pub(crate) mod disk_test;

#[cfg(test)]
pub(crate) use commit_marker::CommitNote;
#[cfg(test)]
use disk_test::slow as device;
#[cfg(not(test))]
use system as device;

pub use disk_clock::{DiskClock, DiskTimes};
pub use fault::DiskError;
pub(crate) use folder::Folder;
pub use folder::{FolderOwner, discard_blank, owner_of};
pub(crate) use log_file::LogChange;
#[cfg(test)]
pub(crate) use log_file::LogState;
pub(crate) use log_store::LogStore;
pub(crate) use snapshots::{
    Snapshots, StoredSnapshot, parse_snapshot, read_snapshot, write_snapshot,
};
