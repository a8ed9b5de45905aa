//! Streams that are not forwarded requests.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spillway_codec::{HEADER_BYTES, Wire};
use tokio::sync::mpsc;

use super::world::{PATIENCE, TestNode, World, pattern};
use crate::delayed::Path;
use crate::{
    Identity, OpenError, Served, StreamError, StreamHandler, StreamReceiver, StreamSender,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Word {
    number: u64,
    text: String,
}

impl Wire for Word {
    const KIND: u16 = 0x7f20;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 4_096;
}

fn word(number: u64) -> Word {
    Word { number, text: "x".repeat(usize::try_from(number % 3_000).unwrap()) }
}

/// Handler that sends messages back, reports how serving ended, and hands on bulk.
struct Echo {
    ended: mpsc::Sender<Result<(), StreamError>>,
    bulk: mpsc::Sender<(Identity, Result<bytes::Bytes, StreamError>)>,
}

impl StreamHandler for Echo {
    fn control(&self, _from: Identity, streams: (StreamSender, StreamReceiver)) -> Served {
        let ended = self.ended.clone();
        Box::pin(async move { drop(ended.send(echo(streams).await).await) })
    }

    fn bulk(&self, from: Identity, mut receiver: StreamReceiver) -> Served {
        let bulk = self.bulk.clone();
        Box::pin(async move { drop(bulk.send((from, receiver.exactly(3 << 20).await)).await) })
    }
}

async fn echo(
    (mut sender, mut receiver): (StreamSender, StreamReceiver),
) -> Result<(), StreamError> {
    while let Some(word) = receiver.message::<Word>().await? {
        sender.message(&word).await?;
    }
    sender.finish();
    Ok(())
}

type Ended = mpsc::Receiver<Result<(), StreamError>>;
type Bulk = mpsc::Receiver<(Identity, Result<bytes::Bytes, StreamError>)>;

fn serve(node: &TestNode) -> (Ended, Bulk) {
    let (ended, ends) = mpsc::channel(16);
    let (bulk, bulks) = mpsc::channel(16);
    node.link.serve_streams(Some(Arc::new(Echo { ended, bulk })));
    (ends, bulks)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

#[tokio::test]
async fn words_come_back_in_order_and_the_end_is_an_end() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let (mut ended, _bulk) = serve(&b);
    let (mut sender, mut receiver) = a.link.open_control(b.node()).unwrap();
    let said = async {
        for number in 0..500 {
            sender.message(&word(number)).await.unwrap();
        }
        sender.finish();
    };
    let heard = async {
        for number in 0..500 {
            assert_eq!(receiver.message::<Word>().await.unwrap(), Some(word(number)));
        }
        assert_eq!(receiver.message::<Word>().await.unwrap(), None);
    };
    within(async { tokio::join!(said, heard) }).await;
    assert!(within(ended.recv()).await.unwrap().is_ok());
}

#[tokio::test]
async fn many_words_are_under_way_at_a_time() {
    let world = World::new();
    let (a, b) = world.distant_pair(Path::of(Duration::from_millis(50))).await;
    let _kept = serve(&b);
    let (mut sender, mut receiver) = a.link.open_control(b.node()).unwrap();
    let begin = std::time::Instant::now();
    for number in 0..100 {
        sender.message(&word(number)).await.unwrap();
    }
    for number in 0..100 {
        assert_eq!(within(receiver.message::<Word>()).await.unwrap(), Some(word(number)));
    }
    // One message after the other would take a hundred round trips.
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_half_that_is_dropped_is_no_end() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let (mut ended, _bulk) = serve(&b);
    let (mut sender, _receiver) = a.link.open_control(b.node()).unwrap();
    sender.message(&word(1)).await.unwrap();
    drop(sender);
    let fault = within(ended.recv()).await.unwrap().unwrap_err();
    assert!(matches!(fault, StreamError::GivenUp(_)), "{fault:?}");
}

#[tokio::test]
async fn a_message_in_pieces_or_none_at_all_is_told_apart() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let (mut ended, _bulk) = serve(&b);
    let frame = spillway_codec::encode(&word(2_000)).unwrap();
    let mut flipped = frame.to_vec();
    flipped[HEADER_BYTES + 9] ^= 1;
    for (bytes, whole) in [(frame.to_vec(), true), (frame[..40].to_vec(), false), (flipped, false)]
    {
        let (mut sender, _receiver) = a.link.open_control(b.node()).unwrap();
        for piece in bytes.chunks(7) {
            let mut piece = bytes::Bytes::copy_from_slice(piece);
            while !piece.is_empty() {
                sender.some(&mut piece).await.unwrap();
            }
        }
        sender.finish();
        assert_eq!(within(ended.recv()).await.unwrap().is_ok(), whole);
    }
}

#[tokio::test]
async fn bulk_arrives_whole_and_says_from_whom() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let (_ended, mut bulk) = serve(&b);
    let sent = pattern(3 << 20);
    let mut sender = a.link.open_bulk(b.node()).unwrap();
    let mut left = sent.clone();
    while !left.is_empty() {
        sender.some(&mut left).await.unwrap();
    }
    sender.finish();
    let (from, heard) = within(bulk.recv()).await.unwrap();
    assert_eq!((from, heard.unwrap()), (a.me.clone(), sent));
}

#[tokio::test]
async fn without_a_connection_nothing_is_opened() {
    let world = World::new();
    let (a, b) = (world.start("eu", "a"), world.start("us", "b"));
    assert_eq!(a.link.open_control(b.node()).unwrap_err(), OpenError::NotConnected);
    assert_eq!(a.link.open_bulk(b.node()).unwrap_err(), OpenError::NotConnected);
}

#[tokio::test]
async fn more_streams_than_allowed_are_not_waited_for() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let _kept = serve(&b);
    let mut open = Vec::new();
    loop {
        match a.link.open_control(b.node()) {
            Ok(streams) => open.push(streams),
            Err(fault) => {
                assert_eq!(fault, OpenError::Saturated);
                break;
            }
        }
    }
    // The accepting side learns the kind of a connection only after it has allowed as many streams
    // as on one for requests.
    let most = crate::Transport::default().streams_max as usize;
    assert!(open.len() >= crate::rpc::CONTROL_STREAMS_MAX as usize && open.len() <= most);
}
