//! UDP socket of a link.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use quinn::udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// UDP socket that wakes its runtime only for what arrives, and for room to send while a packet
/// waits for it.
///
/// The socket of quinn's own runtime asks to be told of room all the time. The system tells of it
/// whenever it is done with a packet, so each packet sent would wake the thread once more. It also
/// asks again after each packet that arrived whether there is another.
#[derive(Debug)]
pub(crate) struct LinkSocket {
    socket: AsyncFd<UdpSocket>,
    state: UdpSocketState,
    /// True while the last packet found no room.
    is_full: AtomicBool,
}

impl LinkSocket {
    /// Has this runtime wait for what arrives at `socket`.
    ///
    /// # Errors
    /// Returns an error if the socket can't be set up or watched.
    pub(crate) fn new(socket: UdpSocket) -> io::Result<Self> {
        // This also makes the socket non-blocking.
        let state = UdpSocketState::new((&socket).into())?;
        let socket = AsyncFd::with_interest(socket, Interest::READABLE)?;
        Ok(Self { socket, state, is_full: AtomicBool::new(false) })
    }
}

impl AsyncUdpSocket for LinkSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Room { of: self, watch: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let sent = self.state.send(self.socket.get_ref().into(), transmit);
        if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.is_full.store(true, Ordering::Relaxed);
        }
        sent
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(context))?;
            let received = self.state.recv(self.socket.get_ref().into(), buffers, meta);
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Ok(count) => {
                    // Fewer than were asked for: none is left, and the next one will be told of.
                    if count < buffers.len().min(BATCH_SIZE) {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(count));
                }
                error => return Poll::Ready(error),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get_ref().local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// Wait of one connection for room to send.
#[derive(Debug)]
struct Room {
    of: Arc<LinkSocket>,
    /// The socket once more, to be told of room; `None` while there is some.
    watch: Option<AsyncFd<UdpSocket>>,
}

impl UdpPoller for Room {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { of, watch } = &mut *self;
        if watch.is_none() && !of.is_full.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let watched = match watch {
            Some(watched) => watched,
            None => {
                let socket = of.socket.get_ref().try_clone()?;
                watch.insert(AsyncFd::with_interest(socket, Interest::WRITABLE)?)
            }
        };
        let room = ready!(watched.poll_write_ready(context)).map(drop);
        of.is_full.store(false, Ordering::Relaxed);
        *watch = None;
        Poll::Ready(room)
    }
}

#[cfg(test)]
#[path = "socket_test.rs"]
mod socket_test;
