//! Entries of the log.

use bytes::Bytes;
use serde::ser::Error;
use serde::{Deserialize, Serialize, Serializer};
use spillway_codec::{DecodeError, EncodeError, HEADER_BYTES, Wire, decode, encode};
use spillway_types::{NodeName, RegionName};

use crate::limits::ENTRY_BYTES_MAX;
use crate::{Command, RequestId, WIRE};

/// A command with its proposer, time and actor.
///
/// The proposer makes the entry. A node that passes on an entry for another node checks that the
/// link's certificate names `proposer`, since the rules believe that field.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "EntryFrame")]
pub struct Entry {
    /// Wall clock of the proposer, milliseconds since 1970. The time that the entry counts as made
    /// follows from it, see [`crate::State::stamp_ms`].
    pub stamp_ms: u64,
    /// The node that proposes the entry.
    pub proposer: Proposer,
    /// Id of the client's request and its retries; None if the entry is never repeated.
    pub request: Option<RequestId>,
    /// The operator or node in whose name the command is proposed.
    pub actor: Actor,
    /// The command to carry out.
    pub command: Command,
}

/// The node that proposes an entry, as its certificate names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposer {
    /// Name of the node.
    pub node: NodeName,
    /// Region of the node.
    pub region: RegionName,
}

/// The operator or node in whose name a command is proposed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// The proposing node on its own account.
    Node,
    /// A person or program with an admin token, by name or key id, never by a secret. The admin API
    /// has checked the token.
    Operator(String),
}

/// Error of reading an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The entry's command came with a later version of the program.
    #[error(
        "the entry's command needs wire version {needed}, this program has {WIRE}: upgrade this node"
    )]
    NewerCommand {
        /// The wire version that has the command.
        needed: u16,
    },
    /// The entry is malformed.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl Entry {
    /// Returns the entry's bytes for the log.
    ///
    /// # Errors
    /// Returns an error if the entry is larger than [`ENTRY_BYTES_MAX`].
    pub fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        encode(self)
    }

    /// Reads an entry that [`Self::to_bytes`] wrote, on this node or on one that is a version
    /// older.
    ///
    /// # Errors
    /// Returns [`EntryError::NewerCommand`] for a command of a later version; [`crate::admits`]
    /// keeps such commands out of the log as long as this node is a member.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EntryError> {
        decode::<EntryFrame>(bytes)?.try_into()
    }

    fn to_frame(&self) -> Result<EntryFrame, EncodeError> {
        Ok(EntryFrame {
            needs: self.command.since(),
            stamp_ms: self.stamp_ms,
            proposer: self.proposer.clone(),
            request: self.request,
            actor: self.actor.clone(),
            command: encode(&self.command)?.to_vec(),
        })
    }
}

/// Layout of an entry on the wire. The command is a frame of its own, so that a node that does not
/// know the command still reads the proposer and the needed version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EntryFrame {
    /// The wire version that has the command.
    needs: u16,
    stamp_ms: u64,
    proposer: Proposer,
    request: Option<RequestId>,
    actor: Actor,
    command: Vec<u8>,
}

impl TryFrom<EntryFrame> for Entry {
    type Error = EntryError;

    fn try_from(frame: EntryFrame) -> Result<Self, EntryError> {
        // Checked before the command, which this version may be unable to decode.
        if frame.needs > WIRE {
            return Err(EntryError::NewerCommand { needed: frame.needs });
        }
        let command = decode(&frame.command)?;
        let EntryFrame { stamp_ms, proposer, request, actor, .. } = frame;
        Ok(Self { stamp_ms, proposer, request, actor, command })
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_frame().map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// Lets [`Entry::from_bytes`] read the frame itself, which keeps the type of [`EntryError`]: serde
/// would turn it into text.
impl Wire for EntryFrame {
    const KIND: u16 = Entry::KIND;
    const VERSION: u16 = Entry::VERSION;
    const BYTES_MAX: usize = Entry::BYTES_MAX;
}

impl Wire for Entry {
    const KIND: u16 = 0x0301;
    const VERSION: u16 = 1;
    /// The limit is on the whole frame, header included.
    const BYTES_MAX: usize = ENTRY_BYTES_MAX - HEADER_BYTES;
}

impl Wire for Command {
    const KIND: u16 = 0x0302;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = ENTRY_BYTES_MAX;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expect;

    fn entry() -> Entry {
        Entry {
            stamp_ms: 1_800_000_000_000,
            proposer: Proposer { node: "a".into(), region: "eu".into() },
            request: Some(RequestId([1; 16])),
            actor: Actor::Operator("ada".to_owned()),
            command: Command::RevokeKey { key: "k".into(), expect: Expect::Any },
        }
    }

    #[test]
    fn an_entry_reads_back() {
        let entry = entry();
        assert_eq!(Entry::from_bytes(&entry.to_bytes().unwrap()), Ok(entry));
    }

    #[test]
    fn a_command_of_a_later_version_is_told_apart_from_garbage() {
        let frame: EntryFrame = decode(&entry().to_bytes().unwrap()).unwrap();
        let later = EntryFrame { needs: WIRE + 1, command: vec![9; 40], ..frame.clone() };
        let error = Entry::from_bytes(&encode(&later).unwrap()).unwrap_err();
        assert_eq!(error, EntryError::NewerCommand { needed: WIRE + 1 });
        let inside = decode::<Entry>(&encode(&later).unwrap()).unwrap_err();
        assert!(inside.to_string().contains("upgrade this node"), "{inside}");
        assert!(error.to_string().contains("upgrade this node"), "{error}");
        let garbage = EntryFrame { command: vec![9; 40], ..frame };
        let error = Entry::from_bytes(&encode(&garbage).unwrap()).unwrap_err();
        assert!(matches!(error, EntryError::Decode(DecodeError::Magic { .. })), "{error:?}");
    }

    #[test]
    fn a_variant_that_nobody_knows_is_refused() {
        #[derive(Serialize, Deserialize)]
        struct Unknown(u8);
        impl Wire for Unknown {
            const KIND: u16 = Command::KIND;
            const VERSION: u16 = Command::VERSION;
            const BYTES_MAX: usize = 16;
        }
        let error = decode::<Command>(&encode(&Unknown(200)).unwrap()).unwrap_err();
        assert!(matches!(error, DecodeError::Payload { .. }), "{error:?}");
    }

    #[test]
    fn an_entry_that_is_too_large_is_not_made() {
        let mut entry = entry();
        entry.actor = Actor::Operator("x".repeat(ENTRY_BYTES_MAX));
        let bytes_max = ENTRY_BYTES_MAX - HEADER_BYTES;
        assert_eq!(entry.to_bytes(), Err(EncodeError::TooLong { bytes_max }));
    }
}
