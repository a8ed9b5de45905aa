//! What the cluster knows of nodes beside their own words: rights, removals, and revocations.

use serde::{Deserialize, Serialize};
use spillway_types::RegionName;

use crate::{CertificateSerial, Fingerprint, NodeId};

/// Whether a node may propose operators' orders. A node without this record may not, once the
/// cluster enforces membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRight {
    /// Whether it may.
    pub is_operator: bool,
    /// Whether it has said that it is an edge node: it votes only where too few others can.
    pub is_edge: bool,
}

/// Where a join token comes from and what it grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenOrigin {
    /// Index of the entry that made it.
    pub made: u64,
    /// Whether a node that joins by it may propose operators' orders.
    pub is_operator: bool,
}

/// A node that was removed. The row's version is the index of the entry that removed it. It joins
/// again only by a token that was made later, or once an operator has removed this record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedNode {
    /// The number that it had.
    pub id: NodeId,
    /// Its region.
    pub region: RegionName,
    /// SHA-256 of its certificate, as it said last.
    pub fingerprint: Fingerprint,
}

/// A certificate that nobody accepts any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedCertificate {
    /// Why, for people; may be empty.
    pub reason: String,
}

impl CertificateSerial {
    /// The serial number as hexadecimal digits without leading zeros.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::from(match digits.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        })
    }

    /// Reads a serial number as people write it: hexadecimal, in either case, with or without colons.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|it| *it != ':').collect();
        let is_hex = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_hexdigit());
        let digits = digits.to_ascii_lowercase();
        let plain = digits.trim_start_matches('0');
        let plain = if plain.is_empty() { "0" } else { plain };
        (is_hex && plain.len() <= 2 * crate::limits::SERIAL_BYTES_MAX).then(|| Self::from(plain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_has_one_form() {
        let serial = CertificateSerial::of_bytes(&[0, 0x0a, 0xbc]);
        assert_eq!(serial.as_str(), "abc");
        for text in ["0A:BC", "abc", "000abc", "00:0a:bc"] {
            assert_eq!(CertificateSerial::read(text), Some(serial.clone()), "{text}");
        }
        assert_eq!(CertificateSerial::of_bytes(&[0]).as_str(), "0");
        assert_eq!(CertificateSerial::read("00").unwrap().as_str(), "0");
        for wrong in ["", ":", "xyz", "-1", "0x1", &"a".repeat(41)] {
            assert_eq!(CertificateSerial::read(wrong), None, "{wrong}");
        }
    }
}
