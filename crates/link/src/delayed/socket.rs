//! The socket that holds packets back.

use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::sync::Notify;
use tokio::time::sleep_until;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::path::{Fate, Paths};
use super::queue::{Packet, Queue};

/// A UDP socket whose packets take the ways of [`Paths`].
#[derive(Debug)]
struct DelayedSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    paths: Arc<Paths>,
    road: Arc<Road>,
    /// Ends the sending task with the socket.
    _stop: DropGuard,
}

/// What the socket shares with the task that sends later.
#[derive(Debug, Default)]
struct Road {
    queue: Queue,
    earlier: Notify,
}

/// Puts the ways of `paths` between quinn and `inner`.
pub(crate) fn wrap(
    inner: Arc<dyn AsyncUdpSocket>,
    paths: Arc<Paths>,
    tracker: &TaskTracker,
) -> Arc<dyn AsyncUdpSocket> {
    let road = Arc::new(Road::default());
    let stop = CancellationToken::new();
    let sending = send_later(Arc::clone(&inner), Arc::clone(&road));
    let stopped = stop.clone();
    tracker.spawn(async move { stopped.run_until_cancelled(sending).await });
    Arc::new(DelayedSocket { inner, paths, road, _stop: stop.drop_guard() })
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
                // Only whole: quinn is told to hand over one packet at a time.
                Fate::AtOnce if contents.len() == whole => return self.inner.try_send(transmit),
                Fate::AtOnce => self.put(now, Packet::of(transmit, contents)),
                Fate::Then(at, copies) => {
                    (0..copies).for_each(|_| self.put(at, Packet::of(transmit, contents)));
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

    /// One, so that each packet has its own fate.
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

impl DelayedSocket {
    fn put(&self, at: Instant, packet: Packet) {
        if self.road.queue.push(at, packet) {
            self.road.earlier.notify_one();
        }
    }
}

/// Sends each packet at its time.
async fn send_later(inner: Arc<dyn AsyncUdpSocket>, road: Arc<Road>) {
    let mut poller = Arc::clone(&inner).create_io_poller();
    loop {
        while let Some(packet) = road.queue.pop(Instant::now()) {
            // A full socket delays a little more; any other error loses the packet, as a network
            // does.
            while let Err(error) = inner.try_send(&packet.transmit()) {
                let full = error.kind() == io::ErrorKind::WouldBlock;
                if !full || poll_fn(|context| poller.as_mut().poll_writable(context)).await.is_err()
                {
                    break;
                }
            }
        }
        match road.queue.first_at() {
            None => road.earlier.notified().await,
            Some(at) => tokio::select! {
                () = sleep_until(at.into()) => {}
                () = road.earlier.notified() => {}
            },
        }
    }
}
