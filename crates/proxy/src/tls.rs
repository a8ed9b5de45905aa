//! The one choice of cryptography that both sides of the data path share.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// Named explicitly wherever a TLS config is built: a process-wide default would be hidden state.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
