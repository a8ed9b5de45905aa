//! Settings of a replica.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use spillway_protocol::SaltField;
use spillway_types::{BasePath, Country, ModelName, ModelVersion, ReplicaName};
use spillway_upstream::{GrpcTarget, ReplicaProtocol, ServerSpec, TlsSpec};

use crate::usage_reports::UsageReports;

/// Configuration of a replica. A reload keeps the replica unchanged if the specs are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSpec {
    /// Unique name, as in metrics and headers.
    pub name: ReplicaName,
    /// Host name or address to connect to.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path below which the API lies; `None` for the root.
    pub base: Option<BasePath>,
    /// TLS; `None` speaks cleartext.
    pub tls: Option<TlsSpec>,
    /// Protocol of the main address.
    pub protocol: ReplicaProtocol,
    /// Separate address for gRPC. Without one, gRPC goes to the main address if HTTP/2 is spoken
    /// there, and else not to this replica.
    pub grpc: Option<GrpcTarget>,
    /// Models served, by the names that clients use (aliases resolved).
    pub models: Vec<ModelName>,
    /// Versions served, for the models that declare them; a model without an entry is served in
    /// whatever version the replica takes.
    pub versions: BTreeMap<ModelName, Vec<ModelVersion>>,
    /// Pool that routes refer to.
    pub pool: String,
    /// Share of the load relative to its peers; at least 1.
    pub weight: u32,
    /// Most requests of this node in flight; HTTP/1.1 uses a connection for each.
    pub in_flight_max: u32,
    /// Time after which an idle connection is closed: less than the server's own keep-alive time,
    /// so that no request meets a closing connection.
    pub idle: Duration,
    /// True if the replica can continue a chat's last message (`continue_final_message`).
    pub continues_chats: bool,
    /// Request field that keeps cache entries of prompts apart; `None` if there is none.
    pub salt_field: Option<SaltField>,
    /// Usage reports that its kind of server gives in streams.
    pub usage_reports: UsageReports,
    /// Port at which its engine publishes KV events; `None` if they are not read.
    pub kv_events_port: Option<u16>,
    /// Header that this replica requires, e.g. its API key. Replaces the client's header.
    pub credential: Option<(HeaderName, HeaderValue)>,
    /// Terms of an overflow replica; `None` for a replica that serves requests like all others.
    pub overflow: Option<Arc<OverflowSpec>>,
}

/// Terms on which a hosted API serves requests that no other replica can serve in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverflowSpec {
    /// Names of models at the API, where it knows them by others.
    pub names: BTreeMap<ModelName, String>,
    /// Country in which the API serves; `None` if it is unknown.
    pub country: Option<Country>,
    /// Time that a request waits for a slot elsewhere before it goes there.
    pub after: Duration,
    /// Most requests that go there, in percent of those for its models; 100 for no cap.
    pub share_percent_max: u32,
}

impl ReplicaSpec {
    /// Returns the settings of connections to the replica.
    #[must_use]
    pub fn server(&self) -> ServerSpec<'_> {
        ServerSpec {
            host: &self.host,
            port: self.port,
            base: self.base.as_ref(),
            tls: self.tls.as_ref(),
            protocol: self.protocol,
            grpc: self.grpc.as_ref(),
            in_flight_max: self.in_flight_max,
            idle: self.idle,
        }
    }

    /// Returns the URL of the API, as a config names it.
    #[must_use]
    pub fn url(&self) -> String {
        let base = self.base.as_ref().map(BasePath::as_str).unwrap_or_default();
        self.address() + base
    }

    /// Returns the URL of the main address without a base path, which the cluster does not take.
    #[must_use]
    pub fn address(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let is_ipv6 = self.host.contains(':');
        let host = if is_ipv6 { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}://{host}:{}", self.port)
    }
}
