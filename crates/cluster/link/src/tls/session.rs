//! TLS settings of new connections, from the present certificates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;

use super::material::{CredentialError, FileContents, Material};
use super::members::Members;
use super::refusal::Refusals;
use super::verifier::{AnswerVerifier, DiallerVerifier};
use crate::config::CertificateFiles;
use crate::identity::Identity;
use crate::join;
use crate::kind::Kind;

/// Error: TLS refuses its own settings.
#[derive(Debug, Error)]
#[error("TLS refuses its settings: {0}")]
pub struct TlsSetupError(String);

impl TlsSetupError {
    fn new(error: &dyn std::error::Error) -> Self {
        Self(error.to_string())
    }
}

/// Source of the TLS settings of new connections. Existing connections keep theirs.
#[derive(Debug)]
pub(crate) struct Sessions {
    me: Identity,
    files: CertificateFiles,
    members: Arc<Members>,
    refusals: Arc<Refusals>,
    current: ArcSwap<Current>,
}

#[derive(Debug)]
struct Current {
    contents: FileContents,
    material: Material,
    since: SystemTime,
}

impl Current {
    fn new(contents: FileContents, material: Material) -> Self {
        Self { contents, material, since: SystemTime::now() }
    }
}

/// Certificates that new connections of a node use.
#[derive(Clone, Debug)]
pub struct UsedCertificates {
    /// The node's own certificate, followed by intermediate certificates up to the CA.
    pub chain: Vec<CertificateDer<'static>>,
    /// Trusted CA certificates.
    pub authorities: Vec<CertificateDer<'static>>,
    /// Time when they were taken into use.
    pub since: SystemTime,
}

impl Sessions {
    /// Reads the files for the first time; blocks for as long as the disk needs. A certificate that
    /// is not valid at this time is used nevertheless, and logged.
    pub(crate) fn open(
        me: Identity,
        files: CertificateFiles,
        members: Arc<Members>,
        refusals: Arc<Refusals>,
    ) -> Result<Self, CredentialError> {
        let contents = FileContents::read(&files)?;
        let material = match Material::parse(&files, &contents, &me, UnixTime::now()) {
            // Peers refuse the node until the certificate is replaced or the clock is right. Its
            // clients are served during that time.
            Err(fault @ CredentialError::Untimely { validity, .. }) => {
                tracing::error!(
                    "other nodes refuse this one: {fault}. Clients are served without the cluster \
                     meanwhile"
                );
                Material::parse(&files, &contents, &me, validity.moment_within())?
            }
            parsed => parsed?,
        };
        let current = ArcSwap::from_pointee(Current::new(contents, material));
        Ok(Self { me, files, members, refusals, current })
    }

    /// Reads the files again; blocks for as long as the disk needs. Returns true if they have
    /// changed. If the new content can't be used, the old certificates stay and an error is
    /// returned.
    pub(crate) fn reload(&self) -> Result<bool, CredentialError> {
        let contents = FileContents::read(&self.files)?;
        if contents == self.current.load().contents {
            return Ok(false);
        }
        let material = Material::parse(&self.files, &contents, &self.me, UnixTime::now())?;
        self.current.store(Arc::new(Current::new(contents, material)));
        Ok(true)
    }

    /// Returns the time from which on peers will refuse this node; `None` if it is unknown.
    pub(crate) fn expires_at(&self) -> Option<SystemTime> {
        self.current.load().material.expires_at
    }

    /// Returns the SHA-256 of this node's certificate.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        let current = self.current.load();
        let own = current.material.certified.cert.first();
        let digest = ring::digest::digest(&ring::digest::SHA256, own.map_or(&[], |own| own));
        digest.as_ref().try_into().unwrap_or_default()
    }

    /// Returns the number of trusted CAs.
    pub(crate) fn authorities(&self) -> usize {
        self.current.load().material.authorities.len()
    }

    /// Returns the certificates that new connections use.
    pub(crate) fn used(&self) -> UsedCertificates {
        let current = self.current.load();
        UsedCertificates {
            chain: current.material.certified.cert.clone(),
            authorities: current.material.authorities.clone(),
            since: current.since,
        }
    }

    /// Makes the settings for connections that peers dial.
    pub(crate) fn accepting(&self) -> Result<QuicServerConfig, TlsSetupError> {
        let current = self.current.load();
        let material = &current.material;
        let verifier = DiallerVerifier {
            webpki: Arc::clone(&material.dialler_verifier),
            members: Arc::clone(&self.members),
            refusals: Arc::clone(&self.refusals),
        };
        let mut tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&material.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| TlsSetupError::new(&error))?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::new(OwnCertificate(Arc::clone(&material.certified))));
        tls.alpn_protocols = Kind::ALL.map(|kind| kind.protocol().to_vec()).into();
        tls.alpn_protocols.push(join::PROTOCOL.to_vec());
        // A resumed session would skip the check of the certificate, and 0-RTT can be replayed.
        tls.session_storage = Arc::new(NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        tls.max_early_data_size = 0;
        QuicServerConfig::try_from(tls).map_err(|error| TlsSetupError::new(&error))
    }

    /// Makes the settings for dialling `peer` at `address` with the protocol `protocol`.
    pub(crate) fn dialling(
        &self,
        peer: &Identity,
        address: SocketAddr,
        protocol: &[u8],
    ) -> Result<QuicClientConfig, TlsSetupError> {
        let current = self.current.load();
        let material = &current.material;
        let verifier = AnswerVerifier {
            webpki: Arc::clone(&material.answer_verifier),
            expected: peer.clone(),
            address,
            members: Arc::clone(&self.members),
            refusals: Arc::clone(&self.refusals),
        };
        let mut tls = rustls::ClientConfig::builder_with_provider(Arc::clone(&material.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| TlsSetupError::new(&error))?
            // "Dangerous" because a custom verifier could check too little. This one asks the
            // verifier of rustls first and then refuses more.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::new(OwnCertificate(Arc::clone(&material.certified))));
        tls.alpn_protocols = vec![protocol.to_vec()];
        // For the same reasons as in `accepting`.
        tls.resumption = Resumption::disabled();
        tls.enable_early_data = false;
        QuicClientConfig::try_from(tls).map_err(|error| TlsSetupError::new(&error))
    }
}

/// Resolver that always shows the one certificate of this node.
#[derive(Debug)]
struct OwnCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for OwnCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

impl rustls::client::ResolvesClientCert for OwnCertificate {
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        _schemes: &[rustls::SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Returns the certificate that a peer has shown; quinn keeps it without its type.
pub(crate) fn peer_certificate(connection: &quinn::Connection) -> Option<CertificateDer<'static>> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    chain.into_iter().next()
}
