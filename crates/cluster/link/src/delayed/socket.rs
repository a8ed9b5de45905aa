//! Socket that holds packets back.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio_util::task::TaskTracker;

use super::path::{Fate, Paths};
use super::queue::{Packet, Queue};

/// Pause before another try to write to a full socket.
const FULL_PAUSE: Duration = Duration::from_micros(100);

/// Most tries for a packet; then the packet is lost.
const FULL_TRIES_MAX: u32 = 1_000;

/// UDP socket whose packets take the paths of [`Paths`].
#[derive(Debug)]
struct DelayedSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    paths: Arc<Paths>,
    queue: Arc<Queue>,
}

impl Drop for DelayedSocket {
    /// Ends the sending thread; packets under way are lost.
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Puts the paths of `paths` between quinn and `inner`.
///
/// A thread sends the delayed packets, because the runtime's timers have a resolution of 1 ms, and
/// two of them in each round trip would falsify measurements.
///
/// # Errors
/// Returns an error if the thread can't be started.
pub(crate) fn wrap(
    inner: Arc<dyn AsyncUdpSocket>,
    paths: Arc<Paths>,
    tracker: &TaskTracker,
) -> io::Result<Arc<dyn AsyncUdpSocket>> {
    let queue = Arc::new(Queue::default());
    let (socket, waiting, token) = (Arc::clone(&inner), Arc::clone(&queue), tracker.token());
    thread::Builder::new().name("delayed".to_owned()).spawn(move || {
        while let Some(packet) = waiting.next() {
            send(&*socket, &packet);
        }
        // The token lets a shutdown wait for this thread.
        drop(token);
    })?;
    Ok(Arc::new(DelayedSocket { inner, paths, queue }))
}

/// Sends a packet. A full socket delays it a little more; any other error loses it, as a network
/// does.
fn send(socket: &dyn AsyncUdpSocket, packet: &Packet) {
    for _ in 0..FULL_TRIES_MAX {
        match socket.try_send(&packet.transmit()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(FULL_PAUSE),
            _ => return,
        }
    }
}

impl AsyncUdpSocket for DelayedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let now = Instant::now();
        let whole = transmit.contents.len();
        let size = transmit.segment_size.unwrap_or(whole).max(1);
        for contents in transmit.contents.chunks(size) {
            match self.paths.fate(transmit.destination, contents.len(), now) {
                // A whole packet only: quinn is configured to hand over one packet at a time.
                Fate::AtOnce if contents.len() == whole => return self.inner.try_send(transmit),
                Fate::AtOnce => self.queue.push(now, Packet::of(transmit, contents)),
                Fate::Then(at, copies) => {
                    (0..copies).for_each(|_| self.queue.push(at, Packet::of(transmit, contents)));
                }
                Fate::Lost => {}
            }
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(context, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Returns 1, so that each packet has its own fate.
    fn max_transmit_segments(&self) -> usize {
        1
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}
