//! Sections about the node itself: listeners, admin listener, limits, time-outs, retries.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use spillway_request::cors::Cors;
use spillway_transport::Limits;
use spillway_types::Country;
use spillway_upstream::Timeouts;
use spillway_view::Retry;
use toml::Spanned;

use crate::access_section::AuthMode;
use crate::error::{ConfigErrors, all};
use crate::numbers::AT_LEAST_ONE;
use crate::source::Source;

/// Way in which worker threads share the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerLayout {
    /// A runtime for each worker, with connections assigned round-robin. Cheapest per request.
    #[default]
    PerCore,
    /// A shared work-stealing runtime. Spreads the streams of a single HTTP/2 connection over all
    /// cores.
    Shared,
}

/// `[node]`: name, region and threads of this process.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeSection {
    /// Name of this node, unique in the cluster.
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// Region of this node.
    #[schemars(with = "String")]
    pub(crate) region: Spanned<String>,
    /// Country of this node, e.g. `DE`, for rules about where requests may be served.
    #[schemars(with = "Option<String>")]
    pub(crate) country: Option<Country>,
    /// Number of worker threads; 0 means one per core.
    pub(crate) workers: usize,
    /// Distribution of connections and requests over the workers.
    pub(crate) worker_layout: WorkerLayout,
    /// Time in ms for which a stopping node keeps accepting connections, so that load balancers
    /// notice that it is not ready: two or three periods of their checks. By default the node
    /// measures the period: it keeps accepting for three and a half periods, 1 to 30 s, if a client
    /// polls `/readyz` or `/steering` regularly, and stops at once otherwise.
    pub(crate) drain_notice_ms: Option<u64>,
    /// Time limit in ms for running requests to finish when the node stops, after
    /// `drain_notice_ms`.
    pub(crate) drain_ms: u64,
    /// True to add `x-spillway-*` headers to replies, which show how a request was routed.
    pub(crate) expose_routing: bool,
}

impl Default for NodeSection {
    fn default() -> Self {
        Self {
            name: Spanned::new(0..0, "node-1".to_owned()),
            region: Spanned::new(0..0, "local".to_owned()),
            country: None,
            workers: 0,
            worker_layout: WorkerLayout::default(),
            drain_notice_ms: None,
            drain_ms: 30_000,
            expose_routing: false,
        }
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
    #[schemars(with = "String")]
    pub(crate) certificate: Spanned<String>,
    /// PEM file with the private key.
    #[schemars(with = "String")]
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
    #[schemars(with = "Option<String>")]
    pub(crate) token_file: Option<Spanned<PathBuf>>,
    /// TLS settings; without them the listener speaks cleartext.
    #[serde(default)]
    pub(crate) tls: Option<TlsSection>,
    /// Host names at which operators reach the listener, besides IP addresses and `localhost`.
    /// Requests for other hosts are refused.
    #[serde(default)]
    pub(crate) names: Vec<String>,
}

/// `[limits]`: limits on clients.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsSection {
    /// Maximum number of client connections; further ones are closed at once.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) connections_max: usize,
    /// Maximum number of connections of one client: an IPv4 address, or the first 64 bits of an
    /// IPv6 one. Trusted proxies have no such limit.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) connections_per_client_max: usize,
    /// Memory limit of this process in bytes; above 90 % of it new requests are refused. 0: the
    /// limit of the control group or the memory of the machine.
    pub(crate) memory_bytes_max: u64,
    /// Maximum size of one request head in bytes; larger ones get 431.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) header_bytes_max: usize,
    /// Maximum number of header fields of one HTTP/1.1 request; more gets 431.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) headers_max: usize,
    /// Maximum size of one request body in bytes; larger ones get 413.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) body_bytes_max: u64,
    /// Maximum total size of buffered request bodies, in bytes; further bodies get 503.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) body_bytes_total_max: u64,
    /// Maximum size in bytes up to which bodies that are not parsed are buffered for retries.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) buffered_bytes_max: u64,
    /// Maximum number of concurrent requests on one HTTP/2 connection.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) streams_per_connection_max: u32,
    /// Maximum number of requests that one connection may abandon within `reset_window_ms` before
    /// it is closed.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) resets_per_connection_max: u32,
    /// Time window of `resets_per_connection_max`.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) reset_window_ms: u64,
    /// Time limit for receiving a complete request head.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) head_timeout_ms: u64,
    /// Longest pause within a request body; time below 4 KiB per second counts as a pause.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) body_timeout_ms: u64,
    /// Time after which a connection without requests is closed.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) idle_timeout_ms: u64,
    /// Time after which a client that reads nothing of its reply is disconnected.
    #[serde(deserialize_with = "positive")]
    #[schemars(range(min = 1))]
    pub(crate) stall_timeout_ms: u64,
    /// Maximum size of reply data buffered for one slow client, in bytes; with 0 the replica waits
    /// for the client.
    pub(crate) read_ahead_bytes_max: usize,
    /// Maximum total size of reply data buffered for slow clients, in bytes; an eighth of the
    /// memory is a further limit.
    pub(crate) read_ahead_bytes_total_max: u64,
}

impl Default for LimitsSection {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            connections_max: limits.connections_max,
            connections_per_client_max: limits.connections_per_client_max,
            memory_bytes_max: limits.memory_bytes_max.unwrap_or(0),
            header_bytes_max: limits.header_bytes_max,
            headers_max: limits.headers_max,
            body_bytes_max: limits.body_bytes_max,
            body_bytes_total_max: limits.body_bytes_total_max,
            buffered_bytes_max: limits.buffered_bytes_max,
            streams_per_connection_max: limits.streams_per_connection_max,
            resets_per_connection_max: limits.resets_per_connection_max,
            reset_window_ms: milliseconds(limits.reset_window),
            head_timeout_ms: milliseconds(limits.head_timeout),
            body_timeout_ms: milliseconds(limits.body_timeout),
            idle_timeout_ms: milliseconds(limits.idle_timeout),
            stall_timeout_ms: milliseconds(limits.stall_timeout),
            read_ahead_bytes_max: limits.read_ahead_bytes_max,
            read_ahead_bytes_total_max: limits.read_ahead_bytes_total_max,
        }
    }
}

