//! TLS towards replicas.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::replica::{ReplicaProtocol, TlsSpec};

/// Ready to open TLS connections to one replica.
pub(crate) struct ReplicaTls {
    pub(crate) connector: TlsConnector,
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) server_name: ServerName<'static>,
}

impl std::fmt::Debug for ReplicaTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicaTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// The TLS settings of a replica do not work.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaTlsError {
    /// The name can't stand in a certificate.
    #[error("server name {name:?}: {source}")]
    ServerName {
        /// The name as given.
        name: String,
        /// What is wrong with it.
        source: InvalidDnsNameError,
    },
    /// The CA file does not parse.
    #[error("CA certificates: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// A CA certificate is unusable, or the versions are.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// No CA to trust: the file is empty, or the system has none.
    #[error("no CA certificate to trust")]
    NoCa,
}

impl ReplicaTls {
    /// Trusts the given CAs, or the system's where there are none given.
    ///
    /// # Errors
    /// If a name or certificate is unusable.
    pub(crate) fn new(
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
            let system = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(system.certs);
        }
    }
    if roots.is_empty() { Err(ReplicaTlsError::NoCa) } else { Ok(roots) }
}
