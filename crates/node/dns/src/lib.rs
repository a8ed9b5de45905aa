//! This node as a name server that directs clients to regions.
//!
//! The pure `spillway_geo::dns` decides about answers. Here are its sockets, on one thread of their
//! own: requests keep their threads however many queries come. Answers come from the last snapshot
//! of regions, which the driver of the cluster swaps; nothing here waits for another task.

mod name_server_state;
mod snapshot;
mod tcp;
mod tcp_slots;
mod udp;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};
use tokio::runtime;
use tokio_util::sync::CancellationToken;

pub use crate::name_server_state::{Locate, NameServerState};

/// Maximum number of TCP connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Bytes of queries, and of answers, that the kernel keeps: some ten thousand messages.
const SOCKET_BYTES: usize = 4 << 20;
/// Maximum number of attempts to find a port that is free for both transports, if the config leaves
/// it open.
const TRIES_MAX: u32 = 8;

/// Opened sockets of the name server.
#[derive(Debug)]
pub struct NameServer {
    udp: std::net::UdpSocket,
    tcp: std::net::TcpListener,
    address: SocketAddr,
}

impl NameServer {
    /// Opens one port for both transports.
    ///
    /// Returns an error if the port is taken, or below 1024 and not allowed.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let mut tries = 1;
        loop {
            let udp = bind(address, Type::DGRAM, Protocol::UDP)?;
            // Best effort: the kernel's own limit may be lower.
            drop(udp.set_recv_buffer_size(SOCKET_BYTES));
            drop(udp.set_send_buffer_size(SOCKET_BYTES));
            let udp: std::net::UdpSocket = udp.into();
            let bound = udp.local_addr()?;
            match bind(bound, Type::STREAM, Protocol::TCP).and_then(listen) {
                Ok(tcp) => return Ok(Self { udp, tcp, address: bound }),
                // Port 0 found one that is free for UDP alone.
                Err(_) if address.port() == 0 && tries < TRIES_MAX => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the address, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers on a thread of its own until `stop`.
    ///
    /// # Errors
    /// Returns an error if the thread can't be started.
    pub fn start(
        self,
        served: Arc<NameServerState>,
        stop: CancellationToken,
    ) -> io::Result<JoinHandle<()>> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        Builder::new().name("dns".to_owned()).spawn(move || {
            let answering = async {
                let Err(error) = self.serve(served).await;
                tracing::error!(%error, "the name server ended");
            };
            runtime.block_on(async { stop.run_until_cancelled(answering).await });
        })
    }

    async fn serve(self, served: Arc<NameServerState>) -> io::Result<Infallible> {
        let udp = UdpSocket::from_std(self.udp)?;
        let tcp = TcpListener::from_std(self.tcp)?;
        tokio::select! {
            ended = udp::serve(udp, &served) => ended,
            never = tcp::serve(tcp, &served) => Ok(never),
        }
    }
}

fn bind(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if kind == Type::STREAM {
        // Connections of a former process don't keep the port.
        socket.set_reuse_address(true)?;
    }
    if address.is_ipv6() {
        // `[::]:53` serves IPv4, too, whatever the system's default is.
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(socket: Socket) -> io::Result<std::net::TcpListener> {
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
