//! A node without a network: its disks, log and state machine, put together as they are at a start,
//! and the calls that Raft makes to them.
//!
//! The contents and the term of each entry are a function of its index, so the expected log is
//! known without being stored.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures_util::stream;
use openraft::RaftSnapshotBuilder;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage, RaftStateMachine};
use openraft::type_config::TypeConfigExt;
use spillway_types::{DiskId, NodeId};
use tokio::sync::{oneshot, watch};

use super::faulty::{FaultyDisk, Power};
use super::faulty_files::FaultyFiles;
use crate::Machine;
use crate::consensus_test::register::{Change, Register};
use crate::disk::log_file::{LogFile, LogState};
use crate::disk::system::Files;
use crate::disk::{DiskError, Folder, LogStore, Snapshots};
use crate::raft::{CommandFrame, Entry, LogId, Payload, SnapshotMeta, StoredMembers, Types, Vote};
use crate::state_machine::{Applied, Applier};

const FOLDER: &str = "/snapshots";
/// Entries of one term, so that terms change within a script.
const TERM_ENTRIES: u64 = 16;
/// Number of calls by Raft in one script.
const ORDERS: usize = 14;

fn value(index: u64) -> u64 {
    index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
}

fn id(index: u64) -> LogId {
    LogId::new_term_index(1 + index / TERM_ENTRIES, index)
}

fn change(index: u64) -> Change {
    Change::Set(index, value(index))
}

/// The machine after the first `count` entries.
fn register(count: u64) -> Register {
    let mut register = Register::default();
    for index in 0..count {
        register.apply(index, &change(index));
    }
    register
}

/// The disks of a node, which keep their contents when the power fails.
pub(super) struct Disks {
    pub(super) power: Power,
    pub(super) disk: DiskId,
    pub(super) log: FaultyDisk,
    pub(super) commit_marker: FaultyDisk,
    pub(super) files: FaultyFiles,
}

impl Disks {
    /// With an empty log.
    pub(super) fn new() -> Self {
        let power = Power::default();
        let disk = |bytes| FaultyDisk::of(bytes).powered(&power);
        let log = FaultyDisk::default();
        LogFile::create(log.clone(), LogState::new(NodeId(1), DiskId(77))).unwrap();
        Self {
            disk: DiskId(77),
            log: disk(log.bytes()),
            commit_marker: disk(Vec::new()),
            files: FaultyFiles::new(&power),
            power,
        }
    }

    /// Returns the disks as they may be found after a power failure, once the power is back.
    pub(super) fn after_crash(&self, random: &mut fastrand::Rng) -> Self {
        let power = Power::default();
        let mut left = |disk: &FaultyDisk| FaultyDisk::of(disk.after_crash(random)).powered(&power);
        let (log, commit_marker) = (left(&self.log), left(&self.commit_marker));
        let files = self.files.after_crash(&power, random);
        Self { log, commit_marker, files, disk: self.disk, power }
    }

    pub(super) fn copy(&self) -> Self {
        let copy = |disk: &FaultyDisk| FaultyDisk::of(disk.bytes());
        Self {
            log: copy(&self.log),
            commit_marker: copy(&self.commit_marker),
            files: self.files.copy(),
            disk: self.disk,
            power: Power::default(),
        }
    }

    pub(super) fn read(&self, path: &Path) -> Vec<u8> {
        self.files.read(path).unwrap()
    }

    /// All snapshots, the oldest first.
    pub(super) fn snapshots(&self) -> Vec<PathBuf> {
        self.with_ending("snapshot")
    }

    pub(super) fn with_ending(&self, ending: &str) -> Vec<PathBuf> {
        let mut files = self.files.list(Path::new(FOLDER)).unwrap();
        files.retain(|file| file.extension().is_some_and(|found| found == ending));
        files.sort();
        files
    }
}

/// A node that runs on such disks.
pub(super) struct Node {
    log: LogStore,
    applier: Applier<Register>,
    ended: oneshot::Receiver<()>,
}

impl Node {
    /// Starts it as `Folder::open` and openraft do.
    pub(super) async fn open(disks: &Disks) -> Result<Self, DiskError> {
        let (file, entries) =
            LogFile::open(disks.log.clone(), Box::new(disks.commit_marker.clone()))?;
        let files = Arc::new(disks.files.clone());
        let snapshots = Snapshots::open(files, FOLDER.into(), disks.disk)?;
        let folder = Folder::of(file, entries, snapshots)?;
        let (end, ended) = oneshot::channel();
        let snapshots = folder.snapshots;
        let (file, entries) = (folder.file, folder.entries);
        let log = LogStore::start(file, entries, snapshots.clone(), move || {
            // An error means that no task waits for the end.
            let _ = end.send(());
        })?;
        let applied = Applied::new(Register::default(), watch::Sender::new(0));
        let newest = Arc::new(Mutex::new(folder.snapshot));
        let applier = Applier { applied, snapshots, log: log.clone(), newest };
        let mut node = Self { log, applier, ended };
        node.recover().await.map_err(DiskError::io("recovering"))?;
        Ok(node)
    }

