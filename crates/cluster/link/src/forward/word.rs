//! Answers to a forwarded request: the decision, the head of the reply, and trailers.

use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_types::reasons;

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

reasons! {
    /// Reason for which a node refuses a request from another node. Between nodes it is the position
    /// of its variant, so none may be removed or moved. `Reserved`, `Shedding` and `NoReplica` are
    /// only read: nodes of earlier releases may send them, this one does not. `Residency` is sent only
    /// for requests with a residency, which nodes that don't know the reason never send.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum RefusedReason {
        /// The node that was asked has no free slot at its replicas.
        Busy = "busy";
        /// The node that was asked reserves the rest of its capacity for its own clients.
        Reserved = "reserved";
        /// The node that was asked sheds requests of its own clients too.
        Shedding = "shedding";
        /// The node that was asked has no replica that could serve the request.
        NoReplica = "no_replica";
        /// The node that was asked is shutting down.
        Draining = "draining";
        /// Too many nodes have passed the request on.
        Hops = "hops";
        /// The reply would come after the request's deadline.
        Deadline = "deadline";
        /// The residency rules of the request do not allow the region that was asked.
        Residency = "residency";
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
