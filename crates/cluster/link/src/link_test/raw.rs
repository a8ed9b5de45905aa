//! QUIC without a link: peers that break the rules.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, ServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::world::TestNode;
use crate::{CertificateFiles, Kind};

/// Verifier that accepts every certificate.
#[derive(Debug)]
struct Credulous(Arc<CryptoProvider>);

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Credulous {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn chain(files: &CertificateFiles) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_file_iter(&files.certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    (chain.collect::<Result<_, _>>().unwrap(), key)
}

/// Makes the settings of a client that shows these certificates, or none, and asks for `protocol`.
fn client_config(files: Option<&CertificateFiles>, protocol: &[u8]) -> ClientConfig {
    let builder = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous(provider())));
    let mut tls = match files {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let (chain, key) = chain(files);
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    tls.alpn_protocols = vec![protocol.to_vec()];
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
}

/// Client without a link; it closes its connections when dropped.
pub(super) struct RawClient {
    endpoint: Endpoint,
}

impl RawClient {
    pub(super) fn new() -> Self {
        Self { endpoint: Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap() }
    }

    /// Dials and sends nothing.
    pub(super) async fn connection(
        &self,
        to: &TestNode,
        files: &CertificateFiles,
        protocol: &[u8],
    ) -> Connection {
        let config = client_config(Some(files), protocol);
        let name = to.me.dns_name();
        self.endpoint.connect_with(config, to.address(), &name).unwrap().await.unwrap()
    }

    /// Dials and waits until the node has sent its hello, or the connection has ended.
    pub(super) async fn dial(
        &self,
        to: &TestNode,
        files: Option<&CertificateFiles>,
        protocol: &[u8],
    ) -> Result<Connection, ConnectionError> {
        let config = client_config(files, protocol);
        let connecting =
            self.endpoint.connect_with(config, to.address(), &to.me.dns_name()).unwrap();
        let dialling = async {
            let connection = connecting.await?;
            let mut hello = connection.open_uni().await?;
            drop(hello.write_chunk(crate::hello::frame(7).unwrap()).await);
            drop(hello);
            connection.accept_uni().await?;
            Ok(connection)
        };
        tokio::time::timeout(Duration::from_secs(10), dialling).await.expect("an outcome")
    }

    /// Dials as a valid peer.
    pub(super) async fn connect(
        &self,
        to: &TestNode,
        files: &CertificateFiles,
        kind: Kind,
    ) -> Connection {
        self.dial(to, Some(files), kind.protocol()).await.unwrap()
    }
}

/// Starts a server without a link that accepts every dialler; returns its address.
pub(super) struct RawServer {
    endpoint: Endpoint,
}

impl RawServer {
    pub(super) fn new(files: &CertificateFiles) -> Self {
        let (chain, key) = chain(files);
        let mut tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(Arc::new(Credulous(provider())))
            .with_single_cert(chain, key)
            .unwrap();
        tls.alpn_protocols = Kind::ALL.map(|kind| kind.protocol().to_vec()).into();
        let config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()));
        let endpoint = Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
        Self { endpoint }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.endpoint.local_addr().unwrap()
    }

    /// Accepts one dialler, as far as the handshake comes.
    pub(super) async fn accept(&self) -> Result<Connection, ConnectionError> {
        let incoming = self.endpoint.accept().await.unwrap();
        incoming.await
    }
}
