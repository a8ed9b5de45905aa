//! Backpressure: a reader that stops stops the writer; small requests go before bulk.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full};
use tokio::sync::mpsc;

use super::world::{World, accept, boxed, echo, pattern, until};
use crate::delayed::Path;
use crate::{BoxError, ForwardAnswer, ForwardBody, ForwardHead, PeerRoom};

/// Body of the frames that are sent into a channel.
pub(super) struct ChannelBody(pub(super) mpsc::Receiver<Bytes>);

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(context).map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

/// Body without end that counts the bytes taken from it.
struct Endless(Arc<AtomicU64>);

impl Body for Endless {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.fetch_add(64 << 10, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; 64 << 10])))))
    }
}

fn head() -> ForwardHead {
    ForwardHead::new(Method::POST, "/".parse().unwrap())
}

fn reply(answer: ForwardAnswer) -> http::Response<ForwardBody> {
    match answer {
        ForwardAnswer::Reply(reply) => reply,
        ForwardAnswer::Refused(refused) => panic!("refused: {refused:?}"),
    }
}

/// Waits until `count` stands still; returns its value.
async fn standstill(count: &AtomicU64) -> u64 {
    let mut last = (count.load(Ordering::Relaxed), Instant::now());
    until("it stands still", || {
        let now = count.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        }
        now > 0 && last.1.elapsed() > Duration::from_millis(300)
    })
    .await;
    last.0
}

/// Bytes of a stream's window, and of one write beyond it.
const WINDOW: u64 = (3 << 20) + (128 << 10);

#[tokio::test]
async fn a_reply_that_nobody_reads_stops_its_writer() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let made = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&made);
    b.react(move |_, _| {
        let body = boxed(Endless(Arc::clone(&counter)));
        accept(async { Ok(http::Response::new(body)) })
    });
    let answer = a.link.forward(b.node(), head(), Empty::new(), PeerRoom::Unknown).await.unwrap();
    let mut body = reply(answer).into_body();
    let stood = standstill(&made).await;
    assert!((1 << 20..=WINDOW).contains(&stood), "{stood} bytes were made");
    let mut read = 0;
    while read < 8 << 20 {
        read += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
    }
    let stood = standstill(&made).await;
    assert!((8 << 20..=read as u64 + WINDOW).contains(&stood), "{stood} bytes were made");
}

#[tokio::test]
async fn a_request_that_nobody_reads_stops_its_writer_and_no_other_request() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let made = Arc::new(AtomicU64::new(0));
    b.react(|_, body| {
        accept(async move {
            let held: BoxError = Box::from("held");
            // The body is held and never read.
            std::future::pending::<()>().await;
            drop(body);
            Err(held)
        })
    });
    let body = Endless(Arc::clone(&made));
    let stuck = a.link.forward(b.node(), head(), body, PeerRoom::Unknown);
    let others = async {
        let stood = standstill(&made).await;
        assert!((1 << 20..=WINDOW).contains(&stood), "{stood} bytes were made");
        b.react(|head, body| accept(echo(head, body)));
        let sent = pattern(1 << 20);
        let answer = a.link.forward(b.node(), head(), Full::new(sent.clone()), PeerRoom::Unknown);
        let back = reply(answer.await.unwrap()).into_body().collect().await.unwrap();
        assert_eq!(back.to_bytes(), sent);
    };
    tokio::select! {
        _ = stuck => panic!("it can't end"),
        () = others => {}
    }
}

/// Many replies that are not read don't stop the others before the connection's window is full.
#[tokio::test]
async fn ten_stuck_replies_leave_room_for_others() {
    let world = World::new();
    let (a, b) = world.pair().await;
    b.react(|_, _| {
        let body = boxed(Endless(Arc::default()));
        accept(async { Ok(http::Response::new(body)) })
    });
    let mut stuck = Vec::new();
    for _ in 0..10 {
        let answer =
            a.link.forward(b.node(), head(), Empty::new(), PeerRoom::Unknown).await.unwrap();
        stuck.push(reply(answer));
    }
    b.react(|head, body| accept(echo(head, body)));
    let sent = pattern(256 << 10);
    let answer = a.link.forward(b.node(), head(), Full::new(sent.clone()), PeerRoom::Likely);
    let back = reply(answer.await.unwrap()).into_body().collect().await.unwrap();
    assert_eq!(back.to_bytes(), sent);
    assert_eq!(a.link.status().streams, 10, "the stuck ones are still open");
}

/// On a narrow path a small reply does not queue behind a large one.
#[tokio::test]
async fn a_small_reply_overtakes_bulk() {
    let world = World::new();
    let way = Path {
        bits_per_s: Some(40_000_000),
        queue_bytes: 128 << 10,
        ..Path::of(Duration::from_millis(5))
    };
    let (a, b) = world.distant_pair(way).await;
    let big = pattern(16 << 20);
    b.react(move |head, body| {
        if head.uri.path() == "/bulk" {
            let body = boxed(Full::new(big.clone()));
            return accept(async { Ok(http::Response::new(body)) });
        }
        accept(echo(head, body))
    });
    let bulk_head = ForwardHead::new(Method::GET, "/bulk".parse().unwrap());
    let answer =
        a.link.forward(b.node(), bulk_head, Empty::new(), PeerRoom::Unknown).await.unwrap();
    let mut bulk = reply(answer).into_body();
    let reading = async {
        while let Some(frame) = bulk.frame().await {
            frame.unwrap();
        }
    };
    let small = async {
        let mut times = Vec::new();
        for _ in 0..20 {
            let begin = Instant::now();
            let body = Full::new(pattern(1 << 10));
            let answer = a.link.forward(b.node(), head(), body, PeerRoom::Unknown).await.unwrap();
            reply(answer).into_body().collect().await.unwrap();
            times.push(begin.elapsed());
        }
        times.sort();
        times
    };
    let times = tokio::select! {
        () = reading => panic!("bulk was done before twenty small ones"),
        times = small => times,
    };
    // Behind all of the bulk the reply would take 3 s, behind a window of it half a second.
    assert!(times[10] < Duration::from_millis(300), "{times:?}");
}
