//! Takes connections off one listening socket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::client::connection::serve_connection;
use crate::client::listener::Listener;
use crate::worker::Worker;

/// Pause after an error that would only repeat at once, like having no file descriptor left.
const ERROR_PAUSE: Duration = Duration::from_millis(20);

/// Accepts on `socket` until the gateway drains. Each connection becomes a task of the gateway's
/// tracker.
pub async fn accept_loop(worker: Arc<Worker>, listener: Arc<Listener>, socket: TcpListener) {
    let gateway = Arc::clone(&worker.gateway);
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = gateway.draining.cancelled() => return,
        };
        match accepted {
            Ok((tcp, peer)) => {
                // A proxy has connections of many clients.
                let is_proxy = listener.trusted_proxies.trusts(peer.ip());
                let client = (!is_proxy).then_some(peer.ip());
                let Some(permit) = gateway.admit_connection(client) else { continue };
                let connection =
                    serve_connection(Arc::clone(&worker), Arc::clone(&listener), tcp, peer);
                gateway.tracker.spawn(async move {
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
