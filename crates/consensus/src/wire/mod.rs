//! Our own messages and records. openraft's types change between versions and are never written.

mod message;
mod octets;
mod record;
#[cfg(test)]
mod wire_test;

pub(crate) use message::{
    APPEND_BYTES_MAX, Addressee, Answer, Append, Call, Candidacy, Introduction, Offer, Opening,
    Parcel, Purpose, Refusal, SnapshotHead,
};
pub(crate) use octets::Octets;
pub(crate) use record::{Ballot, EntryRecord, MembersRecord, Point};
