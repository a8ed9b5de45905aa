//! One replica's subscription, which is opened again whenever it ends.

use std::io;
use std::time::Duration;

use spillway_types::{KvEvent, ReplicaName};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::wire::read_batch;
use super::zmtp::{Message, Subscription};
use crate::http::connect_tcp;
use crate::pause::{Backoff, rng};

/// Time limit of a connection with its handshake.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// First and longest pause before a connection is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// Publisher of a replica's KV events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvSource {
    /// Name of the replica in news.
    pub replica: ReplicaName,
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
    /// Events were or may have been missed: all that the earlier ones told is out of date.
    Missed(&'static str),
}

/// Follows the KV events of a replica, for ever. Each item has the name of the replica.
///
/// Waits while `news` has no room: a publisher that is not read drops events and counts them, so
/// nothing goes by unnoticed. Ends when nobody receives any more.
pub async fn follow_kv_events(
    source: KvSource,
    seed: u64,
    news: mpsc::Sender<(ReplicaName, KvNews)>,
) {
    let mut rng = rng(seed, source.replica.as_str());
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    let mut was_told = false;
    loop {
        match timeout(OPEN_TIMEOUT, open(&source)).await {
            Ok(Ok(mut subscription)) => {
                backoff.reset();
                was_told = false;
                tracing::info!(replica = %source.replica, "its KV events are read");
                let Some(error) = read(&source, &mut subscription, &news).await else { return };
                tracing::info!(replica = %source.replica, %error, "its KV events ended");
                let missed = KvNews::Missed("the connection was lost");
                if news.send((source.replica.clone(), missed)).await.is_err() {
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
        if news.is_closed() {
            return;
        }
    }
}

async fn open(source: &KvSource) -> io::Result<Subscription<tokio::net::TcpStream>> {
    let tcp = connect_tcp(&source.host, source.port).await;
    Subscription::open(tcp.map_err(io::Error::other)?).await
}

/// Hands events over until the connection fails, and returns why; `None` if nobody receives them.
async fn read(
    source: &KvSource,
    subscription: &mut Subscription<tokio::net::TcpStream>,
    news: &mpsc::Sender<(ReplicaName, KvNews)>,
) -> Option<io::Error> {
    let mut sequence = Sequence::default();
    loop {
        let message = match subscription.next().await {
            Ok(message) => message,
            Err(error) => return Some(error),
        };
        for item in sequence.read(&message) {
            if news.send((source.replica.clone(), item)).await.is_err() {
                return None;
            }
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
