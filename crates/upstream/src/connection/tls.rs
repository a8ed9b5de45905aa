//! TLS towards replicas.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::replica_spec::{ReplicaProtocol, TlsSpec};

/// TLS client of one replica.
pub struct ReplicaTls {
    /// Connector with the settings.
    pub connector: TlsConnector,
    /// Settings of the handshake.
    pub config: Arc<ClientConfig>,
    /// Name that the certificate has to show.
    pub server_name: ServerName<'static>,
}

impl std::fmt::Debug for ReplicaTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicaTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// Error of a replica's TLS settings.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaTlsError {
    /// The name cannot stand in a certificate.
    #[error("server name {name:?}: {source}")]
    ServerName {
        /// Name as given.
        name: String,
        /// Error of the parser.
        source: InvalidDnsNameError,
    },
    /// The CA file does not parse.
    #[error("CA certificates: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// A CA certificate or the protocol versions are unusable.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// There is no CA to trust: the file is empty, or the system has none.
    #[error("no CA certificate to trust")]
    NoCa,
}

impl ReplicaTls {
    /// Returns a TLS client that trusts the given CAs, or else the system's.
    ///
    /// # Errors
    /// Returns an error if a name or certificate is unusable.
    pub fn new(
        spec: &TlsSpec,
        host: &str,
        protocol: ReplicaProtocol,
    ) -> Result<Self, ReplicaTlsError> {
        let name = spec.server_name.as_deref().unwrap_or(host);
        let server_name = ServerName::try_from(name.to_owned())
            .map_err(|source| ReplicaTlsError::ServerName { name: name.to_owned(), source })?;
        let mut config = ClientConfig::builder_with_provider(crate::tls::provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots(spec)?)
            .with_no_client_auth();
        config.alpn_protocols = vec![match protocol {
            ReplicaProtocol::Http1 => b"http/1.1".to_vec(),
            ReplicaProtocol::Http2 => b"h2".to_vec(),
        }];
        let config = Arc::new(config);
        Ok(Self { connector: TlsConnector::from(Arc::clone(&config)), config, server_name })
    }
}

fn roots(spec: &TlsSpec) -> Result<RootCertStore, ReplicaTlsError> {
    let mut roots = RootCertStore::empty();
    match &spec.ca_pem {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate?)?;
            }
        }
        None => {
            // A broken certificate of the system must not disable the others.
            let system = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(system.certs);
        }
    }
    if roots.is_empty() { Err(ReplicaTlsError::NoCa) } else { Ok(roots) }
}
