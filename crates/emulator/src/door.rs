//! A replica's port: open, or closed and kept.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket};

use crate::replica::Replica;
use crate::server::Listening;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Where a replica's connections come in.
#[derive(Debug, Default)]
pub(crate) enum Door {
    /// Nothing was opened yet, or the port is lost.
    #[default]
    Gone,
    /// Connections are accepted.
    Open(Listening),
    /// Connections are refused. The port stays bound, or another process could be given it while
    /// the replica is down, and would answer in its place.
    Closed(TcpSocket),
}

impl Door {
    // (Gone | Closed) => Open
    pub(crate) fn open(&mut self, replica: &Arc<Replica>) -> io::Result<()> {
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

    /// Serves a listener that is open already.
    pub(crate) fn serve(&mut self, replica: &Arc<Replica>, listener: TcpListener) {
        *self = Self::Open(Listening::start(replica, listener));
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

/// A socket that has the address, and does not listen.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of the life before may still be closing.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
