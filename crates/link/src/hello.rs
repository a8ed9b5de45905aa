//! The first stream of each connection, both ways: the sender has accepted the other's certificate,
//! and which of its processes it is.

use bytes::Bytes;
use quinn::{Connection, ConnectionError, ReadToEndError, WriteError};
use serde::{Deserialize, Serialize};
use spillway_codec::{DecodeError, EncodeError, HEADER_BYTES, Wire};
use thiserror::Error;

/// What a node says first on a connection.
///
/// A dialler could not tell otherwise whether its certificate was accepted: TLS lets it send before
/// it is judged. And the number of the process tells a node that has started again from one that
/// is connected twice: what was open with the process before can be given up at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) process: u64,
}

impl Wire for Hello {
    const KIND: u16 = 0x0200;
    const VERSION: u16 = 1;
    /// A later version may say more.
    const BYTES_MAX: usize = 256;
}

/// A connection that did not begin as it should.
#[derive(Debug, Error)]
pub(crate) enum HelloFault {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error("the hello can't be sent: {0}")]
    Write(#[from] WriteError),
    #[error("the hello can't be read: {0}")]
    Read(#[from] ReadToEndError),
    #[error("the hello is none: {0}")]
    Decode(#[from] DecodeError),
    #[error("the hello can't be made: {0}")]
    Encode(#[from] EncodeError),
}

/// Says which process this is and hears which the peer's is.
pub(crate) async fn exchange(connection: &Connection, process: u64) -> Result<u64, HelloFault> {
    let mut said = connection.open_uni().await?;
    said.write_chunk(frame(process)?).await?;
    // It ends when it is dropped; what was written still goes out.
    drop(said);
    let mut heard = connection.accept_uni().await?;
    let heard = heard.read_to_end(HEADER_BYTES + Hello::BYTES_MAX).await?;
    Ok(spillway_codec::decode::<Hello>(&heard)?.process)
}

pub(crate) fn frame(process: u64) -> Result<Bytes, EncodeError> {
    spillway_codec::encode(&Hello { process })
}