impl From<LimitsSection> for Limits {
    fn from(section: LimitsSection) -> Self {
        Self {
            connections_max: section.connections_max,
            connections_per_client_max: section.connections_per_client_max,
            memory_bytes_max: Some(section.memory_bytes_max).filter(|bytes| *bytes > 0),
            header_bytes_max: section.header_bytes_max,
            headers_max: section.headers_max,
            body_bytes_max: section.body_bytes_max,
            body_bytes_total_max: section.body_bytes_total_max,
            // A body larger than the maximum is refused before it could be buffered.
            buffered_bytes_max: section.buffered_bytes_max.min(section.body_bytes_max),
            streams_per_connection_max: section.streams_per_connection_max,
            resets_per_connection_max: section.resets_per_connection_max,
            reset_window: Duration::from_millis(section.reset_window_ms),
            head_timeout: Duration::from_millis(section.head_timeout_ms),
            body_timeout: Duration::from_millis(section.body_timeout_ms),
            idle_timeout: Duration::from_millis(section.idle_timeout_ms),
            stall_timeout: Duration::from_millis(section.stall_timeout_ms),
            read_ahead_bytes_max: section.read_ahead_bytes_max,
            read_ahead_bytes_total_max: section.read_ahead_bytes_total_max,
        }
    }
}

/// A year: a longer time-out has no other effect, and sums of times stay representable.
const TIMEOUT_MS_MAX: u64 = 365 * 86_400_000;

/// `[timeouts]`, also inside a route: time limits of replicas.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TimeoutsSection {
    /// Time limit of TCP and TLS set-up; 1,000 by default.
    #[serde(deserialize_with = "positive_if_set")]
    #[schemars(range(min = 1))]
    pub(crate) connect_ms: Option<u64>,
    /// Time limit from the request to the first content of a stream, or to the first byte of any
    /// other reply; 600,000 by default, because engines queue requests, and send a unary reply only
    /// when it is complete.
    #[serde(deserialize_with = "positive_if_set")]
    #[schemars(range(min = 1))]
    pub(crate) first_byte_ms: Option<u64>,
    /// Longest pause between two pieces of a reply that has begun; 60,000 by default.
    #[serde(deserialize_with = "positive_if_set")]
    #[schemars(range(min = 1))]
    pub(crate) idle_ms: Option<u64>,
    /// Time limit of the whole request; 3,600,000 by default.
    #[serde(deserialize_with = "positive_if_set")]
    #[schemars(range(min = 1))]
    pub(crate) total_ms: Option<u64>,
    /// Silence of a stream after which its client gets a comment, or a `ping` in Anthropic's API,
    /// so that proxies in between don't close the connection; off by default. Applies only to
    /// streams of events.
    #[serde(deserialize_with = "positive_if_set")]
    #[schemars(range(min = 1))]
    pub(crate) keep_alive_ms: Option<u64>,
}

impl TimeoutsSection {
    /// Returns these time-outs, with `base` for those that are not set.
    pub(crate) fn over(&self, base: Timeouts) -> Timeouts {
        let bounded = |ms: u64| Duration::from_millis(ms.min(TIMEOUT_MS_MAX));
        let pick = |set: Option<u64>, base| set.map_or(base, bounded);
        Timeouts {
            connect: pick(self.connect_ms, base.connect),
            first_byte: pick(self.first_byte_ms, base.first_byte),
            idle: pick(self.idle_ms, base.idle),
            total: pick(self.total_ms, base.total),
            keep_alive: self.keep_alive_ms.map(bounded).or(base.keep_alive),
        }
    }
}

/// `[retry]`: rules for trying another replica.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RetrySection {
    /// Maximum number of attempts per request, including the first.
    pub(crate) attempts_max: u32,
    /// Retries as a share of requests, in percent.
    pub(crate) budget_percent: u32,
    /// Retries available at the start, so that a node with few requests can retry; later requests
    /// refill them by their share, however rare they are. None if the share is zero.
    pub(crate) budget_in_hand: u32,
    /// Minimum number of retries earned per second, which exceeds the share if requests are few.
    pub(crate) budget_min_per_second: u32,
}

impl Default for RetrySection {
    fn default() -> Self {
        let retry = Retry::default();
        Self {
            attempts_max: retry.attempts_max,
            budget_percent: retry.share_percent,
            budget_in_hand: retry.in_hand,
            budget_min_per_second: retry.per_second_min,
        }
    }
}

impl From<RetrySection> for Retry {
    fn from(section: RetrySection) -> Self {
        Self {
            // Zero means no retries, as one attempt does; a request is always tried.
            attempts_max: section.attempts_max.max(1),
            share_percent: section.budget_percent,
            in_hand: section.budget_in_hand,
            per_second_min: section.budget_min_per_second,
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reads a number that makes no sense as zero: a limit or time-out of nothing would refuse
/// everything.
pub(crate) fn positive<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default + PartialEq,
{
    let value = T::deserialize(deserializer)?;
    if value == T::default() {
        return Err(Error::custom(AT_LEAST_ONE));
    }
    Ok(value)
}

pub(crate) fn positive_if_set<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    positive(deserializer).map(Some)
}
