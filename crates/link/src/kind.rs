//! The two connections that a pair of nodes keeps.

use std::fmt;

/// What a connection carries. Each kind has limits of its own, so that bulk on one can't delay the
/// other, and a dead path shows on the control connection long before requests are given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Datagrams: small, fresh or worthless.
    Control,
    /// Forwarded requests: one stream each.
    Data,
}

impl Kind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Control, Self::Data];

    /// The protocol that a connection of this kind agrees on while it is set up. A later wire
    /// version is a further name, offered before this one.
    #[must_use]
    pub fn protocol(self) -> &'static [u8] {
        match self {
            Self::Control => b"spillway-control/1",
            Self::Data => b"spillway-data/1",
        }
    }

    /// The kind that a protocol's name stands for.
    #[must_use]
    pub fn of_protocol(protocol: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.protocol() == protocol)
    }

    /// Its name in logs and metrics.
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
