//! Codes on the wire that give the reason for which a stream or a connection ended.

use quinn::VarInt;

/// Reason for which a node gave up one direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamCode {
    /// The stream is not needed any more: the client left, or the rest is not wanted.
    Cancelled,
    /// The deadline of the request has passed.
    Deadline,
    /// The sender's own body or handler failed.
    Internal,
    /// The request is refused.
    Refused,
    /// The other side broke the protocol.
    Malformed,
    /// A code that this version does not know.
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
            // Unknown codes only come from the wire, so the number fits.
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

/// Reason for which a node closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseCode {
    /// The node ends. It has answered all requests that it accepted, so the others can be sent
    /// elsewhere.
    Shutdown,
    /// The node ends with requests open.
    Abandoned,
    /// Another connection of the same kind to the same peer is used instead.
    Double,
    /// The peer is no longer a member.
    NotMember,
    /// The peer broke the protocol.
    Malformed,
    /// The peer has acknowledged nothing for too long.
    Deaf,
    /// The peer has more connections than it needs.
    TooMany,
    /// The peer's process has ended: a new process of the same name is there.
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
