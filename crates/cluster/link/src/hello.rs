//! First stream of each connection, in both directions: the sender has accepted the other node's
//! certificate, and names its own process.

use bytes::Bytes;
use quinn::{Connection, ConnectionError, ReadToEndError, WriteError};
use serde::{Deserialize, Serialize};
use spillway_codec::{DecodeError, EncodeError, HEADER_BYTES, Wire};
use thiserror::Error;

/// First message of a node on a connection.
///
/// With TLS a dialler may send before its certificate is judged, so only this message shows it that
/// the certificate was accepted. The number of the process distinguishes a node that has restarted
/// from one that is connected twice: requests that were open with the old process can be given up
/// at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) process: u64,
}

impl Wire for Hello {
    const KIND: u16 = 0x0200;
    const VERSION: u16 = 1;
    /// Room for additions of later versions.
    const BYTES_MAX: usize = 256;
}

/// Reason for which a connection did not begin properly.
#[derive(Debug, Error)]
pub(crate) enum HelloError {
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

/// Sends the number of this process and returns that of the peer's process.
pub(crate) async fn exchange(connection: &Connection, process: u64) -> Result<u64, HelloError> {
    // Both nodes send before they read, so that neither waits for the other.
    let mut said = connection.open_uni().await?;
    said.write_chunk(frame(process)?).await?;
    // The drop ends the stream; written bytes are still sent.
    drop(said);
    let mut heard = connection.accept_uni().await?;
    let heard = heard.read_to_end(HEADER_BYTES + Hello::BYTES_MAX).await?;
    Ok(spillway_codec::decode::<Hello>(&heard)?.process)
}

pub(crate) fn frame(process: u64) -> Result<Bytes, EncodeError> {
    spillway_codec::encode(&Hello { process })
}