    /// Does what openraft does before it takes part: loads the snapshot, applies the committed
    /// entries, and removes a log that ends before the snapshot does.
    async fn recover(&mut self) -> std::io::Result<()> {
        if let Some(snapshot) = self.applier.get_current_snapshot().await? {
            self.applier.install_snapshot(&snapshot.meta, snapshot.snapshot).await?;
        }
        let committed = self.log.read_committed().await?.map_or(0, |last| last.index + 1);
        self.apply(committed).await?;
        let last = self.log.get_log_state().await?.last_log_id;
        match self.applied_id() {
            Some(applied) if last < Some(applied) => self.log.purge(applied).await,
            _ => Ok(()),
        }
    }

    pub(super) async fn close(self) {
        self.log.close();
        drop(self.log);
        drop(self.applier);
        // An error also means that it has ended.
        drop(self.ended.await);
    }

    /// The index after the last entry that is applied.
    fn applied(&self) -> u64 {
        self.applier.applied.look(|_, index| index.map_or(0, |index| index + 1))
    }

    fn applied_id(&self) -> Option<LogId> {
        self.applied().checked_sub(1).map(id)
    }

    /// The index of the last entry that the newest snapshot holds.
    pub(super) fn newest(&self) -> Option<u64> {
        self.applier.newest.lock().unwrap().as_ref().and_then(|it| Some(it.head.last?.index))
    }

    /// Applies what is not applied, up to an index.
    async fn apply(&mut self, until: u64) -> std::io::Result<()> {
        let from = self.applied();
        if from >= until {
            return Ok(());
        }
        let entries = self.log.try_get_log_entries(from..until).await?;
        if entries.len() as u64 != until - from {
            return Err(std::io::Error::other("entries are missing"));
        }
        self.applier.apply(stream::iter(entries.into_iter().map(|entry| Ok((entry, None))))).await
    }
}

/// Calls that Raft makes to a node, and the calls that the node acknowledged.
pub(super) struct Script {
    random: fastrand::Rng,
    term: u64,
    /// The index after the last entry that has to be there, and that may be there.
    acknowledged: u64,
    attempted: u64,
    committed: u64,
    /// The last entry of the newest snapshot that was written, and that may be.
    snapshot: Option<u64>,
    snapshot_attempted: Option<u64>,
}

