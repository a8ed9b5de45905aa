//! State that the log replicates.

use bytes::Bytes;
use spillway_codec::Wire;
use spillway_types::{NodeName, RegionName};

/// A state that changes only by the commands of the log, in the same way on every node: no clock,
/// no randomness, nothing that differs between processes.
pub trait Machine: Send + 'static {
    /// Command that changes the state. At most [`crate::COMMAND_BYTES_MAX`] as a frame.
    type Command: Wire + Send + Sync + 'static;
    /// Outcome of a command. At most [`crate::OUTCOME_BYTES_MAX`] as a frame.
    type Outcome: Wire + Send + 'static;

    /// Carries out the command at `index` of the log.
    fn apply(&mut self, index: u64, command: &Self::Command) -> Self::Outcome;

    /// Returns the node in whose name a command is, if the command names one. A leader takes a
    /// command from another node only in that node's own name.
    fn proposer(command: &Self::Command) -> Option<(&NodeName, &RegionName)> {
        let _ = command;
        None
    }

    /// Returns true if a node of that name was removed, so that its membership in the log is about
    /// to end.
    fn is_removed(&self, name: &NodeName) -> bool {
        let _ = name;
        false
    }

    /// Takes the names of the members of the log from the next entry on. Called in the order of
    /// entries, and after a restore.
    fn members(&mut self, names: &[NodeName]) {
        let _ = names;
    }

    /// All of the state, as bytes that [`Self::restore`] reads on any node. At most
    /// [`crate::SNAPSHOT_BYTES_MAX`].
    ///
    /// # Errors
    /// If the state can't be encoded; the node then stops with the reason.
    fn snapshot(&self) -> Result<Bytes, MachineError>;

    /// Takes over the state of a snapshot, whatever it was before.
    ///
    /// # Errors
    /// If these bytes are no snapshot that this version reads; the state is then as before.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), MachineError>;

    /// A number that is equal on all nodes at equal index, and nearly surely differs if the state
    /// does.
    fn digest(&self) -> u128;
}

/// A state can't be made into a snapshot or read from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MachineError(pub String);
