//! Queries over connections (RFC 7766): each message behind two bytes with its length.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use spillway_geo::dns::{ClientNetwork, QueryTransport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::NameServerState;
use crate::tcp_slots::{LastUse, TcpSlots};

/// Time limit for the next query of a connection, from the last answer to the query's last byte.
const IDLE: Duration = Duration::from_secs(10);
/// Time limit for a client to read an answer.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// Maximum size of a query in bytes. Real ones are a tenth as long.
const QUERY_BYTES_MAX: usize = 4_096;
/// Pause after a connection could not be accepted: file descriptors may have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts and answers connections forever.
pub(super) async fn serve(listener: TcpListener, served: &Arc<NameServerState>) -> Infallible {
    let mut tasks = JoinSet::new();
    let mut slots = TcpSlots::default();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let network = ClientNetwork::of(peer.ip());
                    let open = |used| {
                        let served = Arc::clone(served);
                        tasks.spawn(async move {
                            // The client learns of any end by the closed connection.
                            drop(converse(stream, peer, used, &served).await);
                        })
                    };
                    match slots.add(network, open) {
                        None => served.count_refused_connection(),
                        Some(None) => {}
                        Some(Some(most_idle)) => most_idle.abort(),
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection to the name server was not accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(ended) = tasks.join_next_with_id() => {
                let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                slots.remove(|task: &AbortHandle| task.id() == id);
            }
        }
        served.count_connections(slots.len());
    }
}

/// Answers one query after the other until the client ends, is too slow, or sends something that is
/// no query.
async fn converse(
    mut stream: TcpStream,
    peer: SocketAddr,
    used: LastUse,
    served: &NameServerState,
) -> io::Result<()> {
    let mut query = Vec::new();
    loop {
        timeout(IDLE, read_message(&mut stream, &mut query)).await??;
        used.renew();
        let answer = served.answer(&query, peer.ip().to_canonical(), QueryTransport::Tcp);
        // A message that gets no answer ends the connection.
        let Some(answer) = answer else { return Ok(()) };
        let Ok(length) = u16::try_from(answer.len()) else { return Ok(()) };
        // In one piece: some resolvers can't read a length that comes alone.
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        timeout(WRITE_LIMIT, stream.write_all(&framed)).await??;
    }
}

async fn read_message(stream: &mut TcpStream, message: &mut Vec<u8>) -> io::Result<()> {
    let length = usize::from(stream.read_u16().await?);
    if length > QUERY_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    message.resize(length, 0);
    stream.read_exact(message).await?;
    Ok(())
}
