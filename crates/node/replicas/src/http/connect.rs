//! Connections to servers.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderName, HeaderValue};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use spillway_resolver::{ConnectError, ConnectionAddress, LookupError, Resolver};
use spillway_sockets::{is_shortage, set_up};
use spillway_types::BasePath;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{HttpProtocol, RequestError};

/// TLS settings towards one server.
#[derive(Clone, Debug)]
pub struct TlsTarget {
    /// Settings with the trusted CAs. Its ALPN protocols are replaced by the one in use.
    pub config: Arc<ClientConfig>,
    /// Name that the server's certificate must have.
    pub server_name: ServerName<'static>,
}

impl PartialEq for TlsTarget {
    /// Compares the pointer of the settings, because their content can't be compared.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.server_name == other.server_name
    }
}

/// Address of a server, with the TLS, protocol and headers of its requests.
#[derive(Clone, Debug)]
pub(crate) struct HttpServer {
    /// Source of the host's addresses.
    pub(crate) resolver: Resolver,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path below which all paths of the server lie; `None` for the root.
    pub(crate) base: Option<BasePath>,
    pub(crate) tls: Option<TlsTarget>,
    pub(crate) protocol: HttpProtocol,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl HttpServer {
    /// Returns `host:port` in the form of a URI.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns the server at `port` of the same host, which gets HTTP/1.1, or this server if there
    /// is none.
    pub(crate) fn at(&self, port: Option<u16>) -> Self {
        match port {
            Some(port) => Self { port, base: None, protocol: HttpProtocol::Http1, ..self.clone() },
            None => self.clone(),
        }
    }
}

/// Connection with or without TLS.
#[derive(Debug)]
pub(crate) enum HttpStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects to one of the server's addresses. Has no time limit of its own.
pub(crate) async fn connect(
    server: &HttpServer,
) -> Result<(HttpStream, ConnectionAddress), RequestError> {
    let (tcp, address) = connect_tcp(&server.resolver, &server.host, server.port).await?;
    let Some(tls) = &server.tls else { return Ok((HttpStream::Plain(tcp), address)) };
    let mut config = ClientConfig::clone(&tls.config);
    config.alpn_protocols = vec![match server.protocol {
        HttpProtocol::Http1 => b"http/1.1".to_vec(),
        HttpProtocol::Http2 => b"h2".to_vec(),
    }];
    let connector = TlsConnector::from(Arc::new(config));
    let encrypted = connector.connect(tls.server_name.clone(), tcp).await.map_err(|error| {
        tracing::debug!(host = %server.host, %error, "the TLS handshake failed");
        server.resolver.endpoint(&server.host, server.port).avoid(address.ip());
        RequestError::of_handshake(&error)
    })?;
    Ok((HttpStream::Tls(Box::new(encrypted)), address))
}

/// Connects to one of a host's addresses; waits for the first look-up of its name. Has no time limit
/// of its own.
pub(crate) async fn connect_tcp(
    resolver: &Resolver,
    host: &str,
    port: u16,
) -> Result<(TcpStream, ConnectionAddress), RequestError> {
    let endpoint = resolver.endpoint(host, port);
    endpoint.host().ready().await;
    let connected = endpoint.connect().await.map_err(|error| {
        tracing::debug!(host, port, %error, "no connection");
        match error {
            ConnectError::Name(LookupError::NotFound(_) | LookupError::Name(_)) => {
                RequestError::NameNotFound
            }
            ConnectError::Name(LookupError::NoAnswer(_) | LookupError::Pending) => {
                RequestError::NameServer
            }
            // Nothing is known of the server then.
            ConnectError::Io(error) if is_shortage(&error) => RequestError::Shortage,
            ConnectError::Io(error) => RequestError::of_connect(&error),
        }
    })?;
    set_up(&connected.0).map_err(|_| RequestError::Connect)?;
    Ok(connected)
}

/// Returns the reason for which the server did not answer in time: without an address, its name
/// servers did not.
pub(crate) fn late(resolver: &Resolver, host: &str) -> RequestError {
    match resolver.endpoint(host, 0).host().has_address() {
        true => RequestError::TimedOut,
        false => RequestError::NameServer,
    }
}

impl AsyncRead for HttpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for HttpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
