//! The log on disk: entries and the data that belongs to them, in one redb file.
//!
//! Blocking, and without decisions of its own: each job is written in one transaction. When the
//! file is opened, it is checked that the contents are those that were written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{Database, DatabaseError, Durability, ReadableDatabase, StorageBackend};
use redb::{ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};
use spillway_codec::{DecodeError, Wire};
use spillway_types::{ClusterId, DiskId, NodeId};

use super::commit_marker::{CommitMarker, CommitNote};
use super::disk_clock::DiskClock;
use super::fault::DiskError;
use crate::wire::{Ballot, EntryRecord, Point};

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const STATE: TableDefinition<'_, u8, &[u8]> = TableDefinition::new("state");
/// The only key of the table of the state.
const STATE_KEY: u8 = 0;
/// Pages kept in memory. All entries are in memory anyway, for readers.
const CACHE_BYTES: usize = 4 << 20;

/// Owner of a log and its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogState {
    pub(crate) node: NodeId,
    #[serde(with = "crate::wire::number")]
    pub(crate) disk: DiskId,
    #[serde(with = "crate::wire::number::optional")]
    pub(crate) cluster: Option<ClusterId>,
    /// Counts the commits of this file.
    pub(crate) serial: u64,
    pub(crate) ballot: Option<Ballot>,
    pub(crate) committed: Option<Point>,
    /// The last entry that was dropped because a snapshot holds it.
    pub(crate) purged: Option<Point>,
}

impl Wire for LogState {
    const KIND: u16 = 0x0410;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 1_024;
}

impl LogState {
    pub(crate) fn new(node: NodeId, disk: DiskId) -> Self {
        let (cluster, ballot, committed, purged) = (None, None, None, None);
        Self { node, disk, cluster, serial: 0, ballot, committed, purged }
    }
}

/// Change to write to the log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LogChange {
    Cluster(ClusterId),
    Ballot(Ballot),
    Committed(Option<Point>),
    /// An entry and its frame.
    Append(Point, bytes::Bytes),
    /// Removal of the entries from this index on.
    TruncateFrom(u64),
    /// Removal of the entries up to this one, which a snapshot holds.
    Purge(Point),
    /// Count of commits from which the file goes on, if it is greater than its own.
    Serial(u64),
}

/// The log on disk.
pub(crate) struct LogFile {
    database: Database,
    commit_marker: Box<dyn CommitMarker>,
    state: LogState,
    /// The count of commits that are on disk.
    serial: Arc<AtomicU64>,
    clock: Arc<DiskClock>,
}

impl std::fmt::Debug for LogFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogFile").field("state", &self.state).finish_non_exhaustive()
    }
}

impl LogFile {
    /// Makes an empty log. A crash in between leaves a file that can't be opened, so it has to be
    /// made where it is not found.
    pub(crate) fn create(backend: impl StorageBackend, state: LogState) -> Result<(), DiskError> {
        let database = open_database(backend)?;
        commit(&database, &state, &[]).map_err(DiskError::io("making the log"))
    }

    /// Opens the log of a node and proves that it is what was written.
    pub(crate) fn open(
        backend: impl StorageBackend,
        commit_marker: Box<dyn CommitMarker>,
    ) -> Result<(Self, Vec<EntryRecord>), DiskError> {
        let database = open_database(backend)?;
        let state = read_state(&database)?;
        let entries = read_entries(&database)?;
        check(&state, &entries, commit_marker.read()?)?;
        let serial = Arc::new(AtomicU64::new(state.serial));
        let clock = Arc::default();
        Ok((Self { database, commit_marker, state, serial, clock }, entries))
    }

    pub(crate) fn state(&self) -> &LogState {
        &self.state
    }

    /// Returns the count of commits, which is kept up to date.
    pub(crate) fn serial(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.serial)
    }

    /// Has writes to this file measured by `clock`.
    pub(crate) fn timed_by(self, clock: Arc<DiskClock>) -> Self {
        Self { clock, ..self }
    }

    /// Writes all changes or none of them. They are on disk when this returns. After an error it is
    /// unknown whether they are, and the file has to be opened again.
    pub(crate) fn write(&mut self, changes: &[LogChange]) -> Result<(), DiskError> {
        let clock = Arc::clone(&self.clock);
        clock.write(|| self.write_all(changes))
    }

    fn write_all(&mut self, changes: &[LogChange]) -> Result<(), DiskError> {
        let mut state = self.state;
        state.serial += 1;
        changes.iter().for_each(|change| note_change(&mut state, change));
        commit(&self.database, &state, changes).map_err(DiskError::io("writing the log"))?;
        // That the one it voted for has won is no promise of its own.
        let promise = |state: &LogState| state.ballot.map(|ballot| (ballot.term, ballot.node));
        let is_vote = promise(&state) != promise(&self.state);
        self.state = state;
        self.serial.store(state.serial, Ordering::Relaxed);
        // After the commit, never before: a note ahead of the log means that the disk lost a
        // commit.
        self.commit_marker.write(CommitNote { disk: state.disk, serial: state.serial }, is_vote)
    }
}

fn open_database(backend: impl StorageBackend) -> Result<Database, DiskError> {
    redb::Builder::new()
        .set_cache_size(CACHE_BYTES)
        // Checks each page, since redb may panic over one that changed behind its back.
        .set_check_integrity_on_open(true)
        .create_with_backend(backend)
        .map_err(opening)
}

