//! KV events as vLLM publishes them: over ZeroMQ, as far as one subscriber of everything needs it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use spillway_engine::{CacheChange, RequestId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Number of messages that a slow subscriber can be behind; older ones are left out, which shows in
/// their numbers.
const BEHIND_MAX: usize = 4_096;
/// Greeting of ZMTP 3.0 without security, without its final zeros.
const GREETING: &[u8] = b"\xff\0\0\0\0\0\0\0\0\x7f\x03\0NULL";
const GREETING_BYTES: usize = 64;
const READY: &[u8] = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB";

/// Publisher of one replica. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct KvPublisher(Arc<Mutex<Messages>>);

#[derive(Debug)]
struct Messages {
    sender: broadcast::Sender<Bytes>,
    next: u64,
    events: u64,
}

/// One event, with the fields of vLLM that a gateway reads.
#[derive(Debug, Serialize)]
#[serde(tag = "type")]
enum Event<'a> {
    BlockStored {
        block_hashes: [u64; 1],
        parent_block_hash: Option<u64>,
        token_ids: Vec<u32>,
        block_size: u32,
        medium: &'static str,
        group_idx: u32,
        session_id: Option<&'a str>,
    },
    BlockRemoved {
        block_hashes: [u64; 1],
        medium: &'static str,
        group_idx: u32,
    },
}

impl KvPublisher {
    /// Creates a publisher without subscribers.
    pub(crate) fn new() -> Self {
        let (sender, _) = broadcast::channel(BEHIND_MAX);
        Self(Arc::new(Mutex::new(Messages { sender, next: 0, events: 0 })))
    }

    /// Accepts subscribers until `stop`. Returns the address.
    pub(crate) async fn listen(
        &self,
        address: SocketAddr,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (publisher, each) = (self.clone(), tasks.clone());
        tasks.spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let messages = publisher.messages().sender.subscribe();
                each.spawn(stop.clone().run_until_cancelled_owned(serve(stream, messages)));
            }
        }));
        Ok(address)
    }

    /// Publishes changes of the cache as one message. `session_of` names the ids of requests.
    pub(crate) fn publish<'a>(
        &self,
        changes: &[CacheChange],
        block_tokens: u32,
        session_of: impl Fn(RequestId) -> Option<&'a str>,
    ) {
        if changes.is_empty() {
            return;
        }
        let event = |change: &CacheChange| match *change {
            CacheChange::Stored { request, block, parent } => Event::BlockStored {
                block_hashes: [block],
                parent_block_hash: parent,
                token_ids: vec![0; block_tokens as usize],
                block_size: block_tokens,
                medium: "GPU",
                group_idx: 0,
                session_id: session_of(request),
            },
            CacheChange::Removed { block } => {
                Event::BlockRemoved { block_hashes: [block], medium: "GPU", group_idx: 0 }
            }
        };
        let events: Vec<Event<'_>> = changes.iter().map(event).collect();
        let Ok(payload) = rmp_serde::to_vec_named(&(0.0, events, 0)) else {
            return tracing::error!("KV events could not be encoded");
        };
        let mut messages = self.messages();
        let mut message = vec![1, 0, 1, 8];
        message.extend(messages.next.to_be_bytes());
        message.push(2);
        message.extend((payload.len() as u64).to_be_bytes());
        message.extend(payload);
        messages.next += 1;
        messages.events += changes.len() as u64;
        // Fails without subscribers.
        messages.sender.send(message.into()).unwrap_or_default();
    }

    /// Returns the number of subscribers, and of events since the start.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let messages = self.messages();
        (messages.sender.receiver_count(), messages.events)
    }

    /// Ends all connections and restarts the counts, like a process that was started again.
    pub(crate) fn restart(&self) {
        let (sender, _) = broadcast::channel(BEHIND_MAX);
        *self.messages() = Messages { sender, next: 0, events: 0 };
    }

    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(stream: TcpStream, messages: broadcast::Receiver<Bytes>) {
    if let Err(error) = send_all(stream, messages).await {
        tracing::debug!(%error, "a subscriber of KV events is gone");
    }
}

async fn send_all(
    mut stream: TcpStream,
    mut messages: broadcast::Receiver<Bytes>,
) -> io::Result<()> {
    let mut greeting = [0; GREETING_BYTES];
    greeting[..GREETING.len()].copy_from_slice(GREETING);
    stream.write_all(&greeting).await?;
    stream.read_exact(&mut [0; GREETING_BYTES]).await?;
    stream.write_all(READY).await?;
    // The other side's READY, and its subscription.
    for _ in 0..2 {
        let mut head = [0; 2];
        stream.read_exact(&mut head).await?;
        stream.read_exact(&mut vec![0; usize::from(head[1])]).await?;
    }
    let mut rest = [0; 64];
    loop {
        tokio::select! {
            message = messages.recv() => match message {
                Ok(message) => stream.write_all(&message).await?,
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            },
            read = stream.read(&mut rest) => if read? == 0 { return Ok(()) },
        }
    }
}
