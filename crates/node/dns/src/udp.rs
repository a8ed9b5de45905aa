//! Queries in datagrams.

use std::convert::Infallible;
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use spillway_geo::dns::{QueryAdmission, QueryOutcome, QueryTransport, ResponseLimiter, truncated};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::NameServerState;

/// Number of buffers that one system call fills.
const BATCH: usize = 16;
/// Size of a buffer in bytes: the kernel may put several datagrams of one source into it, one
/// behind the other.
const BUFFER_BYTES: usize = 65_535;
/// Number of batches that are answered before TCP has its turn.
const BATCHES_MAX: usize = 16;
/// Pause after the socket had an error.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum size of a query in bytes. Real ones are a tenth as long.
const QUERY_BYTES_MAX: usize = 4_096;

/// Answers datagrams forever.
///
/// # Errors
/// Returns an error if the socket can't be prepared, or there is no source of randomness.
pub(super) async fn serve(
    socket: UdpSocket,
    served: &Arc<NameServerState>,
) -> io::Result<Infallible> {
    let limiter = served.config().limiter;
    let seed = getrandom::u64().map_err(io::Error::other)?;
    let mut server = UdpServer {
        state: UdpSocketState::new(UdpSockRef::from(&socket))?,
        socket,
        served: Arc::clone(served),
        limiter: ResponseLimiter::new(limiter, seed, Instant::now()),
        storage: vec![0; BATCH * BUFFER_BYTES],
    };
    loop {
        if let Err(error) = server.socket.readable().await.and_then(|()| server.drain()) {
            // Out of memory, or a lost network: such errors pass and are no reason to end.
            tracing::warn!(%error, "queries could not be read");
            tokio::time::sleep(PAUSE).await;
        }
        // TCP is served on this thread, too.
        tokio::task::yield_now().await;
    }
}

struct UdpServer {
    socket: UdpSocket,
    state: UdpSocketState,
    served: Arc<NameServerState>,
    limiter: ResponseLimiter,
    storage: Vec<u8>,
}

impl UdpServer {
    /// Answers the queries that have come, up to some batches.
    fn drain(&mut self) -> io::Result<()> {
        let mut metas = [RecvMeta::default(); BATCH];
        for _ in 0..BATCHES_MAX {
            let mut buffers: Vec<IoSliceMut<'_>> =
                self.storage.chunks_mut(BUFFER_BYTES).map(IoSliceMut::new).collect();
            let received = self.socket.try_io(Interest::READABLE, || {
                self.state.recv(UdpSockRef::from(&self.socket), &mut buffers, &mut metas)
            });
            let count = match received {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let now = Instant::now();
            for (meta, buffer) in metas.iter().zip(self.storage.chunks(BUFFER_BYTES)).take(count) {
                let filled = buffer.get(..meta.len).unwrap_or_default();
                // The kernel may have joined several datagrams, each `stride` bytes long.
                for query in filled.chunks(meta.stride.max(1)) {
                    let reply = reply(&self.served, &mut self.limiter, query, meta, now);
                    if let Some(reply) = reply {
                        self.send(&reply, meta);
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends from the address that was asked: on a machine with several, such as one for anycast,
    /// the kernel would take another.
    fn send(&self, reply: &[u8], meta: &RecvMeta) {
        let transmit = Transmit {
            destination: meta.addr,
            ecn: None,
            contents: reply,
            segment_size: None,
            src_ip: meta.dst_ip,
        };
        // A reply that does not fit into the kernel's queue now is lost, as any datagram may be:
        // the resolver asks again.
        drop(self.state.try_send(UdpSockRef::from(&self.socket), &transmit));
    }
}

fn reply(
    served: &NameServerState,
    limiter: &mut ResponseLimiter,
    query: &[u8],
    meta: &RecvMeta,
    now: Instant,
) -> Option<Vec<u8>> {
    let source = meta.addr.ip().to_canonical();
    // No client can receive an answer at port 0.
    if query.len() > QUERY_BYTES_MAX || meta.addr.port() == 0 {
        served.count_outcome(QueryOutcome::Dropped);
        return None;
    }
    match limiter.admit(source, now) {
        QueryAdmission::Answer => served.answer(query, source, QueryTransport::Udp),
        QueryAdmission::Truncate => {
            served.count_outcome(QueryOutcome::LimitedTruncated);
            truncated(query)
        }
        QueryAdmission::Drop => {
            served.count_outcome(QueryOutcome::LimitedDropped);
            None
        }
    }
}
