//! Frames between nodes: magic, kind, version, length and checksum around a compact payload.
//!
//! Only this crate knows bincode. A message implements [`Wire`]; [`encode`] makes one whole frame
//! of it and [`decode`] reads exactly one. A reader of a stream parses a [`FrameHeader`] first,
//! which bounds the payload before any of it is read. Decoding never allocates by a claimed length
//! before the bytes are there.
//!
//! Kinds are numbered by crate: `0x01xx` is gossip, `0x02xx` link, `0x03xx` cluster-state, `0x04xx`
//! raft, `0x05xx` control-plane, `0x06xx` the files of knowledge, `0x07xx` those of quota-division,
//! `0x7fxx` tests.

mod careful;
mod error;
#[cfg(any(test, fuzzing, feature = "golden"))]
pub mod fuzz;
#[cfg(any(test, feature = "golden"))]
pub mod golden;
mod header;
mod payload;
mod wire;

pub use error::{DecodeError, EncodeError};
pub use header::{FrameHeader, HEADER_BYTES};
pub use payload::{payload_bytes, write_payload};
pub use wire::{Wire, decode, decode_payload, encode};

#[cfg(test)]
mod frame_test;
#[cfg(test)]
mod test_message;
