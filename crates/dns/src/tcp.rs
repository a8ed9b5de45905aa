//! Queries over connections (RFC 7766): each message behind two bytes with its length.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use spillway_geo::dns::{ClientNetwork, QueryTransport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{Id, JoinSet};
use tokio::time::timeout;

use crate::Served;

/// Maximum number of connections at a time. Few resolvers come by TCP, and each one only for a
/// moment.
const CONNECTIONS_MAX: usize = 256;
/// Maximum number of connections of one network at a time.
const CONNECTIONS_EACH_MAX: u32 = 32;
/// Time limit for the next query of a connection, from the last answer to the query's last byte.
const IDLE: Duration = Duration::from_secs(10);
/// Time limit for a client to read an answer.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// Maximum size of a query in bytes. Real ones are a tenth as long.
const QUERY_BYTES_MAX: usize = 4_096;
/// Pause after a connection could not be accepted: file descriptors may have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts and answers connections for ever.
pub(super) async fn serve(listener: TcpListener, served: &Arc<Served>) -> Infallible {
    let mut open = Open::default();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => open.add(stream, peer, served),
                Err(error) => {
                    tracing::debug!(%error, "a connection to the name server was not accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(ended) = open.tasks.join_next_with_id() => {
                let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                open.remove(id);
            }
        }
        served.count_connections(open.tasks.len());
    }
}

/// Open connections, counted by network.
#[derive(Debug, Default)]
struct Open {
    tasks: JoinSet<()>,
    networks: BTreeMap<Id, ClientNetwork>,
    counts: BTreeMap<ClientNetwork, u32>,
}

impl Open {
    fn add(&mut self, stream: TcpStream, peer: SocketAddr, served: &Arc<Served>) {
        let network = ClientNetwork::of(peer.ip());
        let count = self.counts.entry(network).or_default();
        if self.tasks.len() >= CONNECTIONS_MAX || *count >= CONNECTIONS_EACH_MAX {
            served.count_refused_connection();
            // The entry was made only to look.
            if *count == 0 {
                self.counts.remove(&network);
            }
            return;
        }
        *count += 1;
        let served = Arc::clone(served);
        let task = self.tasks.spawn(async move {
            // The client learns of any end by the closed connection.
            drop(converse(stream, peer, &served).await);
        });
        self.networks.insert(task.id(), network);
    }

    fn remove(&mut self, id: Id) {
        let Some(network) = self.networks.remove(&id) else { return };
        if let Some(count) = self.counts.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&network);
            }
        }
    }
}

/// Answers one query after the other until the client ends, is too slow, or sends something that is
/// no query.
async fn converse(mut stream: TcpStream, peer: SocketAddr, served: &Served) -> io::Result<()> {
    let mut query = Vec::new();
    loop {
        timeout(IDLE, read_message(&mut stream, &mut query)).await??;
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
