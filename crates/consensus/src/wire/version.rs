//! Which version of the messages is written to whom: the only place that decides it.
//!
//! Version 2 lets entries and their answers say more ([`News`], [`Took`]) and adds the question
//! [`Call::Speaks`]. A node asks it of every other one, and until that one has answered it is spoken
//! to in version 1: see `net/versions.rs`. An answer has the version of its question. Calls that
//! version 1 knows have the same bytes in both, so they are written as version 1 always.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spillway_codec::{DecodeError, EncodeError, Wire, decode_payload, encode};

use super::message::{Answer, Append, Call};
use super::record::{Ballot, EntryRecord, Point};

/// A version of the messages between the logs of two nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WireVersion {
    /// As it was at first.
    One,
    /// With leases that followers promise, ages, and round trips.
    #[default]
    Two,
}

impl WireVersion {
    /// As a number.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// The newest that both this and a node that speaks up to `number` know.
    pub(crate) const fn common(self, number: u16) -> Self {
        match (self, number) {
            (Self::Two, 2..) => Self::Two,
            _ => Self::One,
        }
    }
}

/// A message as version 1 has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct VersionOne<T>(pub(crate) T);

impl Wire for VersionOne<Call> {
    const KIND: u16 = Call::KIND;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = Call::BYTES_MAX;
}

impl Wire for VersionOne<Answer> {
    const KIND: u16 = Answer::KIND;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = Answer::BYTES_MAX;
}

/// Entries as version 1 has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AppendOne {
    pub(crate) ballot: Ballot,
    pub(crate) previous: Option<Point>,
    pub(crate) committed: Option<Point>,
    pub(crate) entries: Vec<EntryRecord>,
}

impl Wire for AppendOne {
    const KIND: u16 = Append::KIND;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = Append::BYTES_MAX;
}

impl From<AppendOne> for Append {
    fn from(one: AppendOne) -> Self {
        let AppendOne { ballot, previous, committed, entries } = one;
        Self { ballot, previous, committed, entries, news: None }
    }
}

/// The frame of entries; in version 1 if they have no news.
pub(crate) fn encode_append(append: Append) -> Result<Bytes, EncodeError> {
    if append.news.is_some() {
        return encode(&append);
    }
    let Append { ballot, previous, committed, entries, news: _ } = append;
    encode(&AppendOne { ballot, previous, committed, entries })
}

/// The frame of a call.
pub(crate) fn encode_call(call: Call) -> Result<Bytes, EncodeError> {
    match call {
        Call::Speaks(_) => encode(&call),
        known => encode(&VersionOne(known)),
    }
}

/// The frame of an answer.
pub(crate) fn encode_answer(answer: Answer) -> Result<Bytes, EncodeError> {
    match answer {
        Answer::Speaks(_) | Answer::Took(_) => encode(&answer),
        known => encode(&VersionOne(known)),
    }
}

/// Reads the payload of a call or an answer of version 1.
pub(super) fn decode_one<T: Wire>(version: u16, payload: &[u8]) -> Result<T, DecodeError> {
    match version {
        1 => decode_payload::<T>(payload),
        found => Err(DecodeError::Version { kind: T::KIND, found, newest: T::VERSION }),
    }
}

/// Reads the payload of entries of version 1.
pub(super) fn decode_append(version: u16, payload: &[u8]) -> Result<Append, DecodeError> {
    match version {
        1 => decode_payload::<AppendOne>(payload).map(Append::from),
        found => Err(DecodeError::Version { kind: Append::KIND, found, newest: Append::VERSION }),
    }
}
