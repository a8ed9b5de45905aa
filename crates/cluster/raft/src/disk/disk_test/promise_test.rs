//! Promises about durability: everything acknowledged to Raft is on disk by then, and is found
//! again even if the power fails at once.

use std::sync::Arc;

use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use spillway_types::{ClusterId, DiskId, NodeId};
use tempfile::TempDir;

use super::faulty::FaultyDisk;
use crate::disk::log_file::{LogFile, LogState};
use crate::disk::system::SystemFiles;
use crate::disk::{LogStore, Snapshots};
use crate::raft::{Entry, LogId, Payload, Types, Vote};
use crate::wire::{EntryRecord, Point};

fn start(path: &TempDir) -> (FaultyDisk, LogStore) {
    let disk = FaultyDisk::default();
    LogFile::create(disk.clone(), LogState::new(NodeId(1), DiskId(1))).unwrap();
    let (file, entries) = LogFile::open(disk.clone(), Box::new(FaultyDisk::default())).unwrap();
    let files = Arc::new(SystemFiles);
    let snapshots = Snapshots::open(files, path.path().join("snapshots"), DiskId(1)).unwrap();
    (disk, LogStore::start(file, entries, snapshots, || {}).unwrap())
}

/// Returns the part of the log that is found when only forced writes survived.
fn found(disk: &FaultyDisk) -> (LogState, Vec<Point>) {
    let forced = FaultyDisk::of(disk.forced());
    let (file, entries) = LogFile::open(forced, Box::new(FaultyDisk::default())).unwrap();
    (*file.state(), entries.iter().map(EntryRecord::at).collect())
}

/// Appends entries of the first term and waits until they are acknowledged.
async fn append(log: &mut LogStore, indexes: std::ops::Range<u64>) {
    let entry = |index| Entry { log_id: LogId::new_term_index(1, index), payload: Payload::Blank };
    let (flushed, is_flushed) = <Types as TypeConfigExt>::oneshot();
    log.append(indexes.map(entry), IOFlushed::<Types>::signal(flushed)).await.unwrap();
    is_flushed.await.unwrap().unwrap();
}

#[tokio::test]
async fn votes_entries_truncations_and_the_cluster_are_on_disk_when_they_are_acknowledged() {
    let path = TempDir::new().unwrap();
    for round in 1..=20 {
        let (disk, mut log) = start(&path);
        let vote = Vote::new_committed(1, NodeId(round));
        log.save_vote(&vote).await.unwrap();
        assert_eq!(found(&disk).0.ballot, Some((&vote).into()));
        append(&mut log, 0..5).await;
        assert_eq!(found(&disk).1.len(), 5);
        append(&mut log, 5..9).await;
        assert_eq!(found(&disk).1.last(), Some(&Point { term: 1, index: 8 }));
        log.truncate_after(Some(LogId::new_term_index(1, 2))).await.unwrap();
        assert_eq!(found(&disk).1.len(), 3);
        log.join(ClusterId(round.into())).await.unwrap();
        assert_eq!(found(&disk).0.cluster, Some(ClusterId(round.into())));
        assert!(log.join(ClusterId(99)).await.is_err());
    }
}

#[tokio::test]
async fn a_failing_disk_stops_the_log_with_its_reason() {
    let path = TempDir::new().unwrap();
    let (disk, mut log) = start(&path);
    log.save_vote(&Vote::new(1, NodeId(1))).await.unwrap();
    disk.set(super::faulty::Fault::Full);
    assert!(log.save_vote(&Vote::new(2, NodeId(1))).await.is_err());
    let fault = log.fault().unwrap();
    assert!(fault.to_string().contains("Make room"), "{fault}");
    disk.set(super::faulty::Fault::None);
    assert!(log.save_vote(&Vote::new(3, NodeId(1))).await.is_err());
    assert_eq!(found(&disk).0.ballot.map(|ballot| ballot.term), Some(1));
}

#[tokio::test]
async fn a_node_that_led_is_no_leader_when_it_comes_back_and_keeps_its_term() {
    let path = TempDir::new().unwrap();
    for (leader, is_leader) in [(1, false), (2, true)] {
        let (disk, mut log) = start(&path);
        log.save_vote(&Vote::new_committed(7, NodeId(leader))).await.unwrap();
        let forced = FaultyDisk::of(disk.forced());
        let (file, entries) = LogFile::open(forced, Box::new(FaultyDisk::default())).unwrap();
        let files = Arc::new(SystemFiles);
        let snapshots = Snapshots::open(files, path.path().join("snapshots"), DiskId(1)).unwrap();
        let mut log = LogStore::start(file, entries, snapshots, || {}).unwrap();
        let vote = log.read_vote().await.unwrap().unwrap();
        assert_eq!((vote.leader_id.term, vote.leader_id.voted_for), (7, NodeId(leader)));
        assert_eq!(vote.committed, is_leader);
    }
}
