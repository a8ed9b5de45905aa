//! A version of datagrams that only tests have. It represents the version before the present one.
//!
//! A node of this version does not report for how long it has received nothing from the receiver.

use serde::{Deserialize, Serialize};
use spillway_codec::{DecodeError, Wire, decode_payload};

use crate::datagram::{Body, Datagram};
use crate::name_id::NameId;

/// A datagram of the older version.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OlderDatagram {
    origin: NameId,
    incarnation: u64,
    seq: u64,
    body: Body,
}

impl Wire for OlderDatagram {
    const KIND: u16 = Datagram::KIND;
    const VERSION: u16 = Datagram::VERSION - 1;
    const BYTES_MAX: usize = Datagram::BYTES_MAX;
}

impl From<Datagram> for OlderDatagram {
    fn from(datagram: Datagram) -> Self {
        let Datagram { origin, incarnation, seq, heard: _, body } = datagram;
        Self { origin, incarnation, seq, body }
    }
}

/// Reads the payload of a datagram of the older version.
pub(crate) fn decode_older(version: u16, payload: &[u8]) -> Result<Datagram, DecodeError> {
    assert_eq!(version, OlderDatagram::VERSION);
    let OlderDatagram { origin, incarnation, seq, body } = decode_payload(payload)?;
    Ok(Datagram { origin, incarnation, seq, heard: 0, body })
}
