//! Durable log as openraft sees it: all of it in memory, each change handed to the disk.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::storage::{IOFlushed, LogState as RaftLogState, RaftLogReader, RaftLogStorage};
use spillway_types::{ClusterId, NodeId};
use tokio::sync::oneshot;

use super::fault::DiskError;
use super::log_file::{LogChange, LogFile};
use super::snapshots::Snapshots;
use super::writer::{Job, Writer};
use crate::raft::{Entry, LogId, Types, Vote};
use crate::wire::{APPEND_BYTES_MAX, Ballot, EntryRecord, Point};

/// Approximate bytes that an entry takes besides its command.
const ENTRY_OVERHEAD_BYTES: usize = 96;

/// The log. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct LogStore(Arc<LogShared>);

#[derive(Debug)]
struct LogShared {
    log: Mutex<Log>,
    /// `None` once the log is closed.
    writer: Mutex<Option<Writer>>,
    snapshots: Snapshots,
    /// The count of commits that are on disk.
    serial: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Log {
    entries: BTreeMap<u64, KeptEntry>,
    bytes: usize,
    /// Bytes of entries since the last snapshot was made.
    bytes_since_snapshot: usize,
    purged: Option<LogId>,
    /// Last entry that was dropped on disk, where more is kept.
    purged_on_disk: Option<Point>,
    vote: Option<Vote>,
    committed: Option<LogId>,
    cluster: Option<ClusterId>,
    fault: Option<DiskError>,
}

#[derive(Debug)]
struct KeptEntry {
    entry: Entry,
    bytes: usize,
}

impl LogStore {
    /// Takes over a log that was opened. `ended` is called when its file is closed.
    pub(crate) fn start(
        file: LogFile,
        records: Vec<EntryRecord>,
        snapshots: Snapshots,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self, DiskError> {
        let state = *file.state();
        let mut log = Log {
            entries: BTreeMap::new(),
            bytes: 0,
            bytes_since_snapshot: 0,
            purged: state.purged.map(LogId::from),
            purged_on_disk: state.purged,
            vote: state.ballot.map(|ballot| Vote::from(resumed(ballot, state.node))),
            committed: state.committed.map(LogId::from),
            cluster: state.cluster,
            fault: None,
        };
        for record in records {
            let frame = encoded(&record)?;
            let entry = record
                .into_entry()
                // The entry is as it was written, so a version that knows more must have written
                // it.
                .map_err(|error| DiskError::Newer { what: error.to_string() })?;
            log.insert(entry, frame.len());
        }
        let serial = file.serial();
        let writer = Writer::start(file, ended)?;
        let (log, writer) = (Mutex::new(log), Mutex::new(Some(writer)));
        Ok(Self(Arc::new(LogShared { log, writer, snapshots, serial })))
    }

    /// The cluster that this log belongs to.
    pub(crate) fn cluster(&self) -> Option<ClusterId> {
        self.log().cluster
    }

    /// Returns true if nothing was ever written or promised.
    pub(crate) fn is_blank(&self) -> bool {
        let log = self.log();
        log.vote.is_none() && log.last().is_none()
    }

    /// Makes this the log of a cluster; on disk when it returns.
    pub(crate) async fn join(&self, cluster: ClusterId) -> Result<(), DiskError> {
        if let Some(found) = self.cluster() {
            let same = found == cluster;
            return same.then_some(()).ok_or(DiskError::OtherCluster { found, expected: cluster });
        }
        self.forced(vec![LogChange::Cluster(cluster)]).await?;
        // Other nodes learn of it only once it is on disk.
        self.log().cluster = Some(cluster);
        Ok(())
    }

    /// Waits until all that was handed over before is on disk.
    pub(crate) async fn settled(&self) -> Result<(), DiskError> {
        self.forced(Vec::new()).await
    }

    /// Writes a value that is known already, to find out whether the disk accepts writes.
    pub(crate) async fn check_disk(&self) -> Result<(), DiskError> {
        let committed = self.log().committed.map(Point::from);
        self.forced(vec![LogChange::Committed(committed)]).await
    }

    /// Returns the reason why the log has stopped; `None` if it has not.
    pub(crate) fn fault(&self) -> Option<DiskError> {
        self.log().fault.clone()
    }

    /// Stops the log for a reason that is none of the disk's.
    pub(crate) fn stop(&self, fault: &DiskError) {
        note_fault(&mut self.log(), fault);
    }

    /// Returns the count of commits that are on disk.
    pub(crate) fn serial(&self) -> u64 {
        self.0.serial.load(Ordering::Relaxed)
    }

    /// Counts the start of a process: the disk of an earlier copy has not counted it. Written soon.
    pub(crate) fn count_start(&self) {
        // A failure shows at the next write that a caller waits for.
        drop(self.send(Job { changes: vec![LogChange::Serial(0)], done: None }));
    }

    /// Returns the first of these places up to the last committed entry at which this log has another
    /// entry; and the index of that last entry. An entry of a later term than `term` contradicts
    /// nothing: the leader of that term has lost its lead, and its own entry was never committed.
    pub(crate) fn contradiction(
        &self,
        places: impl IntoIterator<Item = Point>,
        term: u64,
    ) -> Option<(u64, u64)> {
        let log = self.log();
        let committed = log.committed?.index;
        let differs = |at: &Point| {
            let own = log.entries.get(&at.index).map(|kept| Point::from(kept.entry.log_id));
            at.index <= committed && own.is_some_and(|own| own != *at && own.term <= term)
        };
        places.into_iter().find(differs).map(|at| (at.index, committed))
    }

    /// Goes on from this count of commits at least; on disk when it returns.
    pub(crate) async fn raise_serial(&self, serial: u64) -> Result<(), DiskError> {
        self.forced(vec![LogChange::Serial(serial)]).await
    }

    /// Notes that something beside the log can't be written to its disk, for which openraft then stops.
    pub(crate) fn failed(&self, what: &str, error: io::Error) -> io::Error {
        let fault = DiskError::io(what)(error);
        note_fault(&mut self.log(), &fault);
        fault.into_io()
    }

    /// Bytes of entries since the last snapshot was made.
    pub(crate) fn bytes_since_snapshot(&self) -> usize {
        self.log().bytes_since_snapshot
    }

    /// Bytes of all entries.
    pub(crate) fn bytes(&self) -> usize {
        self.log().bytes
    }

    /// A snapshot was made of all that is applied.
    pub(crate) fn snapshot_made(&self) {
        self.log().bytes_since_snapshot = 0;
    }

    /// Takes no more jobs; the file is closed when those under way are done.
    pub(crate) fn close(&self) {
        drop(self.writer().take());
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Option<Writer>> {
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, job: Job) -> Result<(), DiskError> {
        // Cloned, so that the lock is free while a slow disk makes this wait.
        let writer = self.writer().clone();
        writer.ok_or_else(|| DiskError::closed("writing"))?.send(job)
    }

    /// Writes and waits until it is on disk.
    async fn forced(&self, changes: Vec<LogChange>) -> Result<(), DiskError> {
        let (done, is_done) = oneshot::channel();
        let done = Box::new(move |result| drop(done.send(result)));
        self.send(Job { changes, done: Some(done) })?;
        let written = is_done.await.unwrap_or_else(|_| Err(DiskError::closed("writing the log")));
        self.noted(written)
    }

    fn noted(&self, written: Result<(), DiskError>) -> Result<(), DiskError> {
        if let Err(fault) = &written {
            note_fault(&mut self.log(), fault);
        }
        written
    }
}

/// Returns a vote in the form in which a node resumes it after a restart. A node that led does not
/// go on leading without an election: others may have committed entries that it had sent them and
/// not yet written itself, and it would write other entries in their place.
fn resumed(ballot: Ballot, node: NodeId) -> Ballot {
    Ballot { is_won: ballot.is_won && ballot.node != node, ..ballot }
}

fn note_fault(log: &mut Log, fault: &DiskError) {
    if log.fault.is_none() {
        // The caller that opened the log reports this to the operator, once.
        tracing::debug!(%fault, "the replicated log stops");
        // Later faults only follow from the first one, which is the cause.
        let first = match fault {
            DiskError::Stopped(first) => (**first).clone(),
            fault => fault.clone(),
        };
        log.fault = Some(first);
    }
}

impl Log {
    fn insert(&mut self, entry: Entry, bytes: usize) {
        let bytes = bytes + ENTRY_OVERHEAD_BYTES;
        self.bytes += bytes;
        self.bytes_since_snapshot += bytes;
        self.entries.insert(entry.log_id.index, KeptEntry { entry, bytes });
    }

    fn last(&self) -> Option<LogId> {
        self.entries.values().next_back().map(|kept| kept.entry.log_id).or(self.purged)
    }

    /// Keeps only the entries for which `keep` returns true.
    fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        self.entries.retain(|index, _| keep(*index));
        self.bytes = self.entries.values().map(|kept| kept.bytes).sum();
    }
}

fn encoded(record: &EntryRecord) -> Result<bytes::Bytes, DiskError> {
    spillway_codec::encode(record).map_err(|error| {
        DiskError::io(format!("encoding entry {}", record.at().index))(io::Error::other(error))
    })
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        Ok(self.log().entries.range(range).map(|(_, kept)| kept.entry.clone()).collect())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.log().vote)
    }

