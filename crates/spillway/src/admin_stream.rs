//! Connections to a node's admin listener, with or without TLS.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::connect::Connect;

/// Connection that carries requests.
pub(crate) trait AdminStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> AdminStream for S {}

/// Connects to the admin listener.
///
/// # Errors
/// Returns an error if nothing listens there, or its certificate can't be trusted.
pub(crate) async fn open(connect: &Connect) -> Result<Box<dyn AdminStream>> {
    let admin = &connect.admin;
    let tcp = TcpStream::connect(&admin.authority).await.with_context(|| {
        format!("no node at {admin}: is [admin] set in its config? give its URL with --admin")
    })?;
    if !admin.is_tls {
        return Ok(Box::new(tcp));
    }
    let parsed: http::uri::Authority = admin.authority.parse()?;
    // A URL has brackets around an IPv6 address, and a certificate has none.
    let host = parsed.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).context("the host can't stand in a certificate")?;
    let connector = TlsConnector::from(Arc::new(config(connect.ca.as_deref())?));
    let stream = connector.connect(name, tcp).await;
    let stream = stream.with_context(|| {
        format!("no TLS with {admin}: --ca FILE names the CA that its certificate is of")
    })?;
    Ok(Box::new(stream))
}

fn config(ca: Option<&Path>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(ca) => {
            let unreadable = || format!("the CA file {} can't be read", ca.display());
            let certificates = CertificateDer::pem_file_iter(ca).with_context(unreadable)?;
            for certificate in certificates {
                roots.add(certificate.with_context(unreadable)?)?;
            }
            // A file without certificates, such as a key, would otherwise show as a failed
            // handshake.
            anyhow::ensure!(!roots.is_empty(), "the CA file {} has no certificate", ca.display());
        }
        None => {
            let known = rustls_native_certs::load_native_certs().certs;
            // Roots that can't be parsed are skipped: no other program could use them either.
            let _: (usize, usize) = roots.add_parsable_certificates(known);
        }
    }
    // The process has no default provider, so each use names its own.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(config?.with_root_certificates(roots).with_no_client_auth())
}
