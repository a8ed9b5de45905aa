//! Requests that are given up, on either side and at every point.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use tokio::sync::mpsc;

use super::pressure_test::ChannelBody;
use super::world::{World, accept, boxed, pattern, refuse, until};
use crate::{
    BodyError, BoxError, ForwardAnswer, ForwardBody, ForwardError, ForwardHead, ForwardStage,
    PeerRoom, Refused, RefusedReason, StreamCode,
};

fn head() -> ForwardHead {
    ForwardHead::new(Method::POST, "/".parse().unwrap())
}

fn reply(answer: ForwardAnswer) -> http::Response<ForwardBody> {
    match answer {
        ForwardAnswer::Reply(reply) => reply,
        ForwardAnswer::Refused(refused) => panic!("refused: {refused:?}"),
    }
}

/// Guard that counts its drop.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Work without end that holds a guard.
async fn never<T>(held: impl Send) -> T {
    let _held = held;
    std::future::pending().await
}

/// Body that fails on demand.
struct FallibleBody(mpsc::Receiver<Result<Bytes, BoxError>>);

impl Body for FallibleBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(context).map(|data| data.map(|data| data.map(Frame::data)))
    }
}

fn failing() -> BoxError {
    "failing on purpose".into()
}

#[tokio::test]
async fn a_refusal_comes_with_its_reason_and_a_long_body_is_never_sent() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let refused = Refused { reason: RefusedReason::Reserved, wait_ms: Some(250) };
    b.react(move |_, _| refuse(refused));
    let polled = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&polled);
    let frames = futures_util::stream::poll_fn(move |_| {
        seen.store(true, Ordering::SeqCst);
        Poll::Ready(None::<Result<Frame<Bytes>, BoxError>>)
    });
    let answer = a.link.forward(b.node(), head(), StreamBody::new(frames), PeerRoom::Unknown).await;
    assert!(matches!(answer.unwrap(), ForwardAnswer::Refused(found) if found == refused));
    assert!(!polled.load(Ordering::SeqCst), "a body of unknown length waits");
    let eager =
        a.link.forward(b.node(), head(), Full::new(pattern(64 << 10)), PeerRoom::Unknown).await;
    assert!(matches!(eager.unwrap(), ForwardAnswer::Refused(found) if found == refused));
    let totals = (a.link.status().totals, b.link.status().totals);
    assert_eq!((totals.0.forward_refused, totals.1.refused), (2, 2));
    until("nothing is left open", || a.link.status().streams + b.link.status().streams == 0).await;
}

#[tokio::test]
async fn a_request_future_that_is_dropped_drops_the_work_at_the_peer() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let (started, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for decides in [false, true] {
        let (begun, guard) = (Arc::clone(&started), Arc::clone(&dropped));
        b.react(move |_, body| {
            let guard = Dropped(Arc::clone(&guard));
            begun.fetch_add(1, Ordering::SeqCst);
            let held = (guard, body);
            if decides { Box::pin(never(held)) } else { accept(never(held)) }
        });
        let before = started.load(Ordering::SeqCst);
        let body = Full::new(pattern(1_000));
        let request = a.link.forward(b.node(), head(), body, PeerRoom::Unknown);
        tokio::select! {
            _ = request => panic!("it can't end"),
            () = until("it is worked on", || started.load(Ordering::SeqCst) > before) => {}
        }
        until("the work is dropped", || dropped.load(Ordering::SeqCst) > before).await;
    }
    until("it is counted", || b.link.status().totals.given_up == 2).await;
    until("nothing is left open", || a.link.status().streams + b.link.status().streams == 0).await;
}

