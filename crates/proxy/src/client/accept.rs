//! Takes connections off one listening socket.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::unconstrained;

use crate::client::connection::serve_connection;
use crate::client::listener::Listener;
use crate::worker::Worker;

/// Pause after an error that would only repeat at once, like having no file descriptor left.
const ERROR_PAUSE: Duration = Duration::from_millis(20);

/// Connections that are let in at most after the gateway began to drain: as many as the kernel holds for
/// a busy node. More come from clients that were to go elsewhere by now.
const QUEUED_MAX: usize = 4_096;

/// Accepts on `socket` until the gateway drains. Each connection becomes a task of the gateway's
/// tracker.
pub async fn accept_loop(worker: Arc<Worker>, listener: Arc<Listener>, socket: TcpListener) {
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

async fn take(
    worker: &Arc<Worker>,
    listener: &Arc<Listener>,
    accepted: io::Result<(TcpStream, SocketAddr)>,
) {
    match accepted {
        Ok((tcp, peer)) => {
            // A proxy has connections of many clients.
            let is_proxy = listener.trusted_proxies.trusts(peer.ip());
            let client = (!is_proxy).then_some(peer.ip());
            let Some(permit) = worker.gateway.admit_connection(client) else { return };
            let connection = serve_connection(Arc::clone(worker), Arc::clone(listener), tcp, peer);
            worker.gateway.tracker.spawn(async move {
                connection.await;
                drop(permit);
            });
        }
        Err(error) if is_about_one_connection(&error) => {}
        Err(error) => {
            tracing::warn!(%error, "accept failed");
            tokio::time::sleep(ERROR_PAUSE).await;
        }
    }
}

/// The client was gone before it was accepted: no reason to pause.
fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
