//! Our own messages and records. openraft's types change between versions and are never written.

mod disk_count;
mod message;
pub(crate) mod number;
#[cfg(test)]
mod older;
mod record;
mod version;
#[cfg(test)]
mod wire_test;

pub(crate) use disk_count::{DiskCount, StateDigest};
pub(crate) use message::{
    APPEND_BYTES_MAX, Addressee, Age, Answer, Append, Call, CallError, Candidacy, Introduction,
    News, Offer, Opening, Parcel, Purpose, Report, RoundTrip, SnapshotHead, Took, Verdict,
};
pub(crate) use record::{Ballot, EntryRecord, MembersRecord, Point};
pub use version::WireVersion;
pub(crate) use version::{encode_answer, encode_append, encode_call};
