//! Why a frame could not be made or was refused.

/// A frame was refused. Asking for the same bytes again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It does not begin like a frame.
    #[error("this is no frame: it begins with {found:#06x}")]
    Magic {
        /// The first two bytes, little endian.
        found: u16,
    },
    /// A frame, but of another message.
    #[error("a message of kind {found:#06x} came where {expected:#06x} belongs")]
    Kind {
        /// What came.
        found: u16,
        /// What was to come.
        expected: u16,
    },
    /// The sender speaks a version that this program cannot read.
    #[error("version {found} of kind {kind:#06x} cannot be read, {newest} is the newest known")]
    Version {
        /// Which message.
        kind: u16,
        /// What came.
        found: u16,
        /// The newest version this program reads.
        newest: u16,
    },
    /// The payload is longer than its kind may be.
    #[error("a payload of {bytes} bytes is longer than the {bytes_max} it may have")]
    TooLong {
        /// What the header claims.
        bytes: usize,
        /// What is allowed.
        bytes_max: usize,
    },
    /// Bytes are missing.
    #[error("{bytes} bytes came of {needed}")]
    TooShort {
        /// How many there are.
        bytes: usize,
        /// How many there should be.
        needed: usize,
    },
    /// Bytes follow the frame.
    #[error("{bytes} bytes follow the frame")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// A bit was changed on the way.
    #[error("the checksum does not fit")]
    Checksum,
    /// An intact frame whose payload is not what its version promises: the sender's fault.
    #[error("the payload is malformed: {why}")]
    Payload {
        /// What is wrong with it.
        why: Box<str>,
    },
}

/// A message could not be made into a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The payload would be longer than its kind may be.
    #[error("the payload is longer than the {bytes_max} bytes it may have")]
    TooLong {
        /// What is allowed.
        bytes_max: usize,
    },
    /// The message has a part that the format cannot carry: the programmer's fault.
    #[error("the message cannot be encoded: {why}")]
    Payload {
        /// Which part.
        why: Box<str>,
    },
}
