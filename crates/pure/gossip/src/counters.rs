//! Counters of the gossip, and reasons to refuse a datagram.

use spillway_codec::DecodeError;
use spillway_types::NodeName;

/// Reason for refusing a datagram.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GossipError {
    /// The datagram is no intact frame of a known version.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The sender is no member, or not of the region that it names.
    #[error("`{0}` is no member of that region")]
    Stranger(NodeName),
    /// Another node than the sender made the datagram.
    #[error("`{0}` sent what another node made")]
    Origin(NodeName),
    /// The datagram, or a newer one that replaces it, came before: it is doubled, replayed, or
    /// late.
    #[error("it came from `{0}` before, or something newer did")]
    Old(NodeName),
    /// The datagram contains a report that only a node of the own region, or only one of another
    /// region, may send.
    #[error("`{0}` said what is not said between our regions")]
    Misplaced(NodeName),
}

/// Counts since the start. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GossipCounters {
    /// Datagrams handed out to be sent.
    pub sent: u64,
    /// Bytes of those datagrams.
    pub sent_bytes: u64,
    /// Datagrams that were accepted.
    pub taken: u64,
    /// [`GossipError::Malformed`].
    pub malformed: u64,
    /// [`GossipError::Stranger`].
    pub strangers: u64,
    /// [`GossipError::Origin`].
    pub wrong_origins: u64,
    /// [`GossipError::Old`].
    pub old: u64,
    /// [`GossipError::Misplaced`].
    pub misplaced: u64,
    /// Questions for what was missing.
    pub asked: u64,
    /// Questions of others that were answered.
    pub answered: u64,
    /// Names left out: too many, or with an id that another name has.
    pub names_left_out: u64,
    /// Members left out: too many.
    pub members_left_out: u64,
    /// Datagrams that were not fetched in time.
    pub transmits_dropped: u64,
    /// Events that were not fetched in time.
    pub events_dropped: u64,
}

impl GossipCounters {
    pub(crate) fn refused(&mut self, refusal: &GossipError) {
        let counter = match refusal {
            GossipError::Malformed(_) => &mut self.malformed,
            GossipError::Stranger(_) => &mut self.strangers,
            GossipError::Origin(_) => &mut self.wrong_origins,
            GossipError::Old(_) => &mut self.old,
            GossipError::Misplaced(_) => &mut self.misplaced,
        };
        *counter += 1;
    }
}
