//! What a forwarded request begins with.

use std::net::IpAddr;

use http::{HeaderMap, Method, Uri};
use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_types::{ModelName, ModelVersion};

use super::headers::{HEADERS_MAX, HeaderList};

/// Most block hashes that a head carries: a prompt of 4 MiB in blocks of 256 bytes.
const PREFIX_MAX: usize = 16 << 10;

/// A request on its way to another node, without its body.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardHead {
    /// As the client sent it.
    pub method: Method,
    /// Path and query, or a whole URI.
    pub uri: Uri,
    /// The client's headers, trace context included; what belongs to one connection alone is not
    /// among them.
    pub headers: HeaderMap,
    /// The model that is asked for, once aliases are resolved.
    pub model: Option<ModelName>,
    /// The version of the model that has to serve.
    pub pin: Option<ModelVersion>,
    /// Milliseconds until the answer is worthless. A duration, since two clocks can't be compared.
    pub deadline_ms: Option<u64>,
    /// How many nodes have passed it on, this one included.
    pub hop: u8,
    /// Its class; 0 is served first.
    pub priority: u8,
    /// Who pays.
    pub tenant: Option<String>,
    /// Where the client is.
    pub client: Option<IpAddr>,
    /// Keyed hashes of the prompt's blocks, first block first.
    pub prefix: Vec<u64>,
    /// Whether and when a body comes. [`Link::forward`](crate::Link::forward) fills this in from
    /// the body it is given.
    pub body: BodyPlan,
}

impl ForwardHead {
    /// A head with nothing but method and URI, from the first node that passes it on.
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

/// Whether and when the body of a request comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BodyPlan {
    /// There is none.
    Absent,
    /// It comes right behind the head, so many bytes if known.
    Follows(Option<u64>),
    /// It comes when the request is accepted, so many bytes if known.
    Waits(Option<u64>),
}

impl BodyPlan {
    /// The length of the body, if known.
    #[must_use]
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Absent => Some(0),
            Self::Follows(bytes) | Self::Waits(bytes) => bytes,
        }
    }
}

/// [`ForwardHead`] as it travels.
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
    /// 64 KiB of headers as HTTP servers allow them, the longest list of hashes, and some room.
    const BYTES_MAX: usize = 256 << 10;
}

impl HeadMessage {
    /// The message for `head`; an error if it has more than a peer takes.
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

    /// The head that a peer sent; an error if it is none.
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