fn commit(
    database: &Database,
    state: &LogState,
    changes: &[LogChange],
) -> Result<(), std::io::Error> {
    let other = std::io::Error::other::<redb::Error>;
    let mut transaction = database.begin_write().map_err(|error| other(error.into()))?;
    transaction.set_durability(Durability::Immediate).map_err(|error| other(error.into()))?;
    {
        let mut log = transaction.open_table(LOG).map_err(|error| other(error.into()))?;
        for change in changes {
            match change {
                LogChange::Append(at, frame) => {
                    log.insert(at.index, &**frame).map(drop).map_err(|e| other(e.into()))?;
                }
                LogChange::TruncateFrom(index) => {
                    log.retain_in(*index.., |_, _| false).map_err(|e| other(e.into()))?;
                }
                LogChange::Purge(upto) => {
                    log.retain_in(..=upto.index, |_, _| false).map_err(|e| other(e.into()))?;
                }
                LogChange::Cluster(_)
                | LogChange::Ballot(_)
                | LogChange::Committed(_)
                | LogChange::Serial(_) => {}
            }
        }
        let mut table = transaction.open_table(STATE).map_err(|error| other(error.into()))?;
        let frame = spillway_codec::encode(state).map_err(std::io::Error::other)?;
        table.insert(STATE_KEY, &*frame).map(drop).map_err(|error| other(error.into()))?;
    }
    transaction.commit().map_err(|error| other(error.into()))
}

fn read_state(database: &Database) -> Result<LogState, DiskError> {
    let transaction = database.begin_read().map_err(reading)?;
    let table = transaction.open_table(STATE).map_err(reading)?;
    let Some(frame) = table.get(STATE_KEY).map_err(reading)? else {
        return Err(DiskError::damaged("the state of the log is gone"));
    };
    decoded("the state of the log", frame.value())
}

fn read_entries(database: &Database) -> Result<Vec<EntryRecord>, DiskError> {
    let transaction = database.begin_read().map_err(reading)?;
    let table = transaction.open_table(LOG).map_err(reading)?;
    let mut entries = Vec::new();
    for pair in table.iter().map_err(reading)? {
        let (index, frame) = pair.map_err(reading)?;
        let index = index.value();
        let entry: EntryRecord = decoded(&format!("entry {index}"), frame.value())?;
        if entry.at().index != index {
            return Err(DiskError::damaged(format!("entry {index} is at a wrong position")));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn note_change(state: &mut LogState, change: &LogChange) {
    match change {
        LogChange::Cluster(cluster) => state.cluster = Some(*cluster),
        LogChange::Ballot(ballot) => state.ballot = Some(*ballot),
        LogChange::Committed(committed) => state.committed = *committed,
        LogChange::Purge(upto) => state.purged = Some(*upto),
        LogChange::Serial(serial) => state.serial = state.serial.max(*serial),
        LogChange::Append(..) | LogChange::TruncateFrom(_) => {}
    }
}

/// Proves that nothing is missing that was confirmed.
fn check(
    state: &LogState,
    entries: &[EntryRecord],
    note: Option<CommitNote>,
) -> Result<(), DiskError> {
    if let Some(note) = note {
        if note.disk != state.disk {
            return Err(DiskError::damaged("log and witness are of different disks"));
        }
        if note.serial > state.serial {
            return Err(DiskError::damaged(format!(
                "the log ends at commit {}, {} was confirmed",
                state.serial, note.serial
            )));
        }
    }
    let mut previous = state.purged;
    for entry in entries {
        let at = entry.at();
        let follows = match previous {
            Some(previous) => at.index == previous.index + 1 && at.term >= previous.term,
            // Nothing was dropped, so the log has to begin with the first entry.
            None => at.index == 0,
        };
        if !follows {
            let index = at.index;
            return Err(DiskError::damaged(format!(
                "entry {index} does not follow the one before"
            )));
        }
        previous = Some(at);
    }
    if state.committed > previous {
        return Err(DiskError::damaged("the end of the log is missing"));
    }
    let term = state.ballot.map_or(0, |ballot| ballot.term);
    if previous.is_some_and(|last| last.term > term) {
        return Err(DiskError::damaged("an entry is of a term that was never voted in"));
    }
    Ok(())
}

fn decoded<T: Wire>(what: &str, frame: &[u8]) -> Result<T, DiskError> {
    spillway_codec::decode(frame).map_err(|error| match error {
        DecodeError::Version { .. } => DiskError::Newer { what: format!("{what}: {error}") },
        error => DiskError::damaged(format!("{what}: {error}")),
    })
}

fn opening(error: DatabaseError) -> DiskError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => {
            DiskError::InUse { folder: std::path::PathBuf::new() }
        }
        DatabaseError::UpgradeRequired(_) => DiskError::Newer { what: error.to_string() },
        DatabaseError::Storage(redb::StorageError::Io(error)) => failed("opening the log", error),
        DatabaseError::Storage(redb::StorageError::PreviousIo) => {
            DiskError::io("opening the log")(std::io::Error::other(error))
        }
        error => DiskError::damaged(format!("the log: {error}")),
    }
}

fn reading(error: impl Into<redb::Error>) -> DiskError {
    match error.into() {
        redb::Error::Io(error) => failed("reading the log", error),
        error @ redb::Error::PreviousIo => {
            DiskError::io("reading the log")(std::io::Error::other(error))
        }
        error => DiskError::damaged(format!("the log: {error}")),
    }
}

/// The database reports content that it can't make sense of as an I/O error, too, as where a file was
/// cut off or its first bytes changed.
fn failed(what: &str, error: std::io::Error) -> DiskError {
    match error.kind() {
        std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof => {
            DiskError::damaged(format!("{what}: {error}"))
        }
        _ => DiskError::io(what)(error),
    }
}
