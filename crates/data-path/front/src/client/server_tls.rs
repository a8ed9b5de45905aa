//! TLS of listeners that serve HTTP/1.1 only, beside the data path.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use super::listener::{TlsError, TlsIdentity, server_config};

const PROTOCOLS: [&str; 1] = ["http/1.1"];

/// Server side of TLS, with a certificate that can be replaced.
#[derive(Debug)]
pub struct ServerTls(ArcSwap<rustls::ServerConfig>);

impl ServerTls {
    /// Returns a server side with this certificate.
    ///
    /// # Errors
    /// Returns an error if the identity cannot be used.
    pub fn new(identity: &TlsIdentity) -> Result<Self, TlsError> {
        Ok(Self(ArcSwap::from_pointee(server_config(identity, &PROTOCOLS)?)))
    }

    /// Replaces the certificate for connections accepted from now on.
    ///
    /// # Errors
    /// Returns an error if the identity cannot be used; the old one stays in use then.
    pub fn replace(&self, identity: &TlsIdentity) -> Result<(), TlsError> {
        self.0.store(Arc::new(server_config(identity, &PROTOCOLS)?));
        Ok(())
    }

    /// Does the handshake of a new connection, without a time limit.
    ///
    /// # Errors
    /// Returns an error if the client breaks off, or does not speak TLS.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + use<S>> {
        TlsAcceptor::from(self.0.load_full()).accept(stream).await
    }
}
