//! Reasons for which peers are refused, and their counters.

use std::sync::atomic::{AtomicU64, Ordering};

/// Reason for which a connection is refused, before anything that the peer sends is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HandshakeError {
    /// The certificate is of another CA, or its signature is wrong.
    WrongAuthority,
    /// The certificate has expired.
    Expired,
    /// The validity of the certificate has not begun.
    NotYetValid,
    /// The certificate can't be read, or is for another purpose.
    BadCertificate,
    /// The peer showed no certificate.
    NoCertificate,
    /// The certificate names no node, or more than one.
    NoIdentity,
    /// The node belongs to another cluster.
    OtherCluster,
    /// No peer of that name is configured.
    UnknownNode,
    /// The node is configured in another region.
    WrongRegion,
    /// Another node answers at the address that was dialled.
    WrongNode,
    /// The certificate was revoked.
    Revoked,
    /// The peer speaks none of this node's protocols.
    NoProtocol,
    /// The peer is too slow, speaks no TLS 1.3, or breaks the handshake in another way.
    Handshake,
    /// Too many connections are being set up.
    Busy,
}

impl HandshakeError {
    /// All reasons.
    pub const ALL: [Self; 14] = [
        Self::WrongAuthority,
        Self::Expired,
        Self::NotYetValid,
        Self::BadCertificate,
        Self::NoCertificate,
        Self::NoIdentity,
        Self::OtherCluster,
        Self::UnknownNode,
        Self::WrongRegion,
        Self::WrongNode,
        Self::Revoked,
        Self::NoProtocol,
        Self::Handshake,
        Self::Busy,
    ];

    /// Returns the reason's name in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WrongAuthority => "wrong_authority",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::BadCertificate => "bad_certificate",
            Self::NoCertificate => "no_certificate",
            Self::NoIdentity => "no_identity",
            Self::OtherCluster => "other_cluster",
            Self::UnknownNode => "unknown_node",
            Self::WrongRegion => "wrong_region",
            Self::WrongNode => "wrong_node",
            Self::Revoked => "revoked",
            Self::NoProtocol => "no_protocol",
            Self::Handshake => "handshake",
            Self::Busy => "busy",
        }
    }
}

/// Number of connections refused since the start, for each reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: [AtomicU64; HandshakeError::ALL.len()],
}

impl Refusals {
    pub(crate) fn count(&self, refusal: HandshakeError) {
        self.counts[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, refusal: HandshakeError) -> u64 {
        self.counts[refusal as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_count_of_its_own() {
        let refusals = Refusals::default();
        for (times, refusal) in HandshakeError::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| refusals.count(refusal));
        }
        for (times, refusal) in HandshakeError::ALL.into_iter().enumerate() {
            assert_eq!(refusals.of(refusal), times as u64, "{}", refusal.as_str());
        }
    }
}
