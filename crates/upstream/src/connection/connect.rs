//! Opens connections to replicas.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::connection::error::AttemptError;
use crate::connection::line::UpstreamLine;
use crate::stream::Stream;

/// Opens a connection, TLS included, within `bound`. The line's addresses are tried in order.
///
/// # Errors
/// Returns an error if no address could be connected to, or the time ran out.
pub(crate) async fn connect(
    line: &UpstreamLine<'_>,
    bound: Duration,
) -> Result<Stream, AttemptError> {
    match timeout(bound, connect_any(line)).await {
        Ok(connected) => connected.map_err(AttemptError::Connect),
        Err(_) => Err(AttemptError::ConnectTimeout),
    }
}

async fn connect_any(line: &UpstreamLine<'_>) -> io::Result<Stream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "its name has no address yet");
    for address in line.addresses.iter() {
        match TcpStream::connect(address).await {
            Ok(tcp) => return encrypt(line, tcp).await,
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn encrypt(line: &UpstreamLine<'_>, tcp: TcpStream) -> io::Result<Stream> {
    // Without this, a request's last bytes could wait for the next acknowledgement.
    tcp.set_nodelay(true)?;
    let Some(tls) = line.tls else { return Ok(Stream::Plain(tcp)) };
    let encrypted = tls.connector.connect(tls.server_name.clone(), tcp).await?;
    Ok(Stream::Tls(Box::new(encrypted.into())))
}
