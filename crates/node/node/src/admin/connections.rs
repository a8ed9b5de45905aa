//! Connections of the admin listener, with or without TLS.

use std::convert::Infallible;
use std::fs::File;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use spillway_admin::connection_permits::{Busy, ConnectionPermit, ConnectionPermits};
use spillway_admin::{Body, connection_builder};
use spillway_front::client::{ServerTls, add_date};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Admin;

/// Time after which a client that takes nothing sent to it loses its connection: a watcher that
/// never reads would keep its place for ever.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Number of descriptors that are kept for operators: a health check, a scraper and some commands.
const SPARES: usize = 8;
/// Pause after a failed accept, as when the process has no file descriptor left.
const ERROR_PAUSE: Duration = Duration::from_millis(20);

/// The admin listener's socket and certificate.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    pub(crate) socket: TcpListener,
    /// TLS settings; `None` for cleartext.
    pub(crate) tls: Option<Arc<ServerTls>>,
}

/// Serves until told to stop.
pub(crate) async fn serve_admin(
    listener: AdminSocket,
    admin: Admin,
    stop: CancellationToken,
    tracker: TaskTracker,
) {
    let places = Arc::new(ConnectionPermits::default());
    let mut spares = SpareDescriptors::default();
    spares.refill();
    loop {
        let accepted = tokio::select! {
            accepted = listener.socket.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let (tcp, peer) = match accepted {
            Ok(connected) => connected,
            // At once: the listeners of clients want the descriptor, too.
            Err(error) if is_shortage(&error) && spares.give() => continue,
            Err(_) => {
                tokio::time::sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        spares.refill();
        let Some(place) = places.take(peer.ip(), Instant::now()).map(Arc::new) else {
            say_full(peer.ip());
            continue;
        };
        if let Err(error) = bound_stalls(&tcp, STALL_MAX) {
            tracing::debug!(%error, "a stalled client of the admin listener will not be noticed");
        }
        let (admin, tls, stop) = (admin.clone(), listener.tls.clone(), stop.clone());
        tracker.spawn(async move {
            tokio::select! {
                () = serve(tcp, tls, admin, peer.ip(), &place) => {}
                () = place.over() => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

/// File descriptors kept for operators: clients and replicas can use up all others.
#[derive(Debug, Default)]
struct SpareDescriptors(Vec<File>);

impl SpareDescriptors {
    /// Takes as many as there are to be, or as the system has.
    fn refill(&mut self) {
        while self.0.len() < SPARES {
            let Ok(spare) = File::open("/dev/null") else { return };
            self.0.push(spare);
        }
    }

    /// Gives one back to the process; returns false if none is left.
    fn give(&mut self) -> bool {
        self.0.pop().is_some()
    }
}

/// Returns true if the process or the system has no descriptor left.
fn is_shortage(error: &std::io::Error) -> bool {
    // ENFILE and EMFILE, which have no kind of their own.
    matches!(error.raw_os_error(), Some(23 | 24))
}

fn say_full(client: IpAddr) {
    tracing::warn!(%client, "the admin listener is full of busy connections: one more is refused");
}

async fn serve(
    tcp: TcpStream,
    tls: Option<Arc<ServerTls>>,
    admin: Admin,
    client: IpAddr,
    place: &Arc<ConnectionPermit>,
) {
    match tls {
        None => serve_stream(tcp, admin, client, place).await,
        Some(tls) => match tls.accept(tcp).await {
            Ok(stream) => serve_stream(stream, admin, client, place).await,
            Err(error) => tracing::debug!(%error, "a TLS handshake of the admin listener failed"),
        },
    }
}

async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    admin: Admin,
    client: IpAddr,
    place: &Arc<ConnectionPermit>,
) {
    let service = service_fn(move |request| {
        let (admin, place) = (admin.clone(), Arc::clone(place));
        async move {
            let busy = place.busy(admin.knows(&request));
            let mut reply = admin.answer(request, client).await;
            add_date(reply.headers_mut(), SystemTime::now());
            Ok::<_, Infallible>(reply.map(|body| HeldBody { body, _busy: busy }))
        }
    });
    let served = connection_builder().serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection of the admin listener broke off");
    }
}

/// Body of a reply; its connection stays busy until all of it is sent.
struct HeldBody {
    body: Body,
    _busy: Busy,
}

impl http_body::Body for HeldBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Lets the kernel end a connection whose peer takes nothing for `limit`, whether the peer is gone
/// or only does not read.
fn bound_stalls(tcp: &TcpStream, limit: Duration) -> std::io::Result<()> {
    SockRef::from(tcp).set_tcp_user_timeout(Some(limit))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[test]
    fn descriptors_are_kept_and_given_back_one_by_one() {
        let mut spares = SpareDescriptors::default();
        assert!(!spares.give());
        spares.refill();
        assert_eq!((0..=SPARES).filter(|_| spares.give()).count(), SPARES);
        spares.refill();
        assert!(spares.give());
        assert!(is_shortage(&std::io::Error::from_raw_os_error(24)));
        assert!(!is_shortage(&ErrorKind::ConnectionAborted.into()));
    }

    #[tokio::test]
    async fn a_client_that_never_reads_is_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut tcp, _) = listener.accept().await.unwrap();
        bound_stalls(&tcp, Duration::from_millis(500)).unwrap();
        let writing = async {
            let chunk = vec![0; 1 << 20];
            loop {
                if let Err(error) = tcp.write_all(&chunk).await {
                    return error.kind();
                }
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(20), writing).await;
        assert_eq!(ended.expect("an end"), ErrorKind::TimedOut);
        drop(silent);
    }
}
