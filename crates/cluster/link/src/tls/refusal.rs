//! Reasons for which peers are refused, and their counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quinn::ConnectionError;

/// Time after which an unchanged refusal is logged again: a wrong peer dials several times a minute.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// Refusals that are remembered at most. Beyond that they are counted and not logged, so that
/// strangers can't fill the log.
const TOLD_MAX: usize = 256;

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
    /// The peer supports none of this node's protocols.
    NoProtocol,
    /// The peer is too slow, does not support TLS 1.3, or breaks the handshake in another way.
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
    /// Refusals that were logged, and when. Locked during handshakes alone.
    told: Mutex<BTreeMap<String, Instant>>,
}

impl Refusals {
    pub(crate) fn count(&self, refusal: HandshakeError) {
        self.counts[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if a refusal with this text was not logged within the last minute, and notes
    /// that it is logged now.
    pub(crate) fn is_news(&self, text: &str, now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| now.saturating_duration_since(*at) < TELL_AGAIN);
        if told.contains_key(text) || told.len() >= TOLD_MAX {
            return false;
        }
        told.insert(text.to_owned(), now);
        true
    }

    pub(crate) fn of(&self, refusal: HandshakeError) -> u64 {
        self.counts[refusal as usize].load(Ordering::Relaxed)
    }
}

/// Returns the reason for which the other node refused this node's certificate; `None` if the
/// connection ended in another way.
pub(crate) fn refused_by_peer(error: &ConnectionError) -> Option<&'static str> {
    let ConnectionError::ConnectionClosed(close) = error else { return None };
    // The last byte of these codes is the TLS alert (RFC 9001, 4.8).
    let alert = u64::from(close.error_code).checked_sub(0x100)?;
    match alert {
        42 | 43 => Some("bad_certificate"),
        44 => Some("revoked"),
        45 => Some("expired"),
        46 => Some("unknown_certificate"),
        48 => Some("wrong_authority"),
        49 => Some("access_denied"),
        116 => Some("no_certificate"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_news_once_a_minute() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        assert!(refusals.is_news("a", now));
        assert!(!refusals.is_news("a", now + Duration::from_secs(59)));
        assert!(refusals.is_news("b", now));
        assert!(refusals.is_news("a", now + Duration::from_secs(60)));
        let later = now + Duration::from_secs(200);
        let told = (0..1_000).filter(|at| refusals.is_news(&at.to_string(), later)).count();
        assert_eq!(told, TOLD_MAX);
    }

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
