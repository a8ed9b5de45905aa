//! Errors of making and of reading a frame.

/// Error of a frame that was refused. Reading the same bytes again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes do not begin like a frame.
    #[error("this is no frame: it begins with {found:#06x}")]
    Magic {
        /// The first two bytes, little endian.
        found: u16,
    },
    /// The frame holds another message than expected.
    #[error("a message of kind {found:#06x} came where {expected:#06x} belongs")]
    Kind {
        /// Kind in the frame.
        found: u16,
        /// Kind that was expected.
        expected: u16,
    },
    /// The sender's version is newer than this program, or too old to be read.
    #[error("version {found} of kind {kind:#06x} cannot be read, {newest} is the newest known")]
    Version {
        /// Kind of the message.
        kind: u16,
        /// Version in the frame.
        found: u16,
        /// The newest version this program reads.
        newest: u16,
    },
    /// The payload is longer than its kind may be.
    #[error("a payload of {bytes} bytes is longer than the {bytes_max} it may have")]
    TooLong {
        /// Length that the header claims.
        bytes: usize,
        /// Longest length that this kind may have.
        bytes_max: usize,
    },
    /// Bytes are missing.
    #[error("{bytes} bytes came of {needed}")]
    TooShort {
        /// Number of bytes present.
        bytes: usize,
        /// Number of bytes needed.
        needed: usize,
    },
    /// Bytes follow the frame.
    #[error("{bytes} bytes follow the frame")]
    Trailing {
        /// Number of bytes behind the frame.
        bytes: usize,
    },
    /// Some bit was changed in transit.
    #[error("the checksum does not fit")]
    Checksum,
    /// An intact frame whose payload is not what its version promises: a fault of the sender.
    #[error("the payload is malformed: {why}")]
    Payload {
        /// Description of the fault.
        why: Box<str>,
    },
}

/// Error of a message that could not be made into a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The payload would be longer than its kind may be.
    #[error("the payload is longer than the {bytes_max} bytes it may have")]
    TooLong {
        /// Longest length that this kind may have.
        bytes_max: usize,
    },
    /// The message has a part that the format cannot carry: a fault of the program.
    #[error("the message cannot be encoded: {why}")]
    Payload {
        /// Description of that part.
        why: Box<str>,
    },
}
