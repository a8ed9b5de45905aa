//! One replica as its monitor sees it.

use http::{HeaderName, HeaderValue};
use spillway_types::{ModelName, ReplicaName};

use crate::check::{ActiveCheck, DeepCheck, NoticeCheck};
use crate::http::{HttpProtocol, Server, TlsTarget};
use crate::identity::IdentityCheck;
use crate::scrape::Scrape;

/// One replica, and what is to be watched of it.
///
/// Two targets are equal if their monitors would do the same; then [`crate::Monitors::reconcile`]
/// leaves the one that runs alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// As facts name it.
    pub replica: ReplicaName,
    /// Host name or address, IPv6 without brackets.
    pub host: String,
    /// Port of its API.
    pub port: u16,
    /// TLS towards it.
    pub tls: Option<TlsTarget>,
    /// What its API speaks.
    pub protocol: HttpProtocol,
    /// Sent with every request to it, e.g. its credential. Mark secrets as sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Models it serves. Deep checks and probes with `{model}` in their path ask for the first.
    pub models: Vec<ModelName>,
    /// Whether it answers at all.
    pub active: Option<ActiveCheck>,
    /// Whether it works.
    pub deep: Option<DeepCheck>,
    /// Whether its machine is to be taken away.
    pub notice: Option<NoticeCheck>,
    /// Which software it is and which models it says that it serves; `None` does not ask.
    pub identity: Option<IdentityCheck>,
    /// Pages that tell its load: its own, its machine's exporter.
    pub scrapes: Vec<Scrape>,
}

impl Target {
    /// Where its API is, or the same host's `port`, which may speak something else.
    pub(crate) fn server(&self, port: Option<u16>) -> Server {
        let protocol = if port.is_some() { HttpProtocol::Http1 } else { self.protocol };
        Server {
            host: self.host.clone(),
            port: port.unwrap_or(self.port),
            tls: self.tls.clone(),
            protocol,
            headers: self.headers.clone(),
        }
    }

    /// The model that checks ask for.
    pub(crate) fn first_model(&self) -> Option<&ModelName> {
        self.models.first()
    }
}
