use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Empty, Full};

use super::world::{TestNode, World, accept, echo, pattern, until};
use crate::{BodyPlan, ForwardAnswer, ForwardBody, ForwardHead, PeerRoom};

fn head() -> ForwardHead {
    ForwardHead::new(Method::POST, "/v1/chat/completions?x=1".parse().unwrap())
}

fn reply(answer: ForwardAnswer) -> http::Response<ForwardBody> {
    match answer {
        ForwardAnswer::Reply(reply) => reply,
        ForwardAnswer::Refused(refused) => panic!("refused: {refused:?}"),
    }
}

#[tokio::test]
async fn a_request_goes_there_and_its_reply_comes_back() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let mut head = head();
    head.headers.insert("x-client", "yes".parse().unwrap());
    let body = Full::new(Bytes::from_static(b"hello"));
    let answer = a.link.forward(b.node(), head, body, PeerRoom::Unknown).await.unwrap();
    let reply = reply(answer);
    assert_eq!(reply.status(), StatusCode::OK);
    assert_eq!(reply.headers()["x-client"], "yes");
    assert_eq!(reply.headers()["x-from"], "test/eu/a");
    assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), "hello");
}

#[tokio::test]
async fn bodies_of_all_sizes_arrive_intact_both_ways() {
    let world = World::new();
    let (a, b) = world.pair().await;
    for bytes in [0, 1 << 10, 64 << 10, (64 << 10) + 1, 1 << 20, 20 << 20] {
        for room in [PeerRoom::Unknown, PeerRoom::Likely] {
            let sent = pattern(bytes);
            let body = Full::new(sent.clone());
            let answer = b.link.forward(a.node(), head(), body, room).await.unwrap();
            let back = reply(answer).into_body().collect().await.unwrap().to_bytes();
            assert!(back == sent, "{bytes} bytes, {room:?}");
        }
    }
    let empty = Empty::<Bytes>::new();
    let answer = a.link.forward(b.node(), head(), empty, PeerRoom::Unknown).await.unwrap();
    assert!(reply(answer).into_body().collect().await.unwrap().to_bytes().is_empty());
}

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers.append("x-twice", HeaderValue::from_static("1"));
    trailers.append("x-twice", HeaderValue::from_static("2"));
    trailers
}

#[tokio::test]
async fn trailers_go_both_ways() {
    let world = World::new();
    let (a, b) = world.pair().await;
    for data in [b"".as_slice(), b"message"] {
        let body = Full::new(Bytes::from_static(data))
            .with_trailers(std::future::ready(Some(Ok(trailers()))));
        // The echo sends back all that it read, trailers included.
        let answer = a.link.forward(b.node(), head(), body, PeerRoom::Likely).await.unwrap();
        let collected = reply(answer).into_body().collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&trailers()));
        assert_eq!(collected.to_bytes(), data);
    }
}

#[tokio::test]
async fn a_body_says_its_length_if_it_is_known() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let (lengths, mut seen) = tokio::sync::mpsc::channel(8);
    b.react(move |head, body| {
        let length = (head.body, body.size_hint().exact());
        lengths.try_send(length).unwrap();
        accept(echo(head, body))
    });
    let plans = [
        (0, PeerRoom::Unknown, BodyPlan::Absent),
        (10, PeerRoom::Unknown, BodyPlan::Follows(Some(10))),
        (64 << 10, PeerRoom::Unknown, BodyPlan::Follows(Some(64 << 10))),
        ((64 << 10) + 1, PeerRoom::Unknown, BodyPlan::Waits(Some((64 << 10) + 1))),
        ((64 << 10) + 1, PeerRoom::Likely, BodyPlan::Follows(Some((64 << 10) + 1))),
    ];
    for (bytes, room, plan) in plans {
        let body = Full::new(pattern(bytes));
        let answer = a.link.forward(b.node(), head(), body, room).await.unwrap();
        reply(answer).into_body().collect().await.unwrap();
        assert_eq!(seen.recv().await.unwrap(), (plan, Some(bytes as u64)));
    }
}

/// Servers of HTTP/1 that know the length of a body read like this.
#[tokio::test]
async fn a_reader_that_stops_after_the_last_byte_gives_nothing_up() {
    let world = World::new();
    let (a, b) = world.pair().await;
    for bytes in [1, 1_000, 5_000, 100_000] {
        let body = Full::new(pattern(bytes));
        let answer = a.link.forward(b.node(), head(), body, PeerRoom::Unknown).await.unwrap();
        let mut body = reply(answer).into_body();
        let mut left = bytes;
        while left > 0 {
            left -= body.frame().await.unwrap().unwrap().into_data().unwrap().len();
        }
        // A body this short is in one packet with its end.
        assert!(body.is_end_stream() || bytes > 1);
        drop(body);
    }
    until("nothing is left open", || a.link.status().streams + b.link.status().streams == 0).await;
    let totals = b.link.status().totals;
    assert_eq!((totals.received, totals.given_up, totals.failed), (4, 0, 0));
}

#[tokio::test]
async fn all_of_the_head_arrives() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let (heads, mut seen) = tokio::sync::mpsc::channel(1);
    b.react(move |head, body| {
        heads.try_send(head.clone()).unwrap();
        accept(echo(head, body))
    });
    let mut sent = head();
    sent.model = Some("llama".into());
    sent.pin = Some("3".into());
    sent.deadline_ms = Some(20_000);
    sent.hop = 1;
    sent.priority = 9;
    sent.tenant = Some("acme".to_owned());
    sent.client = Some("192.0.2.7".parse().unwrap());
    sent.prefix = (0..4_000).map(|block| block * 0x9e37_79b9).collect();
    let empty = Empty::<Bytes>::new();
    a.link.forward(b.node(), sent.clone(), empty, PeerRoom::Unknown).await.unwrap();
    let mut arrived = seen.recv().await.unwrap();
    arrived.headers.remove("x-from");
    assert_eq!(arrived, sent);
}

#[tokio::test]
async fn many_requests_at_a_time_keep_to_themselves() {
    let world = World::new();
    let (a, b) = world.pair().await;
    let one = async |from: &TestNode, to: &TestNode, bytes: usize| {
        let body = Full::new(pattern(bytes));
        let answer = from.link.forward(to.node(), head(), body, PeerRoom::Unknown).await.unwrap();
        let back = reply(answer).into_body().collect().await.unwrap().to_bytes();
        assert!(back == pattern(bytes), "{bytes}");
    };
    let all = (1..300).map(|number| {
        let (from, to) = if number % 2 == 0 { (&a, &b) } else { (&b, &a) };
        one(from, to, number * 331)
    });
    futures_util::future::join_all(all).await;
    until("nothing is left open", || a.link.status().streams + b.link.status().streams == 0).await;
}
