//! Takes connections off listening sockets, for the worker on the same runtime or for several on
//! threads of their own.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::task::unconstrained;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::client::connection::serve_connection;
use crate::client::listener::Listener;
use crate::gateway::{ConnectionPermit, Gateway};
use crate::worker::Worker;

/// Pause after an error that would only repeat at once, like having no file descriptor left.
const ERROR_PAUSE: Duration = Duration::from_millis(20);

/// Connections that are let in at most after the gateway began to drain: as many as the kernel holds for
/// a busy node. More come from clients that were to go elsewhere by now.
const QUEUED_MAX: usize = 4_096;

/// Hands connections to workers on other threads, to each in its turn.
#[derive(Debug)]
pub struct HandOut {
    gateway: Arc<Gateway>,
    workers: Vec<Sender<Accepted>>,
    next: usize,
}

/// A connection on its way to the worker that serves it.
#[derive(Debug)]
pub struct Accepted {
    tcp: StdStream,
    peer: SocketAddr,
    listener: Arc<Listener>,
    permit: ConnectionPermit,
    /// Draining waits for it, before it is a task as well.
    _tracked: TaskTrackerToken,
}

/// Accepts on `socket` until the gateway drains, for the worker on the same runtime. Each connection
/// becomes a task of the gateway's tracker.
pub async fn accept_loop(worker: Arc<Worker>, listener: Arc<Listener>, socket: TcpListener) {
    // So that draining does not end before those that are connected are let in.
    let _tracked = worker.gateway.tracker.token();
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = worker.gateway.draining.cancelled() => break,
        };
        take(&worker, &listener, accepted).await;
    }
    // Those that are connected already are let in: closing the socket would reset them.
    for _ in 0..QUEUED_MAX {
        // Or the runtime, for the sake of others, might say that there is none.
        match unconstrained(poll_fn(|cx| Poll::Ready(socket.poll_accept(cx)))).await {
            Poll::Ready(accepted) => take(&worker, &listener, accepted).await,
            Poll::Pending => return,
        }
    }
}

/// Serves what is handed to `worker`, until nobody is left who could hand it anything.
pub async fn serve_handed(worker: Arc<Worker>, mut handed: Receiver<Accepted>) {
    while let Some(accepted) = handed.recv().await {
        let Accepted { tcp, peer, listener, permit, _tracked } = accepted;
        match TcpStream::from_std(tcp) {
            Ok(tcp) => serve(&worker, &listener, (tcp, peer), permit),
            Err(error) => tracing::warn!(%error, "a connection can't be served"),
        }
    }
}

impl HandOut {
    /// Hands connections to whoever receives from these; there has to be one.
    #[must_use]
    pub fn new(gateway: Arc<Gateway>, workers: Vec<Sender<Accepted>>) -> Self {
        Self { gateway, workers, next: 0 }
    }

    /// Accepts on `socket` until the gateway drains. For a thread of its own: it blocks. The socket
    /// has to have a time limit for accepting, after which it looks whether the gateway drains.
    /// Blocking costs fewer system calls for each connection than a runtime does.
    pub fn accept(mut self, listener: &Arc<Listener>, socket: &StdListener) {
        let _tracked = self.gateway.tracker.token();
        while !self.gateway.is_draining() {
            self.hand(listener, socket.accept());
        }
        // Those that are connected already are let in: closing the socket would reset them.
        if let Err(error) = socket.set_nonblocking(true) {
            return tracing::warn!(%error, "connections that wait to be accepted are lost");
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
                tracing::warn!(%error, "accept failed");
                return std::thread::sleep(ERROR_PAUSE);
            }
        };
        let Some(permit) = admit(&self.gateway, listener, peer) else { return };
        // Its worker's runtime waits for it.
        if let Err(error) = tcp.set_nonblocking(true) {
            return tracing::warn!(%error, "a connection can't be served");
        }
        let _tracked = self.gateway.tracker.token();
        let listener = Arc::clone(listener);
        let mut accepted = Accepted { tcp, peer, listener, permit, _tracked };
        for _ in 0..self.workers.len() {
            self.next = (self.next + 1) % self.workers.len();
            match self.workers[self.next].try_send(accepted) {
                Ok(()) => return,
                Err(TrySendError::Full(back) | TrySendError::Closed(back)) => accepted = back,
            }
        }
        // All are behind: the kernel keeps those that come now. An error means that the node ends.
        drop(self.workers[self.next].blocking_send(accepted));
    }
}

async fn take(
    worker: &Arc<Worker>,
    listener: &Arc<Listener>,
    accepted: io::Result<(TcpStream, SocketAddr)>,
) {
    match accepted {
        Ok((tcp, peer)) => {
            if let Some(permit) = admit(&worker.gateway, listener, peer) {
                serve(worker, listener, (tcp, peer), permit);
            }
        }
        Err(error) if is_about_one_connection(&error) => {}
        Err(error) => {
            tracing::warn!(%error, "accept failed");
            tokio::time::sleep(ERROR_PAUSE).await;
        }
    }
}

/// A place for a connection, if it may have one.
fn admit(
    gateway: &Arc<Gateway>,
    listener: &Listener,
    peer: SocketAddr,
) -> Option<ConnectionPermit> {
    // A proxy has connections of many clients.
    let is_proxy = listener.trusted_proxies.trusts(peer.ip());
    gateway.admit_connection((!is_proxy).then_some(peer.ip()))
}

fn serve(
    worker: &Arc<Worker>,
    listener: &Arc<Listener>,
    (tcp, peer): (TcpStream, SocketAddr),
    permit: ConnectionPermit,
) {
    let connection = serve_connection(Arc::clone(worker), Arc::clone(listener), tcp, peer);
    worker.gateway.tracker.spawn(async move {
        connection.await;
        drop(permit);
    });
}

/// The client was gone before it was accepted, or there was none: no reason to pause.
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
