//! Versions of the messages between the logs of two nodes. Only this file decides which version is
//! written to whom.
//!
//! A version that changes a message counts up the message's `Wire::VERSION` and keeps the type
//! before it for nodes of the version before. A node asks every other node for its newest version
//! ([`Call::Speaks`]), and sends the oldest version to a node that has not answered: see
//! `net/versions.rs`. The answer to entries has the version of the entries. Every other message has
//! the oldest version. There is only one version so far; tests have an older one, see
//! `wire/older.rs`.

use bytes::Bytes;
use spillway_codec::{EncodeError, encode};

use super::message::{Answer, Append, Call};
#[cfg(test)]
use super::older;

/// Version of the messages between the logs of two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireVersion(u16);

impl WireVersion {
    /// Version of this program.
    pub const NEWEST: Self = Self(1);
    /// Oldest version that this program still supports. In tests this is an invented one.
    pub(crate) const OLDEST: Self = Self(if cfg!(test) { 0 } else { Self::NEWEST.0 });

    /// Returns the version as a number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Returns the newest version that both this node and one with versions up to `number` know.
    pub(crate) fn common(self, number: u16) -> Self {
        Self(number).clamp(Self::OLDEST, self)
    }
}

impl Default for WireVersion {
    fn default() -> Self {
        Self::NEWEST
    }
}

/// Makes the frame of entries, in the version that they name.
pub(crate) fn encode_append(append: &Append) -> Result<Bytes, EncodeError> {
    #[cfg(test)]
    if append.version == WireVersion::OLDEST {
        return encode(&older::OlderAppend::from(append.clone()));
    }
    encode(append)
}

/// Makes the frame of a call, which all versions write alike.
pub(crate) fn encode_call(call: &Call) -> Result<Bytes, EncodeError> {
    encode(call)
}

/// Makes the frame of an answer for a node that uses `version`.
pub(crate) fn encode_answer(answer: &Answer, version: WireVersion) -> Result<Bytes, EncodeError> {
    debug_assert!(version <= WireVersion::NEWEST, "a version that this program does not write");
    #[cfg(test)]
    if version == WireVersion::OLDEST {
        return encode(&older::OlderAnswer::from(answer.clone()));
    }
    encode(answer)
}
