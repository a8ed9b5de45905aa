//! Listener: one address that clients connect to, and its trusted proxies.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use spillway_protocol::TrustedProxies;
use tokio_rustls::TlsAcceptor;

use crate::access::{AccessMode, AccessSwitch};

/// Certificate chain and key of a listener, as PEM text.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The chain, leaf first.
    pub certificate_pem: Vec<u8>,
    /// The leaf's private key.
    pub key_pem: Vec<u8>,
}

impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}

/// Configuration of a listener.
#[derive(Debug)]
pub struct ListenerSpec {
    /// TLS; `None` listens in cleartext.
    pub tls: Option<TlsIdentity>,
    /// True if every connection starts with a PROXY v1 or v2 header. Never optional: a client that
    /// may choose to send one could claim any address.
    pub proxy_protocol: bool,
    /// Peers whose forwarding headers and PROXY header are believed.
    pub trusted_proxies: TrustedProxies,
    /// Authentication mode.
    pub access: AccessMode,
}

/// Error of a certificate chain or key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM block does not parse.
    #[error("{what}: {source}")]
    Pem {
        /// Either "certificate" or "private key".
        what: &'static str,
        /// Error of the PEM parser.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key are refused, e.g. because they do not belong together.
    #[error("certificate and key: {0}")]
    Identity(#[from] rustls::Error),
}

/// A listener, shared by all workers that accept on its address.
pub struct Listener {
    tls: ArcSwapOption<rustls::ServerConfig>,
    /// True if each connection begins with a PROXY header.
    pub proxy_protocol: bool,
    /// Proxies whose forwarding headers are believed.
    pub trusted_proxies: Arc<TrustedProxies>,
    /// Authentication that it asks for.
    pub access: Arc<AccessSwitch>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("proxy_protocol", &self.proxy_protocol)
            .finish_non_exhaustive()
    }
}

impl Listener {
    /// Returns a listener that is ready to accept.
    ///
    /// # Errors
    /// Returns an error if the TLS identity cannot be used.
    pub fn new(spec: ListenerSpec) -> Result<Self, TlsError> {
        let tls = spec.tls.as_ref().map(|tls| server_config(tls, &CLIENTS)).transpose()?;
        let tls = tls.map(Arc::new);
        Ok(Self {
            tls: ArcSwapOption::new(tls),
            proxy_protocol: spec.proxy_protocol,
            trusted_proxies: Arc::new(spec.trusted_proxies),
            access: Arc::new(AccessSwitch::new(spec.access)),
        })
    }

    /// Returns true if clients speak TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.tls.load().is_some()
    }

    /// Replaces the certificate for connections accepted from now on.
    ///
    /// # Errors
    /// Returns an error if the identity cannot be used; the old one stays in use then.
    pub fn replace_identity(&self, identity: &TlsIdentity) -> Result<(), TlsError> {
        self.tls.store(Some(Arc::new(server_config(identity, &CLIENTS)?)));
        Ok(())
    }

    /// Replaces the authentication mode, also on open connections.
    pub fn replace_access(&self, mode: AccessMode) {
        self.access.set(mode);
    }

    /// Returns the TLS acceptor for a new connection; `None` if this listener is cleartext.
    pub fn acceptor(&self) -> Option<TlsAcceptor> {
        self.tls.load_full().map(TlsAcceptor::from)
    }
}

/// ALPN protocols offered to clients.
const CLIENTS: [&str; 2] = ["h2", "http/1.1"];

/// Builds the server's TLS configuration with this certificate, for these protocols.
///
/// # Errors
/// Returns an error if the identity cannot be used.
pub(super) fn server_config(
    identity: &TlsIdentity,
    protocols: &[&str],
) -> Result<rustls::ServerConfig, TlsError> {
    let chain = CertificateDer::pem_slice_iter(&identity.certificate_pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| TlsError::Pem { what: "certificate", source })?;
    let key = PrivateKeyDer::from_pem_slice(&identity.key_pem)
        .map_err(|source| TlsError::Pem { what: "private key", source })?;
    let mut config =
        rustls::ServerConfig::builder_with_provider(spillway_transport::tls::provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(config)
}
