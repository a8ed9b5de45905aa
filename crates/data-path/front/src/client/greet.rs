//! Handshakes of a connection: PROXY header, TLS and protocol detection.

use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use spillway_transport::Stream;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;

use crate::client::listener::Listener;
use crate::client::proxy_header::{Named, read_proxy_header};

/// First bytes of an HTTP/2 client with prior knowledge.
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose handshakes are done.
#[derive(Debug)]
pub(super) struct Greeted {
    pub stream: Stream,
    /// Bytes taken from the stream to recognize the protocol.
    pub read_ahead: Bytes,
    pub version: ClientProtocol,
    /// Address of the peer, or the one that a trusted PROXY header gave.
    pub address: IpAddr,
    /// True if the address is that of a trusted proxy that did not name its client.
    pub is_unnamed: bool,
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientProtocol {
    Http1,
    Http2,
}

/// Does the handshakes that this listener asks for: PROXY header, TLS, protocol detection. The
/// caller bounds the time.
///
/// # Errors
/// Returns an error if the client breaks off, or does not speak the required protocol.
pub(super) async fn greet(
    listener: &Listener,
    mut tcp: TcpStream,
    peer: SocketAddr,
) -> io::Result<Greeted> {
    let (mut address, mut is_unnamed) = (peer, false);
    if listener.proxy_protocol {
        if !listener.trusted_proxies.trusts(peer.ip()) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "PROXY header from a peer that is not a trusted proxy",
            ));
        }
        match read_proxy_header(&mut tcp).await? {
            Named::Client(client) => address = client,
            // The proxy speaks for itself, so its own address stays.
            Named::Proxy => {}
            Named::Nobody => is_unnamed = true,
        }
    }
    // An IPv4 client of a dual-stack socket counts by its IPv4 address.
    let address = address.ip().to_canonical();
    let Some(acceptor) = listener.acceptor() else {
        let (version, read_ahead) = tell_version(&mut tcp).await?;
        let stream = Stream::Plain(tcp);
        return Ok(Greeted { stream, read_ahead, version, address, is_unnamed });
    };
    let stream = Stream::Tls(Box::new(acceptor.accept(tcp).await?.into()));
    let version = if stream.speaks_http2() { ClientProtocol::Http2 } else { ClientProtocol::Http1 };
    Ok(Greeted { stream, read_ahead: Bytes::new(), version, address, is_unnamed })
}

/// Reads until the bytes differ from the HTTP/2 preface or complete it.
pub(super) async fn tell_version(
    tcp: &mut (impl AsyncRead + Unpin),
) -> io::Result<(ClientProtocol, Bytes)> {
    let mut seen = Vec::with_capacity(HTTP2_PREFACE.len());
    while seen.len() < HTTP2_PREFACE.len() {
        let space = HTTP2_PREFACE.len() - seen.len();
        let read = (&mut *tcp).take(space as u64).read_buf(&mut seen).await?;
        if read == 0 || !HTTP2_PREFACE.starts_with(&seen) {
            return Ok((ClientProtocol::Http1, seen.into()));
        }
    }
    Ok((ClientProtocol::Http2, seen.into()))
}
