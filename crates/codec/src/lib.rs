//! Frames between nodes: magic, kind, version, length and checksum around a compact payload.
//!
//! The only crate that knows bincode. A message implements [`Wire`]; [`encode`] makes one whole
//! frame of it and [`decode`] takes exactly one apart. Whoever reads a stream parses a
//! [`FrameHeader`] first, which bounds the payload before any of it is read. Nothing is ever
//! allocated by a length that the input merely claims.
//!
//! Kinds are numbered by crate: `0x01xx` is pulse, `0x02xx` link, `0x03xx` control, `0x04xx`
//! consensus, `0x7fxx` tests.

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