#[tokio::test]
async fn a_reply_that_is_dropped_drops_the_body_at_the_peer() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let (sender, receiver) = mpsc::channel(1);
    let receiver = std::sync::Mutex::new(Some(receiver));
    b.react(move |_, _| {
        let body = boxed(ChannelBody(receiver.lock().unwrap().take().unwrap()));
        accept(async { Ok(http::Response::new(body)) })
    });
    sender.send(Bytes::from_static(b"token")).await.unwrap();
    let answer = a.link.forward(b.node(), head(), Empty::new(), PeerRoom::Unknown).await.unwrap();
    let mut body = reply(answer).into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "token");
    drop(body);
    tokio::time::timeout(Duration::from_secs(5), sender.closed()).await.expect("dropped at once");
    until("nothing is left open", || a.link.status().streams + b.link.status().streams == 0).await;
}

#[tokio::test]
async fn a_reply_that_is_dropped_stops_the_request_that_is_still_sent() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let (fault, mut faults) = mpsc::channel(1);
    b.react(move |_, mut body| {
        let fault = fault.clone();
        // The reply begins at once; the reader of the request sees how the request ends.
        let (sender, receiver) = mpsc::channel(1);
        let reading = async move {
            while let Some(frame) = body.frame().await {
                if let Err(found) = frame {
                    fault.send(found).await.unwrap();
                }
            }
            drop(sender);
        };
        #[expect(clippy::disallowed_methods, reason = "it ends with the request")]
        drop(tokio::spawn(reading));
        accept(async { Ok(http::Response::new(boxed(ChannelBody(receiver)))) })
    });
    let (sender, receiver) = mpsc::channel(1);
    let body = ChannelBody(receiver);
    let answer = a.link.forward(b.node(), head(), body, PeerRoom::Likely).await.unwrap();
    sender.send(Bytes::from_static(b"part")).await.unwrap();
    drop(reply(answer));
    let fault = tokio::time::timeout(Duration::from_secs(5), faults.recv()).await.unwrap().unwrap();
    assert!(matches!(fault, BodyError::Reset(StreamCode::Cancelled)), "{fault:?}");
    tokio::time::timeout(Duration::from_secs(5), sender.closed()).await.expect("dropped at once");
}

#[tokio::test]
async fn a_peer_whose_handler_fails_says_so_and_never_ends_a_reply_properly() {
    let world = World::new();
    let (a, b) = world.pair().await;
    b.react(|_, _| accept(async { Err(failing()) }));
    let failed = a.link.forward(b.node(), head(), Empty::new(), PeerRoom::Unknown).await;
    // The reset may overtake the answer that was being sent.
    assert!(matches!(failed, Err(ForwardError::Reset(StreamCode::Internal, _))), "{failed:?}");
    let (sender, receiver) = mpsc::channel(1);
    let receiver = std::sync::Mutex::new(Some(receiver));
    b.react(move |_, _| {
        let body = boxed(FallibleBody(receiver.lock().unwrap().take().unwrap()));
        accept(async { Ok(http::Response::new(body)) })
    });
    let answer = a.link.forward(b.node(), head(), Empty::new(), PeerRoom::Unknown).await.unwrap();
    let mut body = reply(answer).into_body();
    sender.send(Ok(Bytes::from_static(b"half"))).await.unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    sender.send(Err(failing())).await.unwrap();
    let failed = body.frame().await;
    assert!(matches!(failed, Some(Err(BodyError::Reset(StreamCode::Internal)))), "{failed:?}");
    assert!(body.frame().await.is_none(), "an error is the last that comes");
    until("it is counted", || b.link.status().totals.failed == 2).await;
}

#[tokio::test]
async fn a_peer_whose_handler_panics_gives_the_request_up() {
    let world = World::new();
    let (a, b) = world.pair().await;
    b.react(|_, _| accept(async { panic!("on purpose") }));
    let failed = a.link.forward(b.node(), head(), Empty::new(), PeerRoom::Unknown).await;
    assert!(matches!(failed, Err(ForwardError::Reset(StreamCode::Internal, _))), "{failed:?}");
    b.react(|head, body| accept(super::world::echo(head, body)));
    let answer = a.link.forward(b.node(), head(), Full::new(pattern(10)), PeerRoom::Unknown).await;
    assert_eq!(reply(answer.unwrap()).into_body().collect().await.unwrap().to_bytes(), pattern(10));
}

