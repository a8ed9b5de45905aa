//! One replica's subscription, which is opened again whenever it ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use spillway_resolver::{ConnectionAddress, Resolver};
use spillway_types::{KvEvent, ReplicaName};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use super::wire::read_batch;
use super::zmtp::{Message, Subscription};
use crate::http::connect_tcp;
use crate::pause::{Backoff, rng};

/// Memory of all news in the queue, in KiB.
const QUEUE_KIB: u32 = 8 << 10;
/// Most memory of a message's events, in KiB: by the limits of a batch, while they are read.
const BATCH_KIB: usize = 4 << 10;
/// Most bytes of an event for each byte of its message: a hash of one byte takes eight.
const BYTES_PER_BYTE: usize = 8;
/// Time limit of a connection with its handshake.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// First and longest pause before a connection is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// Publisher of a replica's KV events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvSource {
    /// Name of the replica in news.
    pub replica: ReplicaName,
    /// Source of the host's addresses.
    pub resolver: Resolver,
    /// Host name or address, IPv6 without brackets.
    pub host: String,
    /// Port of the publisher.
    pub port: u16,
}

/// News of a replica's KV events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvNews {
    /// Events, in the order in which the engine published them.
    Events(Vec<KvEvent>),
    /// Events were or may have been missed: everything from earlier ones is out of date.
    Missed(&'static str),
}

impl KvNews {
    /// Returns the memory that it takes, in units of [`KvQueue`].
    fn weight(&self) -> u32 {
        let Self::Events(events) = self else { return 1 };
        let bytes = |event: &KvEvent| {
            size_of::<KvEvent>()
                + match event {
                    KvEvent::Stored(blocks) => size_of_val(&blocks.hashes[..]),
                    KvEvent::Removed { hashes, .. } => size_of_val(&hashes[..]),
                    KvEvent::Cleared => 0,
                }
        };
        let kib = events.iter().map(bytes).sum::<usize>() / 1024 + 1;
        u32::try_from(kib).unwrap_or(u32::MAX).min(QUEUE_KIB)
    }
}

/// News in the queue or just received from it. It keeps its part of the queue's memory until it is
/// dropped.
#[derive(Debug)]
pub struct KvDelivery {
    /// Name of the replica.
    pub replica: ReplicaName,
    /// The news.
    pub news: KvNews,
    _room: OwnedSemaphorePermit,
}

/// Sender of news into one queue, which is limited by its length and by its memory: 8 MiB.
#[derive(Clone, Debug)]
pub struct KvQueue {
    channel: mpsc::Sender<KvDelivery>,
    room: Arc<Semaphore>,
}

impl KvQueue {
    /// Makes a sender into `channel`. Clones share the memory.
    #[must_use]
    pub fn new(channel: mpsc::Sender<KvDelivery>) -> Self {
        Self { channel, room: Arc::new(Semaphore::new(QUEUE_KIB as usize)) }
    }

    /// Waits for room for all that a message of this length may hold. Call it before the message is
    /// read: its events take more memory than it does.
    async fn room(&self, message_bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = (message_bytes * BYTES_PER_BYTE / 1024 + 2).min(BATCH_KIB);
        let kib = u32::try_from(kib).unwrap_or(QUEUE_KIB);
        // It is never closed.
        Arc::clone(&self.room).acquire_many_owned(kib).await.ok()
    }

    /// Sends news, each with its part of `room`; the rest is given back first. Returns false if the
    /// receiver is gone.
    async fn send(
        &self,
        replica: &ReplicaName,
        news: Vec<KvNews>,
        mut room: OwnedSemaphorePermit,
    ) -> bool {
        let mut deliveries = Vec::with_capacity(news.len());
        for news in news {
            let own = (news.weight() as usize).min(room.num_permits());
            // There are as many: the bound is theirs.
            let Some(room) = room.split(own) else { return false };
            deliveries.push(KvDelivery { replica: replica.clone(), news, _room: room });
        }
        drop(room);
        for delivery in deliveries {
            if self.channel.send(delivery).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Follows the KV events of a replica without end. Each item has the name of the replica.
///
/// Waits while `news` has no room: a publisher that is not read drops events and counts them, so no
/// loss stays unnoticed. Ends when the receiver is gone.
pub async fn follow_kv_events(source: KvSource, seed: u64, news: KvQueue) {
    let mut rng = rng(seed, source.replica.as_str());
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    let mut was_told = false;
    loop {
        match timeout(OPEN_TIMEOUT, open(&source)).await {
            Ok(Ok((mut subscription, address))) => {
                backoff.reset();
                was_told = false;
                tracing::info!(replica = %source.replica, "its KV events are read");
                let ended = tokio::select! {
                    ended = read(&source, &mut subscription, &news) => ended,
                    () = address.removed() => {
                        Some(io::Error::other("the replica's name has other addresses"))
                    }
                };
                let Some(error) = ended else { return };
                tracing::info!(replica = %source.replica, %error, "its KV events ended");
                let missed = KvNews::Missed("the connection was lost");
                let Some(room) = news.room(0).await else { return };
                if !news.send(&source.replica, vec![missed], room).await {
                    return;
                }
            }
            failed => {
                let error = match failed {
                    Ok(Err(error)) => error,
                    _ => io::ErrorKind::TimedOut.into(),
                };
                if !was_told {
                    let port = source.port;
                    tracing::warn!(replica = %source.replica, port, %error, "its KV events can't be read");
                }
                was_told = true;
            }
        }
        sleep(backoff.next(&mut rng)).await;
        if news.channel.is_closed() {
            return;
        }
    }
}

async fn open(
    source: &KvSource,
) -> io::Result<(Subscription<tokio::net::TcpStream>, ConnectionAddress)> {
    let connected = connect_tcp(&source.resolver, &source.host, source.port).await;
    let (tcp, address) = connected.map_err(io::Error::other)?;
    Ok((Subscription::open(tcp).await?, address))
}

/// Hands events over until the connection fails, and returns why; `None` if the receiver is gone.
async fn read(
    source: &KvSource,
    subscription: &mut Subscription<tokio::net::TcpStream>,
    news: &KvQueue,
) -> Option<io::Error> {
    let mut sequence = Sequence::default();
    loop {
        let message = match subscription.next().await {
            Ok(message) => message,
            Err(error) => return Some(error),
        };
        let room = news.room(message.iter().map(|frame| frame.len()).sum()).await?;
        let items = sequence.read(&message).collect();
        drop(message);
        if !news.send(&source.replica, items, room).await {
            return None;
        }
    }
}

/// Numbers of a publisher's messages, which rise by one.
#[derive(Debug, Default)]
struct Sequence {
    next: Option<u64>,
}

impl Sequence {
    /// Reads a message. One that is not as it should be counts as missed.
    fn read(&mut self, message: &Message) -> impl Iterator<Item = KvNews> + use<> {
        let number = match &message[..] {
            [_topic, number, _events] => number.as_ref().try_into().ok().map(u64::from_be_bytes),
            _ => None,
        };
        let is_gap = self.next.is_some() && number.is_some() && self.next != number;
        let events = number.and_then(|_| read_batch(message.get(2)?).ok());
        self.next = number.map(|number| number.wrapping_add(1)).or(self.next);
        let missed = match &events {
            None => Some("a message was malformed"),
            Some(_) if is_gap => Some("the publisher left messages out"),
            Some(_) => None,
        };
        let events = events.filter(|events| !events.is_empty()).map(KvNews::Events);
        missed.map(KvNews::Missed).into_iter().chain(events)
    }
}

#[cfg(test)]
#[path = "follow_test.rs"]
mod tests;
