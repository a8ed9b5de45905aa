//! openraft's own tests of what it needs from a log and a machine. Most of their time is sleep.

use std::sync::{Arc, Mutex};

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use spillway_types::NodeId;
use tempfile::TempDir;
use tokio::sync::watch;

use super::register::Register;
use crate::disk::{Folder, LogStore};
use crate::raft::Types;
use crate::state_machine::{Applied, Applier};

struct Builder;

impl StoreBuilder<Types, LogStore, Applier<Register>, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, Applier<Register>), StorageError<Types>> {
        let path = TempDir::new().unwrap();
        let folder = Folder::open(path.path(), NodeId(0), None).unwrap();
        let snapshots = folder.snapshots.clone();
        let log = LogStore::start(folder.file, folder.entries, snapshots.clone(), || {}).unwrap();
        let applied = Applied::new(Register::default(), watch::Sender::new(0));
        let newest = Arc::new(Mutex::new(folder.snapshot));
        Ok((path, log.clone(), Applier { applied, snapshots, log, newest }))
    }
}

#[test]
fn log_and_machine_do_what_openraft_needs() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(Suite::test_all(Builder)).unwrap();
}
