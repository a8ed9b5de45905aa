//! TLS towards replicas.

use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::server_spec::{ClientIdentity, ReplicaProtocol, TlsSpec};

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
    /// The name is not valid in a certificate.
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
    /// The file of the client certificate has none.
    #[error("the file of the client certificate has no certificate")]
    NoCertificate,
    /// The key of the client certificate does not parse.
    #[error("key of the client certificate: {0}")]
    Key(rustls::pki_types::pem::Error),
    /// The key and the client certificate do not belong together, or the key is of an unknown kind.
    #[error("client certificate and key: {0}")]
    Identity(rustls::Error),
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
        let config = ClientConfig::builder_with_provider(spillway_transport::tls::provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots(spec)?);
        let mut config = match &spec.identity {
            Some(identity) => with_identity(config, identity)?,
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![match protocol {
            ReplicaProtocol::Http1 => b"http/1.1".to_vec(),
            ReplicaProtocol::Http2 => b"h2".to_vec(),
        }];
        let config = Arc::new(config);
        Ok(Self { connector: TlsConnector::from(Arc::clone(&config)), config, server_name })
    }
}

impl ClientIdentity {
    /// Checks that certificate and key are usable and belong together.
    ///
    /// # Errors
    /// Returns an error that says which of both is at fault.
    pub fn check(&self) -> Result<(), ReplicaTlsError> {
        let config = ClientConfig::builder_with_provider(spillway_transport::tls::provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(RootCertStore::empty());
        with_identity(config, self).map(drop)
    }
}

fn with_identity(
    config: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: &ClientIdentity,
) -> Result<ClientConfig, ReplicaTlsError> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&identity.certificate_pem).collect::<Result<_, _>>()?;
    if chain.is_empty() {
        return Err(ReplicaTlsError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(&identity.key_pem).map_err(ReplicaTlsError::Key)?;
    config.with_client_auth_cert(chain, key).map_err(ReplicaTlsError::Identity)
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
