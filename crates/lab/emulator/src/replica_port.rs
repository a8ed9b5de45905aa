//! Port of a replica: open, or closed but still bound.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket};

use crate::life::Listening;
use crate::replica::EmulatedReplica;

/// Largest number of connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// State of a replica's port.
#[derive(Debug, Default)]
pub(crate) enum ReplicaPort {
    /// The port was not opened yet, or is lost.
    #[default]
    Gone,
    /// The replica accepts connections.
    Open(Listening),
    /// The kernel refuses connections. The port stays bound: otherwise another process could get it
    /// while the replica is down, and would answer in its place.
    Closed(TcpSocket),
}

impl ReplicaPort {
    // (Gone | Closed) => Open
    pub(crate) fn open(&mut self, replica: &Arc<EmulatedReplica>) -> io::Result<()> {
        // If opening fails, the port is lost.
        let listener = match std::mem::take(self) {
            Self::Open(listening) => {
                *self = Self::Open(listening);
                return Ok(());
            }
            Self::Closed(socket) => socket.listen(BACKLOG)?,
            Self::Gone => bound(replica.address)?.listen(BACKLOG)?,
        };
        self.serve(replica, listener);
        Ok(())
    }

    /// Serves a listener that is already open.
    pub(crate) fn serve(&mut self, replica: &Arc<EmulatedReplica>, listener: TcpListener) {
        *self = Self::Open((replica.listen)(replica, listener));
    }

    // Open => Closed, once nothing listens any more.
    pub(crate) async fn close(&mut self, address: SocketAddr) -> io::Result<()> {
        if let Self::Open(listening) = std::mem::take(self) {
            listening.close().await;
            *self = Self::Closed(bound(address)?);
        }
        Ok(())
    }

    // Open => Gone: the end of the replica.
    pub(crate) async fn remove(&mut self) {
        if let Self::Open(listening) = std::mem::take(self) {
            listening.close().await;
        }
    }
}

/// Returns a socket that is bound to the address, but does not listen.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections from before a crash may still be closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
