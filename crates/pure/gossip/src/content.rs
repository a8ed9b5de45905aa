//! Kinds of datagrams, which their headers show.

use spillway_codec::{FrameHeader, HEADER_BYTES, Wire};

use crate::datagram::Datagram;
use crate::revocations::RevocationWord;
use crate::sharing::PROMPTS_KIND;
use crate::speeds::SpeedsTelling;
use crate::steering::SteeringWord;

/// Kind of a datagram: the part of the gossip that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Load, for [`crate::GossipMachine`].
    Load,
    /// Speeds of a region, for [`crate::Speeds`].
    Speeds,
    /// Prompts that were sent, for [`crate::Sharing`].
    Prompts,
    /// Steering of clients, for [`crate::SteeringGossip`].
    Steering,
    /// Revocations that the CA has signed, for [`crate::RevocationGossip`].
    Revocations,
}

impl Content {
    /// Returns the kind of `datagram`; `None` if no part of the gossip reads it.
    #[must_use]
    pub fn of(datagram: &[u8]) -> Option<Self> {
        let head = datagram.first_chunk::<HEADER_BYTES>()?;
        match FrameHeader::parse(head).ok()?.kind {
            Datagram::KIND => Some(Self::Load),
            SpeedsTelling::KIND => Some(Self::Speeds),
            PROMPTS_KIND => Some(Self::Prompts),
            SteeringWord::KIND => Some(Self::Steering),
            RevocationWord::KIND => Some(Self::Revocations),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use spillway_types::{Speed, Steering};

    use super::*;
    use crate::fuzz::some_moment;
    use crate::{NameId, RevocationGossip, Sharing, SharingConfig, Speeds, SteeringGossip};

    #[test]
    fn each_kind_is_told_from_the_others() {
        let speeds = Speeds::new(1).tell(&BTreeMap::from([("llama".into(), Speed::UNKNOWN)]));
        assert_eq!(Content::of(&speeds[0]), Some(Content::Speeds));
        let mut sharing = Sharing::new(SharingConfig::default(), 0);
        sharing.report_sent(NameId::of_replica(&"gpu".into()), &[1]);
        assert_eq!(Content::of(&sharing.flush()[0].1), Some(Content::Prompts));
        let now = some_moment();
        let word = SteeringGossip::new("eu".into(), 1).report_inside(Steering::Send, now).unwrap();
        assert_eq!(Content::of(&word), Some(Content::Steering));
        let list = bytes::Bytes::from_static(b"list");
        let word = RevocationGossip::default().tell(&[list], now).unwrap();
        assert_eq!(Content::of(&word), Some(Content::Revocations));
        assert_eq!(Content::of(b"SW"), None);
        assert_eq!(Content::of(&[0; 40]), None);
    }
}
