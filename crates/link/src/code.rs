//! Numbers that say why a stream or a connection ended. They are part of the wire format.

use quinn::VarInt;

/// Why a node gave up one direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamCode {
    /// Nobody wants it any more: the client left, or the rest is not needed.
    Cancelled,
    /// Its time was over.
    Deadline,
    /// The sender's own body failed, or its handler did.
    Internal,
    /// The request is refused.
    Refused,
    /// The other side broke the protocol.
    Malformed,
    /// A number that this version does not know.
    Unknown(u64),
}

impl StreamCode {
    pub(crate) fn number(self) -> VarInt {
        match self {
            Self::Cancelled => VarInt::from_u32(0x10),
            Self::Deadline => VarInt::from_u32(0x11),
            Self::Internal => VarInt::from_u32(0x12),
            Self::Refused => VarInt::from_u32(0x13),
            Self::Malformed => VarInt::from_u32(0x14),
            // The only way to have one is to have received it, so it fits.
            Self::Unknown(number) => VarInt::from_u64(number).unwrap_or(VarInt::MAX),
        }
    }

    pub(crate) fn from_number(number: VarInt) -> Self {
        match number.into_inner() {
            0x10 => Self::Cancelled,
            0x11 => Self::Deadline,
            0x12 => Self::Internal,
            0x13 => Self::Refused,
            0x14 => Self::Malformed,
            number => Self::Unknown(number),
        }
    }
}

/// Why a node closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseCode {
    /// The node ends. It has answered all that it accepted, and accepted nothing since: what it has
    /// not answered can go elsewhere.
    Shutdown,
    /// The node ends, with requests open.
    Abandoned,
    /// Another connection of the same kind to the same peer is used instead.
    Double,
    /// The peer is no member any more.
    NotMember,
    /// The peer broke the protocol.
    Malformed,
    /// Nothing that was sent has been acknowledged for too long.
    Deaf,
    /// More connections at a time than a peer needs.
    TooMany,
    /// The peer's process has ended: another one of the same name is there.
    Restarted,
}

impl CloseCode {
    pub(crate) fn number(self) -> VarInt {
        VarInt::from_u32(match self {
            Self::Shutdown => 0x01,
            Self::Double => 0x02,
            Self::NotMember => 0x03,
            Self::Malformed => 0x04,
            Self::Deaf => 0x05,
            Self::TooMany => 0x06,
            Self::Restarted => 0x07,
            Self::Abandoned => 0x08,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_code_survives_the_wire() {
        for code in [
            StreamCode::Cancelled,
            StreamCode::Deadline,
            StreamCode::Internal,
            StreamCode::Refused,
            StreamCode::Malformed,
            StreamCode::Unknown(0x7777),
        ] {
            assert_eq!(StreamCode::from_number(code.number()), code);
        }
    }
}