impl Script {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            term: 0,
            acknowledged: 0,
            attempted: 0,
            committed: 0,
            snapshot: None,
            snapshot_attempted: None,
        }
    }

    /// Starts a node and has it do all that is in the script.
    pub(super) async fn play(&mut self, disks: &Disks) -> Result<(), String> {
        let mut node = Node::open(disks).await.map_err(|fault| fault.to_string())?;
        let went = self.run_orders(&mut node, ORDERS).await;
        node.close().await;
        went.map_err(|error| error.to_string())
    }

    pub(super) async fn run_orders(
        &mut self,
        node: &mut Node,
        orders: usize,
    ) -> std::io::Result<()> {
        for _ in 0..orders {
            match self.random.u8(0..12) {
                0..4 => {
                    let count = self.random.u64(1..7);
                    self.grow(node, count).await?;
                }
                4..6 => self.apply(node).await?,
                6..10 => {
                    self.apply(node).await?;
                    let kept = self.random.u64(0..4);
                    self.build(node, kept).await?;
                }
                10 => {
                    let ahead = self.random.u64(1..9);
                    self.install(node, ahead).await?;
                }
                _ => self.truncate(node).await?,
            }
        }
        Ok(())
    }

    /// Entries come, after a vote if they are of a later term.
    pub(super) async fn grow(&mut self, node: &mut Node, count: u64) -> std::io::Result<()> {
        let from = self.acknowledged;
        self.vote(node, from + count - 1).await?;
        self.attempted = self.attempted.max(from + count);
        let entry = |index| {
            let frame = spillway_codec::encode(&change(index)).unwrap();
            Entry { log_id: id(index), payload: Payload::Normal(CommandFrame(frame)) }
        };
        let (flushed, is_flushed) = <Types as TypeConfigExt>::oneshot();
        let entries = (from..from + count).map(entry);
        node.log.append(entries, IOFlushed::<Types>::signal(flushed)).await?;
        is_flushed.await.map_err(std::io::Error::other)??;
        self.acknowledged = from + count;
        Ok(())
    }

    /// All that is there is committed and applied.
    pub(super) async fn apply(&mut self, node: &mut Node) -> std::io::Result<()> {
        if self.committed < self.acknowledged {
            self.committed = self.acknowledged;
            node.log.save_committed(self.committed.checked_sub(1).map(id)).await?;
        }
        node.apply(self.committed).await
    }

    /// A snapshot is made, and the log shortened except for its last entries.
    pub(super) async fn build(&mut self, node: &mut Node, kept: u64) -> std::io::Result<()> {
        let last = node.applied().checked_sub(1);
        if last <= self.snapshot {
            return Ok(());
        }
        self.snapshot_attempted = self.snapshot_attempted.max(last);
        node.applier.get_snapshot_builder().await.build_snapshot().await?;
        self.snapshot = last;
        match last.and_then(|last| last.checked_sub(kept)) {
            Some(upto) => node.log.purge(id(upto)).await,
            None => Ok(()),
        }
    }

    /// The leader's snapshot comes, which ends so many entries behind what is committed.
    pub(super) async fn install(&mut self, node: &mut Node, ahead: u64) -> std::io::Result<()> {
        let last = node.applied().max(self.committed) + ahead - 1;
        self.vote(node, last).await?;
        self.attempted = self.attempted.max(last + 1);
        self.snapshot_attempted = self.snapshot_attempted.max(Some(last));
        let last_membership = StoredMembers::default();
        let meta = SnapshotMeta { last_log_id: Some(id(last)), last_membership };
        let data = register(last + 1).snapshot().map_err(std::io::Error::other)?;
        node.applier.install_snapshot(&meta, data).await?;
        self.snapshot = Some(last);
        self.acknowledged = self.acknowledged.max(last + 1);
        self.committed = self.committed.max(last + 1);
        node.log.purge(id(last)).await
    }

    /// Removes the entries that are not committed.
    async fn truncate(&mut self, node: &mut Node) -> std::io::Result<()> {
        if self.acknowledged > self.committed {
            self.acknowledged = self.committed;
            node.log.truncate_after(self.committed.checked_sub(1).map(id)).await?;
        }
        Ok(())
    }

    async fn vote(&mut self, node: &mut Node, upto: u64) -> std::io::Result<()> {
        let term = id(upto).leader_id.term;
        if term > self.term {
            node.log.save_vote(&Vote::new_committed(term, NodeId(2))).await?;
            self.term = term;
        }
        Ok(())
    }

    /// Checks that a node that was started has everything that it must have, and nothing else. From
    /// then on its contents are the expected ones.
    pub(super) fn check(&mut self, node: &Node, disks: &Disks) -> Result<(), String> {
        let snapshot = node.newest();
        if snapshot < self.snapshot || snapshot > self.snapshot_attempted {
            return Err(format!("the newest snapshot ends at {snapshot:?}: {self:?}"));
        }
        for ending in ["damaged", "unfinished"] {
            let found = disks.with_ending(ending);
            if !found.is_empty() {
                return Err(format!("a crash has left {found:?}"));
            }
        }
        let last = self.check_state(node)?;
        self.snapshot = snapshot;
        (self.acknowledged, self.committed) = (last, node.applied());
        (self.attempted, self.snapshot_attempted) = (last, snapshot);
        Ok(())
    }

    /// Checks that the state and the log behind it are right, and returns the index at which they
    /// end.
    pub(super) fn check_state(&self, node: &Node) -> Result<u64, String> {
        let applied = node.applied();
        let is_right = node.applier.applied.look(|found, _| *found == register(applied));
        if !is_right {
            return Err(format!("the state after {applied} entries is another one"));
        }
        let mut log = node.log.clone();
        let entries =
            futures_util::future::FutureExt::now_or_never(log.try_get_log_entries(applied..));
        let entries = entries.unwrap().map_err(|error| error.to_string())?;
        for (entry, index) in entries.iter().zip(applied..) {
            let frame = spillway_codec::encode(&change(index)).unwrap();
            if entry.log_id != id(index) || entry.payload != Payload::Normal(CommandFrame(frame)) {
                return Err(format!("entry {index} is {entry:?}"));
            }
        }
        let last = applied + entries.len() as u64;
        if last < self.acknowledged || last > self.attempted {
            return Err(format!("all ends after {last}: {self:?}"));
        }
        Ok(last)
    }

    /// The last entry that a snapshot holds, by its name.
    pub(super) fn snapshot_of(&self, path: &Path) -> Option<u64> {
        path.file_stem()?.to_str()?.split_once('-')?.0.parse().ok()
    }
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { acknowledged, attempted, committed, snapshot, snapshot_attempted, .. } = self;
        write!(f, "{acknowledged} to {attempted} entries, {committed} committed, ")?;
        write!(f, "snapshot at {snapshot:?} to {snapshot_attempted:?}")
    }
}
