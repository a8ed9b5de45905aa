//! What a datagram is about, told before it is read.

use spillway_codec::{FrameHeader, HEADER_BYTES, Wire};

use crate::datagram::Datagram;
use crate::sharing::PROMPTS_KIND;
use crate::speeds::Telling;

/// Who reads a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Load, for [`crate::Pulse`].
    Load,
    /// How fast a region is, for [`crate::Speeds`].
    Speeds,
    /// Prompts that were sent, for [`crate::Sharing`].
    Prompts,
}

impl Content {
    /// What `datagram` is about; `None` if nobody here reads it.
    #[must_use]
    pub fn of(datagram: &[u8]) -> Option<Self> {
        let head = datagram.first_chunk::<HEADER_BYTES>()?;
        match FrameHeader::parse(head).ok()?.kind {
            Datagram::KIND => Some(Self::Load),
            Telling::KIND => Some(Self::Speeds),
            PROMPTS_KIND => Some(Self::Prompts),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use spillway_types::Speed;

    use super::*;
    use crate::{NameId, Sharing, SharingConfig, Speeds};

    #[test]
    fn each_kind_is_told_from_the_others() {
        let speeds = Speeds::new(1).tell(&BTreeMap::from([("llama".into(), Speed::UNKNOWN)]));
        assert_eq!(Content::of(&speeds[0]), Some(Content::Speeds));
        let mut sharing = Sharing::new(SharingConfig::default(), 0);
        sharing.tell_sent(NameId::of_replica(&"gpu".into()), &[1]);
        assert_eq!(Content::of(&sharing.flush()[0].1), Some(Content::Prompts));
        assert_eq!(Content::of(b"SW"), None);
        assert_eq!(Content::of(&[0; 40]), None);
    }
}
