//! Opens connections to replicas.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use spillway_resolver::ConnectionAddress;
use spillway_sockets::set_up;
use spillway_transport::Stream;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::error::AttemptError;
use crate::line::UpstreamLine;

/// Opens a connection, TLS included, within `bound`, to one of the addresses that the line's name is
/// known to have.
///
/// # Errors
/// Returns an error if no address is known, none could be connected to, or the time ran out.
pub(crate) async fn connect(
    line: &UpstreamLine<'_>,
    bound: Duration,
) -> Result<(Stream, ConnectionAddress), AttemptError> {
    match timeout(bound, connect_any(line)).await {
        Ok(connected) => connected,
        Err(_) => Err(AttemptError::ConnectTimeout),
    }
}

async fn connect_any(line: &UpstreamLine<'_>) -> Result<(Stream, ConnectionAddress), AttemptError> {
    let (tcp, address) = line.endpoint.connect().await?;
    let mut handshake = AvoidUnlessDone { line, address: address.ip(), is_done: false };
    let stream = encrypt(line, tcp).await.map_err(AttemptError::of_connect)?;
    handshake.is_done = true;
    Ok((stream, address))
}

async fn encrypt(line: &UpstreamLine<'_>, tcp: TcpStream) -> io::Result<Stream> {
    set_up(&tcp)?;
    let Some(tls) = line.tls else { return Ok(Stream::Plain(tcp)) };
    let encrypted = tls.connector.connect(tls.server_name.clone(), tcp).await?;
    Ok(Stream::Tls(Box::new(encrypted.into())))
}

/// Begins the next connection with another address, unless the handshake is done: it may have failed,
/// or never ended.
struct AvoidUnlessDone<'a> {
    line: &'a UpstreamLine<'a>,
    address: IpAddr,
    is_done: bool,
}

impl Drop for AvoidUnlessDone<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.line.endpoint.avoid(self.address);
        }
    }
}
