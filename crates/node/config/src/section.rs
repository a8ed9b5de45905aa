//! Sections about the node itself: listeners, admin listener, limits, time-outs, retries.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_request::cors::Cors;
use spillway_types::{Country, Millis, settings};
use spillway_upstream::Timeouts;
use toml::Spanned;

use crate::access_section::AuthMode;
use crate::error::{ConfigErrors, all};
use crate::source::Source;

settings! {
    /// `[node]`: name, region and threads of this process.
    pub(crate) struct NodeSection {
        /// Name of this node, unique in the cluster.
        #[schemars(with = "String")]
        name: Spanned<String> = Spanned::new(0..0, "node-1".to_owned()),
        /// Region of this node.
        #[schemars(with = "String")]
        region: Spanned<String> = Spanned::new(0..0, "local".to_owned()),
        /// Country of this node, e.g. `DE`, for rules about where requests may be served.
        #[schemars(with = "Option<String>")]
        country: Option<Country> = None,
        /// Number of worker threads; 0 means one per core.
        workers: usize = 0,
        /// Time in ms for which a stopping node keeps accepting connections, so that load balancers
        /// notice that it is not ready: two or three periods of their checks. By default the node
        /// measures the period: it keeps accepting for three and a half periods, 1 to 30 s, if a
        /// client polls `/readyz` or `/steering` regularly, and stops at once otherwise.
        drain_notice_ms: Option<Millis> = None,
        /// Time limit in ms for running requests to finish when the node stops, after
        /// `drain_notice_ms`.
        drain_ms: Millis = Millis(30_000),
        /// True to add `x-spillway-*` headers to replies, which show how a request was routed.
        #[schemars(extend("x-restart" = false))]
        expose_routing: bool = false,
    }
}

/// `[[listener]]`: an address that clients connect to.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListenerSection {
    /// IP address and port.
    #[schemars(with = "SocketAddr")]
    pub(crate) address: Spanned<SocketAddr>,
    /// True if another process may listen on the same address, so that a new process can take over
    /// before the old one exits. Both need this setting and the same user; new connections are
    /// spread over both.
    #[serde(default)]
    pub(crate) share_port: bool,
    /// Authentication mode, if it differs from `[auth]`.
    #[serde(default)]
    #[schemars(extend("x-restart" = false))]
    pub(crate) auth: Option<AuthMode>,
    /// TLS settings; without them the listener speaks cleartext.
    #[serde(default)]
    pub(crate) tls: Option<TlsSection>,
    /// PROXY protocol header at the start of connections, v1 or v2.
    #[serde(default)]
    pub(crate) proxy_protocol: ProxyProtocol,
    /// Address blocks of proxies whose forwarding headers and PROXY header are trusted.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) trusted_proxies: Vec<Spanned<String>>,
}

/// Expectation of PROXY headers on a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProxyProtocol {
    /// Connections start with HTTP or TLS.
    #[default]
    Off,
    /// Each connection must start with a PROXY header, and come from a trusted proxy.
    Required,
}

/// Certificate and key of a listener.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsSection {
    /// PEM file with the certificate chain, leaf first.
    #[schemars(with = "String", extend("x-restart" = false))]
    pub(crate) certificate: Spanned<String>,
    /// PEM file with the private key.
    #[schemars(with = "String", extend("x-restart" = false))]
    pub(crate) key: Spanned<String>,
}

/// `[cors]`: web pages that may use the gateway from a browser.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CorsSection {
    /// Origins of these pages, e.g. `https://chat.example`; `*` allows every page. By default no
    /// page of another origin may read replies, and a browser's preflight request (`OPTIONS`) is
    /// refused.
    #[schemars(with = "Vec<String>")]
    pub(crate) allowed_origins: Vec<Spanned<String>>,
}

impl CorsSection {
    /// Checks the origins.
    ///
    /// # Errors
    /// Returns an error for each that is no origin, with its line.
    pub(crate) fn lower(&self, source: &Source) -> Result<Cors, ConfigErrors> {
        // One by one, so that an error has the line of its origin.
        all(self.allowed_origins.iter().map(|origin| {
            Cors::new([origin.get_ref().as_str()]).map_err(|error| {
                let remedy = "write scheme and host, e.g. https://chat.example, or * for all pages";
                source.fault(origin.span(), error.to_string(), remedy)
            })
        }))?;
        let origins = self.allowed_origins.iter().map(|origin| origin.get_ref().as_str());
        Ok(Cors::new(origins)
            .map_err(|error| source.fault(0..0, error.to_string(), "correct it"))?)
    }
}

/// `[admin]`: metrics, health and the admin API for operators.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdminSection {
    /// IP address and port; must be a loopback address unless `token_file` is set.
    #[schemars(with = "SocketAddr")]
    pub(crate) address: Spanned<SocketAddr>,
    /// File with one line `name role token` for each operator of the cluster; roles are `read`,
    /// `operate` and `admin`. If set, every request needs one of these tokens or a key of the
    /// cluster.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("x-restart" = false))]
    pub(crate) token_file: Option<Spanned<PathBuf>>,
    /// TLS settings; without them the listener speaks cleartext.
    #[serde(default)]
    pub(crate) tls: Option<TlsSection>,
    /// Host names at which operators reach the listener, besides IP addresses and `localhost`.
    /// Requests for other hosts are refused.
    #[serde(default)]
    #[schemars(extend("x-restart" = false))]
    pub(crate) names: Vec<String>,
}

/// `[timeouts]`, also inside a route: time limits of replicas.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TimeoutsSection {
    /// Time limit of TCP and TLS set-up; 1,000 by default.
    #[schemars(range(min = 1))]
    pub(crate) connect_ms: Option<Millis>,
    /// Time limit from the request to the first content of a stream, or to the first byte of any
    /// other reply; 600,000 by default, because engines queue requests, and send a unary reply only
    /// when it is complete.
    #[schemars(range(min = 1))]
    pub(crate) first_byte_ms: Option<Millis>,
    /// Longest pause between two pieces of a reply that has begun; 60,000 by default.
    #[schemars(range(min = 1))]
    pub(crate) idle_ms: Option<Millis>,
    /// Time limit of the whole request; 3,600,000 by default.
    #[schemars(range(min = 1))]
    pub(crate) total_ms: Option<Millis>,
    /// Silence of a stream after which its client gets a comment, or a `ping` in Anthropic's API,
    /// so that proxies in between don't close the connection; off by default. Applies only to
    /// streams of events.
    #[schemars(range(min = 1))]
    pub(crate) keep_alive_ms: Option<Millis>,
}

impl TimeoutsSection {
    /// Returns these time-outs, with `base` for those that are not set.
    pub(crate) fn over(&self, base: Timeouts) -> Timeouts {
        let pick = |set: Option<Millis>, base| set.map_or(base, Millis::duration);
        Timeouts {
            connect: pick(self.connect_ms, base.connect),
            first_byte: pick(self.first_byte_ms, base.first_byte),
            idle: pick(self.idle_ms, base.idle),
            total: pick(self.total_ms, base.total),
            keep_alive: self.keep_alive_ms.map(Millis::duration).or(base.keep_alive),
        }
    }
}
