//! Settings of connections to a replica.

use std::fmt;
use std::time::Duration;

use http::HeaderValue;
use spillway_types::BasePath;

/// Settings of a node's connections to one replica.
#[derive(Clone, Copy, Debug)]
pub struct ServerSpec<'a> {
    /// Host name or address to connect to.
    pub host: &'a str,
    /// TCP port.
    pub port: u16,
    /// Path below which the API lies; `None` for the root.
    pub base: Option<&'a BasePath>,
    /// TLS; `None` speaks cleartext.
    pub tls: Option<&'a TlsSpec>,
    /// Protocol of the main address.
    pub protocol: ReplicaProtocol,
    /// Separate address for gRPC.
    pub grpc: Option<&'a GrpcTarget>,
    /// Most requests of this node in flight; HTTP/1.1 uses a connection for each.
    pub in_flight_max: u32,
    /// Time after which an idle connection is closed.
    pub idle: Duration,
}

/// Address of a replica for gRPC, which is always HTTP/2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcTarget {
    /// Host name or address to connect to.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// TLS; `None` speaks cleartext with prior knowledge.
    pub tls: Option<TlsSpec>,
}

/// TLS settings towards a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSpec {
    /// CA certificates to trust instead of the system's, as PEM text.
    pub ca_pem: Option<Vec<u8>>,
    /// Name to request and verify, if it is not the host.
    pub server_name: Option<String>,
    /// Certificate to show to the server; `None` shows none.
    pub identity: Option<ClientIdentity>,
}

/// Certificate that the gateway shows to a replica, and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Certificate and its intermediates, as PEM text.
    pub certificate_pem: Vec<u8>,
    /// Private key, as PEM text.
    pub key_pem: Vec<u8>,
}

impl fmt::Debug for ClientIdentity {
    /// Leaves the key out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity").finish_non_exhaustive()
    }
}

/// Protocols spoken to a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicaProtocol {
    /// HTTP/1.1, with one connection for each request in flight.
    #[default]
    Http1,
    /// HTTP/2, with prior knowledge in cleartext; one connection per worker, and more where the server
    /// takes fewer streams than there are requests.
    Http2,
}

/// Formats host and port for a `Host` header; the scheme's default port is left out.
pub fn authority(host: &str, port: u16, is_tls: bool) -> HeaderValue {
    let default_port = if is_tls { 443 } else { 80 };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let text = if port == default_port { host } else { format!("{host}:{port}") };
    // A host that is no valid header value cannot be resolved either; the connect error will say
    // so.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("invalid"))
}
