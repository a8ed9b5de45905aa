//! Answers to a forwarded request: the decision, the head of the reply, and trailers.

use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use spillway_codec::Wire;

use super::headers::{HEADERS_MAX, HeaderList, REPLY_FIELDS_BYTES_MAX};

/// Decision of a node on a request from another node, sent before any work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ForwardWord {
    /// The request will be answered.
    Accepted,
    /// The request is refused, and no work was done for it.
    Refused(Refused),
}

impl Wire for ForwardWord {
    const KIND: u16 = 0x0202;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 64;
}

/// Refusal of a request by a node. Another node may accept it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Reason of the refusal.
    pub reason: RefusedReason,
    /// Milliseconds until there may be room; `None` if the node does not know.
    pub wait_ms: Option<u32>,
}

/// Reason for which a node refuses a request from another node. Between nodes it is the position
/// of its variant, so none may go: `Reserved`, `Shedding` and `NoReplica` are read, but never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RefusedReason {
    /// The node's replicas are busy.
    Busy,
    /// The rest of its capacity is kept for its own clients.
    Reserved,
    /// The node sheds requests of its own clients too.
    Shedding,
    /// The node has no replica that could serve this request.
    NoReplica,
    /// The node is about to end.
    Draining,
    /// Too many nodes have passed the request on.
    Hops,
    /// The answer would come too late.
    Deadline,
    /// The request may not be served in this region. Used only for requests with a residency, which
    /// nodes that don't know this reason never send.
    Residency,
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
    const BYTES_MAX: usize = REPLY_FIELDS_BYTES_MAX;
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

/// Trailers of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Trailers {
    headers: HeaderList,
}

impl Wire for Trailers {
    const KIND: u16 = 0x0204;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = REPLY_FIELDS_BYTES_MAX;
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
