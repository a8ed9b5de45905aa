//! Takes connections off listening sockets, for the worker on the same runtime or for several on
//! threads of their own.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::client::connection::serve_connection;
use crate::client::listener::Listener;
use crate::client::serve::{Entrance, Serve};
use crate::front_door::{ConnectionPermit, FrontDoor};

/// Pause after an error that would repeat at once, such as running out of file descriptors.
const ERROR_PAUSE: Duration = Duration::from_millis(20);

/// Most connections that are accepted after draining began: as many as the kernel queues for a busy
/// node. Clients behind them were expected to use another node by now.
const QUEUED_MAX: usize = 4_096;

/// Acceptor that hands connections to workers on other threads, in turn.
#[derive(Debug)]
pub struct HandOut {
    door: Arc<FrontDoor>,
    workers: Vec<Sender<Accepted>>,
    next: usize,
    /// Keeps draining from ending before the queued connections are accepted.
    _tracked: TaskTrackerToken,
}

/// A connection that is handed to the worker that will serve it.
#[derive(Debug)]
pub struct Accepted {
    tcp: StdStream,
    peer: SocketAddr,
    listener: Arc<Listener>,
    permit: ConnectionPermit,
    /// Keeps draining from ending before the connection is a task.
    _tracked: TaskTrackerToken,
}

/// Accepts on `socket` until the gateway drains, for the worker on the same runtime. Each connection
/// becomes a task of the gateway's tracker. `socket` must be non-blocking.
///
/// Draining waits for the returned future from this call on, not only from its first poll: its thread
/// may start late, and clients are connected as soon as the socket listens.
pub fn accept_loop<S: Serve>(
    entrance: Entrance<S>,
    listener: Arc<Listener>,
    socket: StdListener,
) -> impl Future<Output = ()> + Send + use<S> {
    let tracked = entrance.door.tracker().token();
    async move {
        match TcpListener::from_std(socket) {
            Ok(socket) => accept_until_drained(&entrance, &listener, socket).await,
            Err(error) => tracing::error!(%error, "can't accept on a socket"),
        }
        drop(tracked);
    }
}

async fn accept_until_drained<S: Serve>(
    entrance: &Entrance<S>,
    listener: &Arc<Listener>,
    socket: TcpListener,
) {
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = entrance.door.draining().cancelled() => break,
        };
        take(entrance, listener, accepted).await;
    }
    // The kernel is asked, not the runtime, which may not know of the newest connections yet.
    match socket.into_std() {
        Ok(socket) => take_connected(entrance, listener, &socket).await,
        Err(error) => lost(&error),
    }
}

/// Accepts the connections that are already established: closing the socket would reset them.
async fn take_connected<S: Serve>(
    entrance: &Entrance<S>,
    listener: &Arc<Listener>,
    socket: &StdListener,
) {
    for _ in 0..QUEUED_MAX {
        let accepted = match socket.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            accepted => accepted.and_then(|(tcp, peer)| {
                tcp.set_nonblocking(true)?;
                Ok((TcpStream::from_std(tcp)?, peer))
            }),
        };
        take(entrance, listener, accepted).await;
    }
}

fn lost(error: &io::Error) {
    tracing::warn!(%error, "connections that wait to be accepted are lost");
}

/// Serves the connections handed to this entrance, until all senders are gone.
pub async fn serve_handed<S: Serve>(entrance: Entrance<S>, mut handed: Receiver<Accepted>) {
    while let Some(accepted) = handed.recv().await {
        let Accepted { tcp, peer, listener, permit, _tracked } = accepted;
        match TcpStream::from_std(tcp) {
            Ok(tcp) => serve(&entrance, &listener, tcp, peer, permit),
            Err(error) => tracing::warn!(%error, "a connection can't be served"),
        }
    }
}

impl HandOut {
    /// Returns an acceptor that hands connections to these workers; there must be at least one.
    #[must_use]
    pub fn new(door: Arc<FrontDoor>, workers: Vec<Sender<Accepted>>) -> Self {
        let _tracked = door.tracker().token();
        Self { door, workers, next: 0, _tracked }
    }

    /// Accepts on `socket` until the gateway drains. Blocks, so it needs a thread of its own. The
    /// socket needs a time limit for accepting, after which the loop checks for draining. Blocking
    /// costs fewer system calls for each connection than a runtime does.
    pub fn accept(mut self, listener: &Arc<Listener>, socket: &StdListener) {
        while !self.door.is_draining() {
            self.hand(listener, socket.accept());
        }
        // Closing the socket would reset the connections that are already established.
        if let Err(error) = socket.set_nonblocking(true) {
            return lost(&error);
        }
        for _ in 0..QUEUED_MAX {
            match socket.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                accepted => self.hand(listener, accepted),
            }
        }
    }

    fn hand(&mut self, listener: &Arc<Listener>, accepted: io::Result<(StdStream, SocketAddr)>) {
        let (tcp, peer) = match accepted {
            Ok(connected) => connected,
            Err(error) if is_about_one_connection(&error) => return,
            Err(error) => {
                self.door.accept_failed(&error);
                return std::thread::sleep(ERROR_PAUSE);
            }
        };
        let Some(permit) = admit(&self.door, listener, peer) else { return };
        // The worker's runtime needs a non-blocking socket.
        if let Err(error) = tcp.set_nonblocking(true) {
            return tracing::warn!(%error, "a connection can't be served");
        }
        let _tracked = self.door.tracker().token();
        let listener = Arc::clone(listener);
        let mut accepted = Accepted { tcp, peer, listener, permit, _tracked };
        // A worker that is behind is skipped.
        for _ in 0..self.workers.len() {
            self.next = (self.next + 1) % self.workers.len();
            match self.workers[self.next].try_send(accepted) {
                Ok(()) => return,
                Err(TrySendError::Full(back) | TrySendError::Closed(back)) => accepted = back,
            }
        }
        // All workers are behind: new connections wait in the kernel. An error means that the node
        // ends.
        drop(self.workers[self.next].blocking_send(accepted));
    }
}

