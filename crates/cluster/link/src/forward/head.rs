//! Head of a forwarded request.

use std::net::IpAddr;

use http::{HeaderMap, Method, Uri};
use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_types::{ModelName, ModelVersion};

use super::headers::{HEADERS_MAX, HeaderList};

/// Most block hashes in a head: a prompt of 4 MiB in blocks of 256 bytes.
const PREFIX_MAX: usize = 16 << 10;

/// Request to forward to another node, without its body.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardHead {
    /// Method that the client sent.
    pub method: Method,
    /// Path and query, or a whole URI.
    pub uri: Uri,
    /// Headers of the client, trace context included, without those of a single connection.
    pub headers: HeaderMap,
    /// Model that the client asks for, after aliases are resolved.
    pub model: Option<ModelName>,
    /// Version of the model that must serve the request; `None` for any.
    pub pin: Option<ModelVersion>,
    /// Milliseconds until the answer is worthless. A duration, because clocks of two nodes can't be
    /// compared.
    pub deadline_ms: Option<u64>,
    /// Number of nodes that have passed the request on, this one included.
    pub hop: u8,
    /// Priority class; 0 is served first.
    pub priority: u8,
    /// Tenant that pays for the request.
    pub tenant: Option<String>,
    /// Address of the client.
    pub client: Option<IpAddr>,
    /// Keyed hashes of the prompt's blocks, first block first.
    pub prefix: Vec<u64>,
    /// Plan for the body. [`Link::forward`](crate::Link::forward) sets it from the body that it is
    /// given.
    pub body: BodyPlan,
}

impl ForwardHead {
    /// Makes a head with only method and URI, from the first node that passes it on.
    #[must_use]
    pub fn new(method: Method, uri: Uri) -> Self {
        Self {
            method,
            uri,
            headers: HeaderMap::new(),
            model: None,
            pin: None,
            deadline_ms: None,
            hop: 1,
            priority: 0,
            tenant: None,
            client: None,
            prefix: Vec::new(),
            body: BodyPlan::Absent,
        }
    }
}

/// Plan for the body of a request: absent, at once, or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BodyPlan {
    /// The request has no body.
    Absent,
    /// The body comes right behind the head, with its length in bytes if known.
    Follows(Option<u64>),
    /// The body comes after the request is accepted, with its length in bytes if known.
    Waits(Option<u64>),
}

impl BodyPlan {
    /// Returns the length of the body in bytes, if known.
    #[must_use]
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Absent => Some(0),
            Self::Follows(bytes) | Self::Waits(bytes) => bytes,
        }
    }
}

/// [`ForwardHead`] on the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct HeadMessage {
    method: String,
    uri: String,
    headers: HeaderList,
    model: Option<ModelName>,
    pin: Option<ModelVersion>,
    deadline_ms: Option<u64>,
    hop: u8,
    priority: u8,
    tenant: Option<String>,
    client: Option<IpAddr>,
    prefix: Vec<u64>,
    body: BodyPlan,
}

impl Wire for HeadMessage {
    const KIND: u16 = 0x0201;
    const VERSION: u16 = 1;
    /// Room for 64 KiB of headers, as HTTP servers allow, the longest list of hashes, and a
    /// reserve.
    const BYTES_MAX: usize = 256 << 10;
}

impl HeadMessage {
    /// Makes the message for `head`. Returns an error if the head is larger than a peer accepts.
    pub(super) fn of(head: ForwardHead) -> Result<Self, &'static str> {
        if head.headers.len() > HEADERS_MAX {
            return Err("too many headers");
        }
        if head.prefix.len() > PREFIX_MAX {
            return Err("too many block hashes");
        }
        Ok(Self {
            method: head.method.as_str().to_owned(),
            uri: head.uri.to_string(),
            headers: HeaderList::of(&head.headers),
            model: head.model,
            pin: head.pin,
            deadline_ms: head.deadline_ms,
            hop: head.hop,
            priority: head.priority,
            tenant: head.tenant,
            client: head.client,
            prefix: head.prefix,
            body: head.body,
        })
    }

    /// Returns the head that a peer sent, or an error if it is not valid.
    pub(super) fn into_head(self) -> Result<ForwardHead, &'static str> {
        if self.prefix.len() > PREFIX_MAX {
            return Err("too many block hashes");
        }
        Ok(ForwardHead {
            method: Method::from_bytes(self.method.as_bytes()).or(Err("no method"))?,
            uri: Uri::from_maybe_shared(bytes::Bytes::from(self.uri)).or(Err("no URI"))?,
            headers: self.headers.into_map()?,
            model: self.model,
            pin: self.pin,
            deadline_ms: self.deadline_ms,
            hop: self.hop,
            priority: self.priority,
            tenant: self.tenant,
            client: self.client,
            prefix: self.prefix,
            body: self.body,
        })
    }
}
