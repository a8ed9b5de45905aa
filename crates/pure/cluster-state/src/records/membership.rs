//! Records about membership: rights of nodes, removed nodes and revoked certificates.

use serde::{Deserialize, Serialize};
use spillway_types::RegionName;

use crate::{CertificateSerial, Fingerprint, NodeId};

/// Right of a node to propose operators' orders. Once the cluster enforces membership, a node
/// without this record has no such right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRight {
    /// True if the node may propose operators' orders.
    pub is_operator: bool,
    /// True if the node has declared itself an edge node, which votes only where too few others
    /// can.
    pub is_edge: bool,
}

/// Origin of a join token and the right that it grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenOrigin {
    /// Index of the entry that made the token.
    pub made: u64,
    /// True if a node that joins by the token may propose operators' orders.
    pub is_operator: bool,
}

/// A node that was removed. The row's version is the index of the entry that removed the node. The
/// node joins again only by a token that was made later, or after an operator has removed this
/// record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedNode {
    /// Number that the node had in the Raft group.
    pub id: NodeId,
    /// Region of the node.
    pub region: RegionName,
    /// SHA-256 of the node's certificate, as the node registered it last.
    pub fingerprint: Fingerprint,
}

/// A revoked certificate, which no node accepts any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedCertificate {
    /// Reason, for people; may be empty.
    pub reason: String,
}

impl CertificateSerial {
    /// Returns the serial number as hexadecimal digits without leading zeros.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::from(match digits.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        })
    }

    /// Reads a serial number as people write it: hexadecimal, in either case, with or without
    /// colons. Returns None for other texts, and for more than 20 bytes.
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
