//! The machine as openraft sees it: entries go in, snapshots come out and go in.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::disk::{LogStore, Snapshots, StoredSnapshot};
use crate::machine::Machine;
use crate::raft::{
    Answered, CommandFrame, LogId, Payload, Snapshot, SnapshotMeta, StoredMembers, Types,
};
use crate::rules::agreement::OwnDigests;
use crate::wire::{Point, SnapshotHead};

/// The part of openraft that runs on this node.
pub(crate) type Raft<M> = openraft::Raft<Types, Applier<M>>;

/// The machine, and how far it has come. Shared by the log, which changes it, and by readers.
#[derive(Debug)]
pub(crate) struct Applied<M> {
    state: Mutex<MachineState<M>>,
    /// The index after the last entry that was applied: sent on each change.
    next_index: watch::Sender<u64>,
}

#[derive(Debug)]
struct MachineState<M> {
    machine: M,
    last: Option<LogId>,
    members: StoredMembers,
    digests: OwnDigests,
}

impl<M: Machine> MachineState<M> {
    /// Informs the machine of the members of the log from here on.
    fn tell_members(&mut self) {
        let members = self.members.membership().nodes().map(|(_, member)| member.name.clone());
        let names: Vec<_> = members.collect();
        self.machine.members(&names);
    }
}

impl<M: Machine> Applied<M> {
    pub(crate) fn new(machine: M, next_index: watch::Sender<u64>) -> Arc<Self> {
        // A channel that another log had before begins again, as the machine does.
        next_index.send_replace(0);
        let state = MachineState {
            machine,
            last: None,
            members: StoredMembers::default(),
            digests: OwnDigests::default(),
        };
        Arc::new(Self { state: Mutex::new(state), next_index })
    }

    /// Calls `look` with the state machine and the index up to which it is applied. No entry is
    /// applied during the call, so `look` has to be short.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&M, Option<u64>) -> R) -> R {
        let state = self.state();
        look(&state.machine, state.last.map(|last| last.index))
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.next_index.subscribe()
    }

    /// Calls `look` with the newest digests of the state machine. No entry is applied during the
    /// call, so `look` has to be short.
    pub(crate) fn digests<R>(&self, look: impl FnOnce(&OwnDigests) -> R) -> R {
        look(&self.state().digests)
    }

    /// Changes the machine behind the log's back.
    #[cfg(test)]
    pub(crate) fn spoil(&self, change: impl FnOnce(&mut M)) {
        change(&mut self.state().machine);
    }

    fn state(&self) -> MutexGuard<'_, MachineState<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, last: Option<LogId>) {
        self.next_index.send_replace(last.map_or(0, |last| last.index + 1));
    }

    fn apply(&self, id: LogId, payload: Payload) -> Result<Answered, io::Error> {
        let mut state = self.state();
        let outcome = match payload {
            Payload::Blank => None,
            Payload::Membership(members) => {
                state.members = StoredMembers::new(Some(id), members);
                state.tell_members();
                None
            }
            Payload::Normal(CommandFrame(frame)) => {
                // To skip the entry would make this node's state another one than that of nodes
                // that can read it.
                let command = spillway_codec::decode::<M::Command>(&frame).map_err(|error| {
                    io::Error::other(format!(
                        "entry {} can't be applied: {error}. Start a version that reads it",
                        id.index
                    ))
                })?;
                let outcome = state.machine.apply(id.index, &command);
                Some(spillway_codec::encode(&outcome).map_err(io::Error::other)?)
            }
        };
        state.last = Some(id);
        let digest = state.machine.digest();
        state.digests.applied(id.index, digest);
        // Readers that are notified below want the lock at once.
        drop(state);
        self.tell(Some(id));
        Ok(Answered { outcome })
    }

    /// The state as a snapshot.
    pub(crate) fn snapshot(&self) -> Result<(SnapshotMeta, Bytes), io::Error> {
        let state = self.state();
        let data = state.machine.snapshot().map_err(io::Error::other)?;
        if data.len() > crate::SNAPSHOT_BYTES_MAX {
            let bytes = data.len();
            return Err(io::Error::other(format!("the state is too large: {bytes} bytes")));
        }
        let (last_log_id, last_membership) = (state.last, state.members.clone());
        Ok((SnapshotMeta { last_log_id, last_membership }, data))
    }

    fn restore(&self, meta: &SnapshotMeta, data: &[u8]) -> Result<(), io::Error> {
        let mut state = self.state();
        state.machine.restore(data).map_err(io::Error::other)?;
        state.last = meta.last_log_id;
        state.members = meta.last_membership.clone();
        state.tell_members();
        if let Some(last) = meta.last_log_id {
            let digest = state.machine.digest();
            state.digests.restored(last.index, digest);
        }
        drop(state);
        self.tell(meta.last_log_id);
        Ok(())
    }
}