async fn take<S: Serve>(
    entrance: &Entrance<S>,
    listener: &Arc<Listener>,
    accepted: io::Result<(TcpStream, SocketAddr)>,
) {
    match accepted {
        Ok((tcp, peer)) => {
            if let Some(permit) = admit(&entrance.door, listener, peer) {
                serve(entrance, listener, tcp, peer, permit);
            }
        }
        Err(error) if is_about_one_connection(&error) => {}
        Err(error) => {
            entrance.door.accept_failed(&error);
            tokio::time::sleep(ERROR_PAUSE).await;
        }
    }
}

/// Returns a permit for a connection, unless a limit refuses it.
fn admit(door: &Arc<FrontDoor>, listener: &Listener, peer: SocketAddr) -> Option<ConnectionPermit> {
    // Connections of a proxy belong to many clients, so no limit of a single client applies.
    let is_proxy = listener.trusted_proxies.trusts(peer.ip());
    door.admit_connection((!is_proxy).then_some(peer.ip()))
}

fn serve<S: Serve>(
    entrance: &Entrance<S>,
    listener: &Arc<Listener>,
    tcp: TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
) {
    let connection = serve_connection(entrance.clone(), Arc::clone(listener), tcp, peer);
    entrance.door.tracker().spawn(async move {
        connection.await;
        drop(permit);
    });
}

/// Returns true if accepting failed for one connection only, so that no pause is needed.
fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::pin;
    use std::task::{Context, Poll};

    use http::{Request, Response};
    use hyper::body::Incoming;
    use spillway_protocol::TrustedProxies;
    use spillway_transport::Limits;

    use super::*;
    use crate::access::AccessMode;
    use crate::client::{ConnectionFacts, ListenerSpec, ReplyPump};

    /// Service that no connection of these tests reaches.
    #[derive(Clone, Debug)]
    struct Unreached;

    #[derive(Debug, Default)]
    struct NoPump;

    impl ReplyPump for NoPump {
        fn poll(&self, _cx: &mut Context<'_>, _patience: Option<Duration>) -> Poll<()> {
            Poll::Pending
        }
    }

    impl Serve for Unreached {
        type ReplyBody = String;
        type Pump = NoPump;

        fn serve(
            &self,
            _client: Arc<ConnectionFacts>,
            _pump: Arc<NoPump>,
            _request: Request<Incoming>,
        ) -> impl Future<Output = Result<Response<String>, Infallible>> + Send + Unpin + 'static + use<>
        {
            Box::pin(async { unreachable!("no client of these tests sends a request") })
        }

        fn note_large_head(&self, _client: Arc<ConnectionFacts>) {
            unreachable!("no client of these tests sends a request")
        }
    }

    fn entrance() -> Entrance<Unreached> {
        Entrance { door: Arc::new(FrontDoor::new(Limits::default())), service: Unreached }
    }

    fn listener() -> Arc<Listener> {
        let trusted_proxies = TrustedProxies::default();
        let access = AccessMode::None;
        let spec = ListenerSpec { tls: None, proxy_protocol: false, trusted_proxies, access };
        Arc::new(Listener::new(spec).unwrap())
    }

    /// Covers connections that the kernel has established and the runtime does not know of yet.
    #[tokio::test]
    async fn who_is_connected_is_let_in_though_draining_began_before_anything_was_accepted() {
        let entrance = entrance();
        let socket = StdListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        socket.set_nonblocking(true).unwrap();
        let accepting = accept_loop(entrance.clone(), listener(), socket);
        let _clients = [0; 3].map(|_| StdStream::connect(address).unwrap());
        entrance.door.start_draining();
        let mut drained = pin!(entrance.door.drained());
        let waits = std::future::poll_fn(|cx| Poll::Ready(drained.as_mut().poll(cx)));
        assert!(waits.await.is_pending(), "it would end before they are let in");
        accepting.await;
        assert_eq!(entrance.door.tracker().len(), 3);
    }

    #[test]
    fn draining_waits_for_a_thread_that_has_not_begun_to_accept() {
        let door = entrance().door;
        let out = HandOut::new(Arc::clone(&door), Vec::new());
        door.start_draining();
        assert_eq!(door.tracker().len(), 1);
        drop(out);
        assert!(door.tracker().is_empty());
    }
}
