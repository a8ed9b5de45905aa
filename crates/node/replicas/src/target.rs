//! Target of a monitor: one replica with its checks.

use http::{HeaderName, HeaderValue};
use spillway_resolver::Resolver;
use spillway_types::{BasePath, ModelName, ReplicaName};

use crate::health_check::{ActiveCheck, DeepCheck, NoticeCheck};
use crate::http::{HttpProtocol, HttpServer, TlsTarget};
use crate::identity::IdentityCheck;
use crate::scrape::Scrape;

/// Replica, with the checks and scrapes that its monitor runs.
///
/// Two targets are equal if their monitors would do the same; then [`crate::Monitors::reconcile`]
/// keeps the running monitor.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaTarget {
    /// Name of the replica in facts.
    pub replica: ReplicaName,
    /// Source of the addresses of hosts.
    pub resolver: Resolver,
    /// Host name or address, IPv6 without brackets.
    pub host: String,
    /// Port of the replica's API.
    pub port: u16,
    /// Path below which the API lies, its pages included; `None` for the root.
    pub base: Option<BasePath>,
    /// TLS towards the replica; `None` for cleartext.
    pub tls: Option<TlsTarget>,
    /// Protocol of the replica's API.
    pub protocol: HttpProtocol,
    /// Headers of every request to the replica, e.g. its credential. Mark secrets as sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Models of the replica. Deep checks and probes with `{model}` in their path ask for the
    /// first.
    pub models: Vec<ModelName>,
    /// Check that the replica is up; `None` for no check.
    pub active: Option<ActiveCheck>,
    /// Check that the replica works; `None` for no check.
    pub deep: Option<DeepCheck>,
    /// Check for a preemption notice of the replica's machine; `None` for no check.
    pub notice: Option<NoticeCheck>,
    /// Check of the replica's software and models; `None` for no check.
    pub identity: Option<IdentityCheck>,
    /// Pages that report the replica's load: its own, and its machine's exporter.
    pub scrapes: Vec<Scrape>,
}

impl ReplicaTarget {
    /// Returns the server of the replica's API.
    pub(crate) fn server(&self) -> HttpServer {
        HttpServer {
            resolver: self.resolver.clone(),
            host: self.host.clone(),
            port: self.port,
            base: self.base.clone(),
            tls: self.tls.clone(),
            protocol: self.protocol,
            headers: self.headers.clone(),
        }
    }

    /// Returns the model that checks ask for.
    pub(crate) fn first_model(&self) -> Option<&ModelName> {
        self.models.first()
    }
}
