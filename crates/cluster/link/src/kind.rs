//! Kinds of connection: each pair of nodes keeps one of each.

use std::fmt;

/// Kind of a connection by its content. Each kind has limits of its own, so that bulk on one can't
/// delay the other, and a dead path shows on the control connection long before requests are given
/// up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Datagrams, and short streams of other parts of the node.
    Control,
    /// Forwarded requests, one stream each, and bulk streams.
    Data,
}

impl Kind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Control, Self::Data];

    /// Returns the name of the protocol that a connection of this kind agrees on in its handshake.
    /// A later wire version will be another name, offered before this one.
    #[must_use]
    pub fn protocol(self) -> &'static [u8] {
        match self {
            Self::Control => b"spillway-control/1",
            Self::Data => b"spillway-data/1",
        }
    }

    /// Returns the kind of a protocol's name; `None` for an unknown name.
    #[must_use]
    pub fn of_protocol(protocol: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.protocol() == protocol)
    }

    /// Returns the kind's name in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Data => "data",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
