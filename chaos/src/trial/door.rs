//! The way to a listener from inside a region.

use std::fs::File;
use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpSocket, TcpStream};

use crate::wan::enter;

/// Makes connections whose sockets are inside a region.
#[derive(Debug)]
pub(crate) struct Door {
    inside: File,
    address: SocketAddr,
}

impl Door {
    /// The way to `address` in the namespace that the file at `namespace` is.
    pub(crate) fn inside(namespace: &str, address: SocketAddr) -> io::Result<Self> {
        Ok(Self { inside: File::open(namespace)?, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A socket belongs to the namespace of the thread that makes it, wherever it is used.
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