    /// As many as fit into one message, and one in any case.
    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        let log = self.log();
        let mut left = APPEND_BYTES_MAX;
        let mut entries = Vec::new();
        for (_, kept) in log.entries.range(start..end) {
            match left.checked_sub(kept.bytes) {
                Some(rest) => left = rest,
                // An entry of any length goes alone, or the follower would never get past it.
                None if entries.is_empty() => left = 0,
                None => break,
            }
            entries.push(kept.entry.clone());
        }
        Ok(entries)
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<RaftLogState<Types>, io::Error> {
        let log = self.log();
        Ok(RaftLogState { last_purged_log_id: log.purged, last_log_id: log.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.forced(vec![LogChange::Ballot(vote.into())]).await.map_err(DiskError::into_io)?;
        // Visible only once it is on disk: a crash must not take back a vote that another node
        // knows of.
        self.log().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.log().committed = committed;
        let change = LogChange::Committed(committed.map(Point::from));
        self.send(Job { changes: vec![change], done: None }).map_err(DiskError::into_io)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.log().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let mut changes = Vec::new();
        {
            let mut log = self.log();
            for entry in entries {
                let frame = encoded(&EntryRecord::from(&entry)).map_err(DiskError::into_io)?;
                let bytes = frame.len();
                changes.push(LogChange::Append(entry.log_id.into(), frame));
                // In memory at once: followers are sent the entry while this disk still writes it.
                log.insert(entry, bytes);
            }
        }
        // The lock has ended: `send` waits if the disk has fallen far behind.
        let store = self.clone();
        let done = Box::new(move |written| {
            callback.io_completed(store.noted(written).map_err(DiskError::into_io));
        });
        self.send(Job { changes, done: Some(done) }).map_err(DiskError::into_io)
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let from = last.map_or(0, |last| last.index + 1);
        // Committed entries are carried out here, and were acknowledged. No leader may have others in
        // their place unless most disks have lost them.
        let committed = self.log().committed;
        if let Some(committed) = committed.filter(|committed| committed.index >= from) {
            let fault = DiskError::Overwritten { from, committed: committed.index };
            self.stop(&fault);
            return Err(fault.into_io());
        }
        self.log().retain(|index| index < from);
        self.forced(vec![LogChange::TruncateFrom(from)]).await.map_err(DiskError::into_io)
    }

    /// Forgets entries that the newest snapshot holds. On disk those are kept that the one before
    /// it does not hold, in case the newest can't be read; unless it reaches beyond the log, as one
    /// that came from another node may: then the log starts again behind it.
    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        let covered = self.0.snapshots.covered().map_err(DiskError::into_io)?;
        let on_disk = {
            let mut log = self.log();
            let is_beyond = log.last() < Some(upto);
            log.retain(|index| index > upto.index);
            log.purged = log.purged.max(Some(upto));
            let upto = Point::from(upto);
            let on_disk = if is_beyond { Some(upto) } else { covered.min(Some(upto)) };
            // The disk keeps more than memory does, so there may be nothing to drop yet.
            match on_disk.filter(|_| on_disk > log.purged_on_disk) {
                Some(on_disk) => on_disk,
                None => return Ok(()),
            }
        };
        self.forced(vec![LogChange::Purge(on_disk)]).await.map_err(DiskError::into_io)?;
        self.log().purged_on_disk = Some(on_disk);
        Ok(())
    }
}
