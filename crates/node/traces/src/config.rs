//! Settings of traces.

use std::time::Duration;

use http::{HeaderMap, HeaderName, Uri};

/// Settings of traces.
#[derive(Clone, PartialEq)]
pub struct TracesConfig {
    /// Address of the collector, with its path.
    pub endpoint: Uri,
    /// Share of the traces that begin at this node to send, in percent.
    pub share_percent: f64,
    /// Time to the first byte from which on a request is always sent.
    pub slow: Duration,
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
            .field("share_percent", &self.share_percent)
            .field("slow", &self.slow)
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}
