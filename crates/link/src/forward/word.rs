//! The answers to a forwarded request: the word, then the head of the reply, later trailers.

use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use spillway_codec::Wire;

use super::headers::{HEADERS_MAX, HeaderList};

/// Whether a node takes a request from another node. Sent before anything is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Word {
    /// It is going to be answered.
    Accepted,
    /// It is not, and nothing has been done with it.
    Refused(Refused),
}

impl Wire for Word {
    const KIND: u16 = 0x0202;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 64;
}

/// A node does not take a request. Another one may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Why.
    pub reason: RefusedReason,
    /// In how many milliseconds there may be room, if the node can tell.
    pub wait_ms: Option<u32>,
}

/// Why a node does not take a request from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RefusedReason {
    /// Its replicas are busy.
    Busy,
    /// What is left is kept for its own clients.
    Reserved,
    /// It turns away its own clients too.
    Shedding,
    /// It has no replica that could serve this.
    NoReplica,
    /// It is about to end.
    Draining,
    /// Too many nodes have passed the request on.
    Hops,
    /// The answer would come too late.
    Deadline,
    /// It may not be served in this region. Only for requests that say where they may be, which
    /// nodes that don't know this reason never send.
    Residency,
}

impl RefusedReason {
    /// Its name in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Reserved => "reserved",
            Self::Shedding => "shedding",
            Self::NoReplica => "no_replica",
            Self::Draining => "draining",
            Self::Hops => "hops",
            Self::Deadline => "deadline",
            Self::Residency => "residency",
        }
    }
}

/// Status and headers of a reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReplyHead {
    status: u16,
    headers: HeaderList,
}

impl Wire for ReplyHead {
    const KIND: u16 = 0x0203;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 128 << 10;
}

impl ReplyHead {
    pub(super) fn of(status: StatusCode, headers: &HeaderMap) -> Result<Self, &'static str> {
        if headers.len() > HEADERS_MAX {
            return Err("too many headers");
        }
        Ok(Self { status: status.as_u16(), headers: HeaderList::of(headers) })
    }

    pub(super) fn into_parts(self) -> Result<(StatusCode, HeaderMap), &'static str> {
        let status = StatusCode::from_u16(self.status).or(Err("no status"))?;
        Ok((status, self.headers.into_map()?))
    }
}

/// The trailers of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Trailers {
    headers: HeaderList,
}

impl Wire for Trailers {
    const KIND: u16 = 0x0204;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 64 << 10;
}

impl Trailers {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, &'static str> {
        if headers.len() > HEADERS_MAX {
            return Err("too many trailers");
        }
        Ok(Self { headers: HeaderList::of(headers) })
    }

    pub(super) fn into_map(self) -> Result<HeaderMap, &'static str> {
        self.headers.into_map()
    }
}
