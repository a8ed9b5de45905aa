//! HTTP client of a node's admin listener, with or without TLS.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Response, StatusCode, header, request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::connect::Connect;

/// Open connection. The connection closes when it is dropped.
pub(crate) struct AdminConnection {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
    _driver: AbortOnDropHandle<hyper::Result<()>>,
}

impl AdminConnection {
    /// Connects to the admin listener.
    ///
    /// # Errors
    /// Returns an error if nothing listens there, or its certificate can't be trusted.
    pub(crate) async fn open(connect: &Connect) -> Result<Self> {
        let (sender, connection) = handshake(TokioIo::new(open(connect).await?)).await?;
        let driver = AbortOnDropHandle::new(TaskTracker::new().spawn(connection));
        Ok(Self { sender, authority: connect.admin.authority.clone(), _driver: driver })
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// Returns an error if the request is invalid or the connection breaks.
    pub(crate) async fn send(
        &mut self,
        request: request::Builder,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let request = request.header(header::HOST, &self.authority).body(Full::new(body))?;
        Ok(self.sender.send_request(request).await?)
    }
}

/// Sends a request over a connection of its own. Returns the status and the body.
///
/// # Errors
/// Returns an error if there is no whole answer of at most `bytes_max` bytes.
pub(crate) async fn ask(
    connect: &Connect,
    request: request::Builder,
    body: Bytes,
    bytes_max: usize,
) -> Result<(StatusCode, Bytes)> {
    // Open until the body is read: the body comes over it.
    let mut connection = AdminConnection::open(connect).await?;
    let response = connection.send(request, body).await?;
    Ok((response.status(), read(response, bytes_max).await?))
}

/// Reads the body of an answer.
///
/// # Errors
/// Returns an error if the body breaks off or has more than `bytes_max` bytes.
pub(crate) async fn read(response: Response<Incoming>, bytes_max: usize) -> Result<Bytes> {
    let collected = Limited::new(response.into_body(), bytes_max).collect().await;
    let body = collected.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
    Ok(body.to_bytes())
}

/// Stream to the admin listener.
trait AdminStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> AdminStream for S {}

async fn open(connect: &Connect) -> Result<Box<dyn AdminStream>> {
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
