//! Facts about a client connection that its requests need.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;
use spillway_protocol::TrustedProxies;
use spillway_transport::{RestReader, UnreadBody};

use crate::access::{AccessMode, AccessSwitch};
use crate::client::meter::ConnectionMeter;

/// Facts about a connection that its requests need.
#[derive(Debug)]
pub struct ConnectionFacts {
    /// Address of the client, or of the proxy in front of it.
    pub address: IpAddr,
    /// The address as header text, made once for all requests.
    pub address_text: HeaderValue,
    /// True if the connection is encrypted.
    pub is_tls: bool,
    /// True if the address is that of a proxy that did not name its client.
    pub is_unnamed: bool,
    /// Proxies whose forwarding headers are believed.
    pub trusted_proxies: Arc<TrustedProxies>,
    /// Authentication that the listener asks for.
    pub access: Arc<AccessSwitch>,
    /// Traffic of the connection.
    pub meter: Arc<ConnectionMeter>,
    /// Treatment of bodies that are not read to their end.
    pub unread: UnreadBody,
}

impl ConnectionFacts {
    /// Returns the facts of an HTTP/1.1 connection that has not carried anything yet.
    pub fn new(
        address: IpAddr,
        is_tls: bool,
        trusted_proxies: Arc<TrustedProxies>,
        access: Arc<AccessSwitch>,
    ) -> Self {
        // An address has only digits, letters, dots and colons, so the fallback never shows.
        let address_text = HeaderValue::try_from(address.to_string())
            .unwrap_or(HeaderValue::from_static("unknown"));
        Self {
            address,
            address_text,
            is_tls,
            is_unnamed: false,
            trusted_proxies,
            access,
            meter: Arc::default(),
            unread: UnreadBody::default(),
        }
    }

    /// Returns the facts of an HTTP/2 connection, on which `rests` reads what requests leave unread.
    pub fn over_http2(self, rests: &Arc<RestReader>) -> Self {
        Self { unread: UnreadBody::Http2(Arc::clone(rests)), ..self }
    }

    /// Returns the connection for a client that its proxy does not name: no claim of it is
    /// believed.
    pub fn unnamed(self) -> Self {
        Self { is_unnamed: true, trusted_proxies: Arc::default(), ..self }
    }

    /// Returns true if the peer is a proxy whose forwarding headers are believed.
    pub fn is_trusted(&self) -> bool {
        self.trusted_proxies.trusts(self.address)
    }

    /// Returns true if the peer's headers that name a tenant are believed.
    pub fn is_believed(&self) -> bool {
        self.access.mode() == AccessMode::Headers && self.is_trusted()
    }
}
