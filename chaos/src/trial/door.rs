//! Connections from inside a region to a listener.

use std::fs::File;
use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpSocket, TcpStream};

use crate::wan::enter;

/// Connector whose sockets are inside a region.
#[derive(Debug)]
pub(crate) struct Door {
    inside: File,
    address: SocketAddr,
}

impl Door {
    /// Returns a connector to `address` in the namespace of the file `namespace`.
    pub(crate) fn inside(namespace: &str, address: SocketAddr) -> io::Result<Self> {
        Ok(Self { inside: File::open(namespace)?, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens a connection. The socket is made on a thread inside the namespace, and belongs to that
    /// namespace wherever it is used later.
    pub(crate) async fn connect(&self) -> io::Result<TcpStream> {
        let open = || -> io::Result<TcpSocket> {
            enter(&self.inside)?;
            TcpSocket::new_v4()
        };
        let opened = std::thread::scope(|scope| scope.spawn(open).join());
        let socket = opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
