//! Certificates for one test, in files as an operator would have them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A CA and a certificate that it signed.
#[derive(Debug)]
pub(crate) struct Certificates {
    folder: TempDir,
    ca_pem: String,
}

impl Certificates {
    pub(crate) fn for_name(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut certificates = Self { folder, ca_pem: String::new() };
        certificates.renew(name);
        certificates
    }

    /// Writes a new CA and certificate over the old ones.
    pub(crate) fn renew(&mut self, name: &str) {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let ca = CertifiedIssuer::self_signed(params, key).expect("a CA");
        let key = KeyPair::generate().expect("a key");
        let leaf = CertificateParams::new([name.to_owned()]).expect("a name");
        let leaf = leaf.signed_by(&key, &ca).expect("a certificate");
        self.ca_pem = ca.pem();
        let files = [
            (self.ca_file(), ca.pem()),
            (self.key_file(), key.serialize_pem()),
            (self.certificate_file(), leaf.pem()),
        ];
        for (file, text) in files {
            std::fs::write(file, text).expect("writes");
        }
    }

    /// Writes a certificate over the old one whose time is over.
    pub(crate) fn expire(&self) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(["expired".to_owned()]).expect("a name");
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        let expired = params.self_signed(&key).expect("a certificate");
        std::fs::write(self.key_file(), key.serialize_pem()).expect("writes");
        std::fs::write(self.certificate_file(), expired.pem()).expect("writes");
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder().join("ca.pem")
    }

    pub(crate) fn certificate_file(&self) -> PathBuf {
        self.folder().join("certificate.pem")
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.folder().join("key.pem")
    }

    /// The listener's line for a config.
    pub(crate) fn listener(&self) -> String {
        format!(
            "tls = {{ certificate = \"{}\", key = \"{}\" }}",
            self.certificate_file().display(),
            self.key_file().display()
        )
    }

    /// Certificate and key as settings of a table.
    pub(crate) fn pair(&self) -> String {
        format!(
            "certificate = \"{}\", key = \"{}\"",
            self.certificate_file().display(),
            self.key_file().display()
        )
    }

    /// The server's side of TLS, which demands a certificate that the CA of `clients` has signed.
    pub(crate) fn acceptor_for(&self, clients: &Self) -> TlsAcceptor {
        let verifier = WebPkiClientVerifier::builder_with_provider(clients.roots(), provider());
        let chain = CertificateDer::pem_file_iter(self.certificate_file()).expect("a file");
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_file(self.key_file()).expect("a key");
        let config = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier.build().expect("a CA"))
            .with_single_cert(chain, key)
            .expect("a pair");
        TlsAcceptor::from(Arc::new(config))
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(self.ca_file()).expect("a file") {
            roots.add(certificate.expect("a certificate")).expect("a CA");
        }
        Arc::new(roots)
    }

    /// The server's side of TLS.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let chain = CertificateDer::pem_file_iter(self.certificate_file()).expect("a file");
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_file(self.key_file()).expect("a key");
        let config = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("an identity");
        TlsAcceptor::from(Arc::new(config))
    }

    /// The client's side of TLS, offering these protocols.
    pub(crate) async fn connect(
        &self,
        tcp: TcpStream,
        name: &'static str,
        protocols: &[&str],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).expect("a CA");
        roots.add(ca).expect("a CA");
        let mut config = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name).expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
