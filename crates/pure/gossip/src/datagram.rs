//! Datagrams of load, and the reports in them.

use serde::{Deserialize, Serialize};
use spillway_codec::{HEADER_BYTES, Wire};

use crate::entry::{ModelEntry, SiblingEntry};
use crate::name_id::NameId;

/// Longest datagram without its entries, bytes: every number at its longest.
pub(crate) const ENVELOPE_BYTES_MAX: usize = HEADER_BYTES + 72;

/// A datagram of load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Datagram {
    /// Node that made the datagram; has to be the one that the certificate names.
    pub(crate) origin: NameId,
    /// Grows with every start of the origin.
    pub(crate) incarnation: u64,
    /// Grows with every datagram of an incarnation, to any receiver.
    pub(crate) seq: u64,
    /// Time since the origin last received a datagram from the receiver, if they share a region, or
    /// else from any node of the receiver's region: milliseconds plus 1; 0 for never.
    pub(crate) heard: u32,
    pub(crate) body: Body,
}

/// Purpose of a datagram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Body {
    /// Report of a region's speaker to all nodes of other regions.
    Region(Report<ModelEntry>),
    /// Report of a node to another one of its region.
    Sibling { echo: Echo, report: Report<SiblingEntry> },
    /// Question to a node whose report the sender has only in part.
    Ask {
        /// The incarnation that sent it.
        incarnation: u64,
        /// The version that the sender has whole; 0 if none.
        have: u64,
    },
}

/// Version of the receiver's report that the sender has, and its incarnation.
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

    /// Returns the version, if it belongs to `incarnation`.
    pub(crate) fn version_of(self, incarnation: u64) -> Option<u64> {
        (self == Self::new(incarnation, self.version)).then_some(self.version)
    }
}

/// A part of a sender's report, and the fingerprint of the whole report.
///
/// A receiver with another fingerprint after taking in the entries lacks something and asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report<E> {
    /// Age of the load when this was sent, milliseconds.
    pub(crate) age_ms: u32,
    /// Version of the sender's report that this part leads to.
    pub(crate) version: u64,
    /// Fingerprint of that version.
    pub(crate) digest: [u8; 4],
    /// True if the receiver has to forget what it had: everything follows.
    pub(crate) whole: bool,
    /// True if more parts follow at once: the receiver does not ask yet.
    pub(crate) more: bool,
    pub(crate) entries: Vec<E>,
}

impl Wire for Datagram {
    const KIND: u16 = 0x0101;
    const VERSION: u16 = 1;
    // Longer than any path carries; what is sent has a limit of its own.
    const BYTES_MAX: usize = 2_048;

    // A release that changes datagrams reads the version before it here, and writes its own. A node
    // of an earlier release drops datagrams that it cannot read.
    #[cfg(test)]
    fn decode_older(version: u16, payload: &[u8]) -> Result<Self, spillway_codec::DecodeError> {
        crate::datagram_older::decode_older(version, payload)
    }
}

#[cfg(test)]
#[path = "datagram_test.rs"]
mod tests;