#[tokio::test]
async fn a_request_whose_body_fails_is_an_error_on_both_sides() {
    let world = World::new();
    let (a, b) = world.pair().await;
    b.react(|_, body| {
        accept(async move {
            // The network decides if the handler first sees the failed body or is dropped.
            let collected = body.collect().await;
            assert!(matches!(collected, Err(BodyError::Reset(StreamCode::Internal))));
            std::future::pending().await
        })
    });
    let (sender, receiver) = mpsc::channel(1);
    let body = FallibleBody(receiver);
    let failing_request = a.link.forward(b.node(), head(), body, PeerRoom::Likely);
    let feeding = async {
        sender.send(Ok(Bytes::from_static(b"half"))).await.unwrap();
        until("it is there", || b.link.status().totals.received == 1).await;
        sender.send(Err(failing())).await.unwrap();
    };
    let (failed, ()) = tokio::join!(failing_request, feeding);
    assert!(matches!(failed, Err(ForwardError::Body(_))), "{failed:?}");
    until("the work is dropped", || b.link.status().totals.given_up == 1).await;
    until("nothing is left open", || a.link.status().streams + b.link.status().streams == 0).await;
}

#[tokio::test]
async fn a_body_that_fails_beside_the_reply_is_an_error_at_the_peer() {
    let world = World::new();
    let (a, b) = world.pair().await;
    // The reply is the body of the request.
    b.react(|head, body| accept(super::world::echo(head, body)));
    let (sender, receiver) = mpsc::channel(1);
    let answer = a.link.forward(b.node(), head(), FallibleBody(receiver), PeerRoom::Likely);
    let mut body = reply(answer.await.unwrap()).into_body();
    sender.send(Ok(Bytes::from_static(b"half"))).await.unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    sender.send(Err(failing())).await.unwrap();
    let failed = tokio::time::timeout(Duration::from_secs(5), body.frame()).await.unwrap();
    assert!(matches!(failed, Some(Err(BodyError::Reset(StreamCode::Internal)))), "{failed:?}");
    until("nothing is left open", || b.link.status().streams == 0).await;
    assert_eq!(b.link.status().totals.failed, 1);
}

#[tokio::test]
async fn a_deadline_ends_waiting_on_both_sides() {
    let world = World::new();
    let (a, b) = world.pair().await;
    for (accepts, stage) in [(true, ForwardStage::Accepted), (false, ForwardStage::Undecided)] {
        let dropped = Arc::new(AtomicUsize::new(0));
        let guard = Arc::clone(&dropped);
        b.react(move |_, _| {
            let guard = Dropped(Arc::clone(&guard));
            if accepts { accept(never(guard)) } else { Box::pin(never(guard)) }
        });
        let mut head = head();
        head.deadline_ms = Some(1_000);
        let begin = Instant::now();
        let failed = a.link.forward(b.node(), head, Empty::new(), PeerRoom::Unknown).await;
        assert!(matches!(failed, Err(ForwardError::Deadline(found)) if found == stage));
        assert!(begin.elapsed() >= Duration::from_secs(1));
        until("the work is dropped", || dropped.load(Ordering::SeqCst) == 1).await;
    }
}

#[tokio::test]
async fn a_peer_that_does_not_decide_is_given_up() {
    let world = World::new();
    let mut config = world.config("eu", "a");
    config.limits.word_wait_ms = 100;
    let (a, b) = (super::world::TestNode::start(config), world.start("us", "b"));
    super::world::meet(&a, &b);
    a.connected(&b).await;
    b.react(|_, _| Box::pin(std::future::pending()));
    let failed = a.link.forward(b.node(), head(), Empty::new(), PeerRoom::Unknown).await;
    assert!(matches!(failed, Err(ForwardError::NoWord)), "{failed:?}");
    until("it is counted", || b.link.status().totals.given_up == 1).await;
}

