//! TLS settings of new connections, from the certificates as they are now.

use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;

use super::material::{CertificateFault, FileContents, Material};
use super::members::Members;
use super::refusal::Refusals;
use super::verifier::{AnswerVerifier, DiallerVerifier};
use crate::config::CertificateFiles;
use crate::identity::Identity;
use crate::join;
use crate::kind::Kind;

/// TLS refuses its own settings.
#[derive(Debug, Error)]
#[error("TLS refuses its settings: {0}")]
pub struct TlsFault(String);

impl TlsFault {
    fn new(error: &dyn std::error::Error) -> Self {
        Self(error.to_string())
    }
}

/// Makes the TLS settings of each new connection. Connections that stand keep what they have.
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
}

impl Sessions {
    /// Reads the files for the first time; blocks for as long as the disk needs.
    pub(crate) fn open(
        me: Identity,
        files: CertificateFiles,
        members: Arc<Members>,
        refusals: Arc<Refusals>,
    ) -> Result<Self, CertificateFault> {
        let contents = FileContents::read(&files)?;
        let material = Material::parse(&files, &contents, &me)?;
        let current = ArcSwap::from_pointee(Current { contents, material });
        Ok(Self { me, files, members, refusals, current })
    }

    /// Reads the files again; blocks for as long as the disk needs. Says whether anything changed.
    /// If what they have now can't be used, the old certificates stay.
    pub(crate) fn reload(&self) -> Result<bool, CertificateFault> {
        let contents = FileContents::read(&self.files)?;
        if contents == self.current.load().contents {
            return Ok(false);
        }
        let material = Material::parse(&self.files, &contents, &self.me)?;
        self.current.store(Arc::new(Current { contents, material }));
        Ok(true)
    }

    /// From when on peers will refuse this node; `None` if that can't be told.
    pub(crate) fn expires_at(&self) -> Option<SystemTime> {
        self.current.load().material.expires_at
    }

    /// SHA-256 of this node's certificate.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        let current = self.current.load();
        let own = current.material.certified.cert.first();
        let digest = ring::digest::digest(&ring::digest::SHA256, own.map_or(&[], |own| own));
        digest.as_ref().try_into().unwrap_or_default()
    }

    /// How many authorities are believed.
    pub(crate) fn authorities(&self) -> usize {
        self.current.load().material.authorities
    }

    /// Settings for those who dial this node.
    pub(crate) fn accepting(&self) -> Result<QuicServerConfig, TlsFault> {
        let current = self.current.load();
        let material = &current.material;
        let verifier = DiallerVerifier {
            webpki: Arc::clone(&material.dialler_verifier),
            members: Arc::clone(&self.members),
            refusals: Arc::clone(&self.refusals),
        };
        let mut tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&material.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| TlsFault::new(&error))?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::new(OwnCertificate(Arc::clone(&material.certified))));
        tls.alpn_protocols = Kind::ALL.map(|kind| kind.protocol().to_vec()).into();
        tls.alpn_protocols.push(join::PROTOCOL.to_vec());
        // A resumed session would skip the check of the certificate, and 0-RTT can be replayed.
        tls.session_storage = Arc::new(NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        tls.max_early_data_size = 0;
        QuicServerConfig::try_from(tls).map_err(|error| TlsFault::new(&error))
    }

    /// Settings for dialling `peer` for a connection that speaks `protocol`.
    pub(crate) fn dialling(
        &self,
        peer: &Identity,
        protocol: &[u8],
    ) -> Result<QuicClientConfig, TlsFault> {
        let current = self.current.load();
        let material = &current.material;
        let verifier = AnswerVerifier {
            webpki: Arc::clone(&material.answer_verifier),
            expected: peer.clone(),
            members: Arc::clone(&self.members),
            refusals: Arc::clone(&self.refusals),
        };
        let mut tls = rustls::ClientConfig::builder_with_provider(Arc::clone(&material.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| TlsFault::new(&error))?
            // "Dangerous" because a verifier of one's own could check too little; this one asks
            // rustls' own first and then refuses more.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::new(OwnCertificate(Arc::clone(&material.certified))));
        tls.alpn_protocols = vec![protocol.to_vec()];
        tls.resumption = Resumption::disabled();
        tls.enable_early_data = false;
        QuicClientConfig::try_from(tls).map_err(|error| TlsFault::new(&error))
    }
}

/// Shows the one certificate that this node has, whoever asks.
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

/// The certificate that a peer has shown; quinn keeps it without its type.
pub(crate) fn peer_certificate(connection: &quinn::Connection) -> Option<CertificateDer<'static>> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    chain.into_iter().next()
}
