//! What a datagram says.

use serde::{Deserialize, Serialize};
use spillway_codec::{DecodeError, HEADER_BYTES, Wire, decode_payload};

use crate::datagram_v1::DatagramV1;
use crate::entry::{ModelEntry, SiblingEntry};
use crate::name_id::NameId;

/// All that may stand in a datagram beside its entries: every number at its longest.
pub(crate) const ENVELOPE_BYTES_MAX: usize = HEADER_BYTES + 72;

/// One datagram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Datagram {
    /// Who made it; has to be who the certificate names.
    pub(crate) origin: NameId,
    /// Grows with every start of the origin.
    pub(crate) incarnation: u64,
    /// Grows with every datagram of an incarnation, whoever gets it.
    pub(crate) seq: u64,
    /// For how long the origin did not hear the receiver, if they share a region, or any node of
    /// its region if not: milliseconds and 1; 0 for ever.
    pub(crate) heard: u32,
    pub(crate) body: Body,
}

/// What it is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Body {
    /// From a region's speaker to all nodes of other regions.
    Region(Report<ModelEntry>),
    /// From a node to another of its region.
    Sibling { echo: Echo, report: Report<SiblingEntry> },
    /// To whom told something that the sender lacks a part of.
    Ask {
        /// The incarnation that told it.
        incarnation: u64,
        /// The version that the sender has whole; 0 if none.
        have: u64,
    },
}

/// What the sender knows of the receiver: an incarnation, and a version of its report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Echo {
    /// The lower half is enough: incarnations of one node do not follow each other by 2^32.
    pub(crate) incarnation: [u8; 4],
    pub(crate) version: u64,
}

impl Echo {
    pub(crate) fn new(incarnation: u64, version: u64) -> Self {
        let [a, b, c, d, ..] = incarnation.to_le_bytes();
        Self { incarnation: [a, b, c, d], version }
    }

    /// The version, if it is one of `incarnation`.
    pub(crate) fn version_of(self, incarnation: u64) -> Option<u64> {
        (self == Self::new(incarnation, self.version)).then_some(self.version)
    }
}

/// A part of what its sender tells, and the fingerprint of all of it.
///
/// Whoever comes to another fingerprint after taking in the entries lacks something and asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report<E> {
    /// How old the load was when this was sent, milliseconds.
    pub(crate) age_ms: u32,
    /// Which state of the sender this leads to.
    pub(crate) version: u64,
    /// The fingerprint of that state.
    pub(crate) digest: [u8; 4],
    /// Forget what you had: all of it follows.
    pub(crate) whole: bool,
    /// More parts follow at once: do not ask yet.
    pub(crate) more: bool,
    pub(crate) entries: Vec<E>,
}

impl Wire for Datagram {
    const KIND: u16 = 0x0101;
    const VERSION: u16 = 2;
    // Longer than any path carries; what is sent has a limit of its own.
    const BYTES_MAX: usize = 2_048;

    fn decode_older(version: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        match version {
            1 => Ok(decode_payload::<DatagramV1>(payload)?.into()),
            found => Err(DecodeError::Version { kind: Self::KIND, found, newest: Self::VERSION }),
        }
    }
}

#[cfg(test)]
#[path = "datagram_test.rs"]
mod tests;
