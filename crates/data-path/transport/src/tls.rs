//! Cryptography provider of both sides of the data path.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// Returns the provider. Every TLS config names it explicitly: a process-wide default would be
/// hidden state.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
