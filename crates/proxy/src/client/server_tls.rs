//! TLS of a listener that serves HTTP/1.1 alone, beside the data path.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use super::listener::{TlsError, TlsIdentity, server_config};

const PROTOCOLS: [&str; 1] = ["http/1.1"];

/// The server's side of TLS, with a certificate that can be replaced.
#[derive(Debug)]
pub struct ServerTls(ArcSwap<rustls::ServerConfig>);

impl ServerTls {
    /// # Errors
    /// If the identity does not work.
    pub fn new(identity: &TlsIdentity) -> Result<Self, TlsError> {
        Ok(Self(ArcSwap::from_pointee(server_config(identity, &PROTOCOLS)?)))
    }

    /// Uses another certificate for connections accepted from now on.
    ///
    /// # Errors
    /// If the identity does not work; the old one stays in use then.
    pub fn replace(&self, identity: &TlsIdentity) -> Result<(), TlsError> {
        self.0.store(Arc::new(server_config(identity, &PROTOCOLS)?));
        Ok(())
    }

    /// Does the handshake of a new connection. It has no time limit of its own.
    ///
    /// # Errors
    /// If the client breaks off, or does not speak TLS.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + use<S>> {
        TlsAcceptor::from(self.0.load_full()).accept(stream).await
    }
}
