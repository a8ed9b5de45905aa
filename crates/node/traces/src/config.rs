//! Settings of traces.

use std::time::Duration;

use http::{HeaderMap, HeaderName, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Protocol that a collector speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TracesProtocol {
    /// OTLP over gRPC.
    #[default]
    Grpc,
    /// OTLP over HTTP, as protobuf.
    Http,
}

/// Settings of traces.
#[derive(Clone, PartialEq)]
pub struct TracesConfig {
    /// Address of the collector, with a path for HTTP.
    pub endpoint: Uri,
    /// Protocol that it speaks.
    pub protocol: TracesProtocol,
    /// Share of the traces that begin at this node to send, in percent.
    pub share_percent: f64,
    /// Time to the first byte from which on a request is always sent; `None` for no such time.
    pub slow: Option<Duration>,
    /// Headers to send along; secret.
    pub headers: HeaderMap,
    /// Certificates to trust, PEM; `None` for the system's.
    pub ca_pem: Option<Vec<u8>>,
}

impl std::fmt::Debug for TracesConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let headers: Vec<&HeaderName> = self.headers.keys().collect();
        f.debug_struct("TracesConfig")
            .field("endpoint", &self.endpoint)
            .field("protocol", &self.protocol)
            .field("share_percent", &self.share_percent)
            .field("slow", &self.slow)
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}