#[tokio::test]
async fn more_requests_than_the_peer_allows_are_turned_away_at_once() {
    let world = World::new();
    let mut config = world.config("us", "b");
    config.transport.streams_max = 2;
    let (a, b) = (world.start("eu", "a"), super::world::TestNode::start(config));
    super::world::meet(&a, &b);
    a.connected(&b).await;
    b.react(|_, _| accept(std::future::pending()));
    let open = || Box::pin(a.link.forward(b.node(), head(), Empty::new(), PeerRoom::Unknown));
    let (mut one, mut two) = (open(), open());
    tokio::select! {
        _ = &mut one => panic!("it can't end"),
        _ = &mut two => panic!("it can't end"),
        () = until("both are there", || b.link.status().totals.received == 2) => {}
    }
    let third = open().await;
    assert!(matches!(third, Err(ForwardError::Saturated)), "{third:?}");
    drop(one);
    // The stream is free once the peer has reported this, which a request does not wait for.
    let again = async {
        while let Err(ForwardError::Saturated) = open().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = again => panic!("it can't end"),
        () = until("it is there", || b.link.status().totals.received == 3) => {}
    }
}

#[tokio::test]
async fn a_head_that_no_peer_takes_is_not_sent() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let mut long = head();
    long.prefix = vec![1; 20_000];
    let failed = a.link.forward(b.node(), long, Empty::new(), PeerRoom::Unknown).await;
    assert!(matches!(&failed, Err(ForwardError::Head(_))), "{failed:?}");
    assert_eq!(failed.unwrap_err().stage(), ForwardStage::NotSent);
    let mut long = head();
    long.tenant = Some("x".repeat(300 << 10));
    let failed = a.link.forward(b.node(), long, Empty::new(), PeerRoom::Unknown).await;
    assert!(matches!(failed, Err(ForwardError::Head(_))), "{failed:?}");
    assert_eq!(b.link.status().totals.received, 0);
}

#[tokio::test]
async fn a_link_that_ends_lets_requests_finish_and_then_cuts_off_the_rest() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let (sender, receiver) = mpsc::channel(1);
    let receiver = std::sync::Mutex::new(Some(receiver));
    b.react(move |_, _| {
        let Some(receiver) = receiver.lock().unwrap().take() else {
            return accept(std::future::pending());
        };
        accept(async { Ok(http::Response::new(boxed(ChannelBody(receiver)))) })
    });
    let answer = a.link.forward(b.node(), head(), Empty::new(), PeerRoom::Unknown).await.unwrap();
    let body = reply(answer).into_body();
    let ending = b.link.shutdown(Duration::from_secs(20));
    let finishing = async {
        sender.send(pattern(200_000)).await.unwrap();
        drop(sender);
        body.collect().await.unwrap().to_bytes()
    };
    let begin = Instant::now();
    let ((), whole) = tokio::join!(ending, finishing);
    assert_eq!(whole, pattern(200_000));
    assert!(begin.elapsed() < Duration::from_secs(10), "it does not wait for its limit");
    until("the peer knows", || !a.link.peers()[0].is_connected()).await;

    let c = world.start("us", "c");
    super::world::meet(&a, &c);
    a.connected(&c).await;
    c.react(|_, _| accept(std::future::pending()));
    let stuck = a.link.forward(c.node(), head(), Empty::new(), PeerRoom::Unknown);
    let ending = async {
        until("it is there", || c.link.status().totals.received == 1).await;
        c.link.shutdown(Duration::from_millis(100)).await;
    };
    let (stuck, ()) = tokio::join!(stuck, ending);
    assert!(matches!(stuck, Err(ForwardError::Lost(ForwardStage::Accepted))), "{stuck:?}");
}