/// Applier of entries, called by openraft.
#[derive(Debug)]
pub(crate) struct Applier<M> {
    pub(crate) applied: Arc<Applied<M>>,
    pub(crate) snapshots: Snapshots,
    pub(crate) log: LogStore,
    /// The newest snapshot on disk.
    pub(crate) newest: Arc<Mutex<Option<StoredSnapshot>>>,
}

/// Writes a snapshot of the moment when it was made.
#[derive(Debug)]
pub(crate) struct Builder {
    taken: Option<Result<(SnapshotMeta, Bytes), io::Error>>,
    snapshots: Snapshots,
    log: LogStore,
    newest: Arc<Mutex<Option<StoredSnapshot>>>,
}

impl<M: Machine> RaftStateMachine<Types> for Applier<M> {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembers), io::Error> {
        let state = self.applied.state();
        Ok((state.last, state.members.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + Send,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let answered = self.applied.apply(entry.log_id, entry.payload)?;
            if let Some(responder) = responder {
                responder.send(answered);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder {
            // Taken now and written later: entries go on being applied while the disk writes.
            taken: Some(self.applied.snapshot()),
            snapshots: self.snapshots.clone(),
            log: self.log.clone(),
            newest: Arc::clone(&self.newest),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        data: Bytes,
    ) -> Result<(), io::Error> {
        let stored = stored(meta, data.clone());
        // At a start openraft installs the newest one from disk, which need not be written again.
        let is_known = lock(&self.newest).as_ref().is_some_and(|newest| *newest == stored);
        if !is_known {
            let (snapshots, written) = (self.snapshots.clone(), stored.clone());
            let writing = move || {
                snapshots.write(&written)?;
                // The log does not reach back to older ones: it starts again behind this one.
                snapshots.only_newest()
            };
            let written = spawn_blocking(writing).await.map_err(io::Error::other)?;
            written.map_err(|error| self.log.failed("writing a snapshot", error))?;
        }
        self.applied.restore(meta, &data)?;
        *lock(&self.newest) = Some(stored);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        lock(&self.newest).as_ref().map(loaded).transpose()
    }
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let taken = self.taken.take().unwrap_or_else(|| Err(io::Error::other("made already")));
        let (meta, data) = taken?;
        let stored = stored(&meta, data.clone());
        let (snapshots, written) = (self.snapshots.clone(), stored.clone());
        let writing = spawn_blocking(move || snapshots.write(&written)).await;
        let written = writing.map_err(io::Error::other)?;
        written.map_err(|error| self.log.failed("writing a snapshot", error))?;
        self.log.snapshot_made();
        *lock(&self.newest) = Some(stored);
        Ok(Snapshot { meta, snapshot: data })
    }
}

/// A snapshot as it is written and sent.
pub(crate) fn stored(meta: &SnapshotMeta, data: Bytes) -> StoredSnapshot {
    let head = SnapshotHead {
        last: meta.last_log_id.map(Point::from),
        members_at: meta.last_membership.log_id().map(Point::from),
        members: meta.last_membership.membership().into(),
        bytes: 0,
        checksum: 0,
    };
    StoredSnapshot::new(head, data)
}

/// A snapshot that was read or received.
pub(crate) fn loaded(stored: &StoredSnapshot) -> Result<Snapshot, io::Error> {
    let head = stored.head.clone();
    let members = head.members.try_into().map_err(io::Error::other)?;
    let last_membership = StoredMembers::new(head.members_at.map(LogId::from), members);
    let meta = SnapshotMeta { last_log_id: head.last.map(LogId::from), last_membership };
    Ok(Snapshot { meta, snapshot: stored.data.clone() })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
