//! Opens connections to replicas.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::replica::Replica;
use crate::stream::Stream;
use crate::upstream::error::AttemptError;

/// A new connection, TLS included, within `bound`. The replica's addresses are tried in order.
///
/// # Errors
/// If none of them could be connected to, or the time ran out.
pub(crate) async fn connect(replica: &Replica, bound: Duration) -> Result<Stream, AttemptError> {
    match timeout(bound, connect_any(replica)).await {
        Ok(connected) => connected.map_err(AttemptError::Connect),
        Err(_) => Err(AttemptError::ConnectTimeout),
    }
}

async fn connect_any(replica: &Replica) -> io::Result<Stream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "its name has no address yet");
    for address in replica.addresses().iter() {
        match TcpStream::connect(address).await {
            Ok(tcp) => return encrypt(replica, tcp).await,
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn encrypt(replica: &Replica, tcp: TcpStream) -> io::Result<Stream> {
    // The request must leave with its last byte, not with the next acknowledgement.
    tcp.set_nodelay(true)?;
    let Some(tls) = &replica.tls else { return Ok(Stream::Plain(tcp)) };
    let encrypted = tls.connector.connect(tls.server_name.clone(), tcp).await?;
    Ok(Stream::Tls(Box::new(encrypted.into())))
}
