//! The client against raw sockets, and against hyper's as the reference.
#![expect(clippy::disallowed_methods, reason = "a test waits for the tasks that it spawns")]

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use spillway_protocol::Segments;
use spillway_resolver::Resolver;
use spillway_transport::{BoxError, Limits, Stream, WireBody, coarse_clock};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};

use super::body_decoder::BodyRead;
use super::reply_head::{plain_length, take_head};
use super::{HEAD_BYTES_MAX, Http1Connection, Http1Error, NotUsable};
use crate::body::OutboundBody;
use crate::connection_count::ConnectionCount;
use crate::error::AttemptError;
use crate::streamed_body::StreamedBody;

/// Returns a connection and the server's end of it.
async fn connected() -> (Box<Http1Connection>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let endpoint = Resolver::default().endpoint("127.0.0.1", port);
    let (near, far) = tokio::join!(endpoint.connect(), listener.accept());
    let (near, address) = near.unwrap();
    let count = ConnectionCount::new(&Arc::new(AtomicU32::new(1)));
    let connection = Http1Connection::new(Stream::Plain(near), address, count);
    (Box::new(connection), far.unwrap().0)
}

fn post(body: &'static [u8]) -> Request<OutboundBody> {
    let segments = Segments::from(Bytes::from_static(body));
    let request = Request::post("/v1/chat/completions?x=1").header("host", "replica");
    request.body(OutboundBody::of(&segments)).unwrap()
}

/// Reads until the server's end has `length` bytes.
async fn received(far: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    far.read_exact(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

async fn collected(reply: Response<Box<Http1Connection>>) -> (Bytes, Box<Http1Connection>) {
    let mut body = reply.into_body();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame.unwrap().into_data() {
            all.extend_from_slice(&piece);
        }
    }
    (all.freeze(), body)
}

const SENT: &str =
    "POST /v1/chat/completions?x=1 HTTP/1.1\r\nhost: replica\r\ncontent-length: 4\r\n\r\nabcd";

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let (mut connection, mut far) = connected().await;
    for reply in
        ["content-length: 2\r\n\r\nok", "transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"]
    {
        let exchange = tokio::spawn(connection.exchange(post(b"abcd")));
        assert_eq!(received(&mut far, SENT.len()).await, SENT);
        far.write_all(format!("HTTP/1.1 200 OK\r\n{reply}").as_bytes()).await.unwrap();
        let (body, idle) = collected(exchange.await.unwrap().unwrap()).await;
        assert_eq!(body, "ok");
        connection = idle;
        assert!(connection.becomes_idle(coarse_clock::now()).is_ok(), "{reply}");
    }
    drop(far);
    while connection.check_idle().is_ok() {
        tokio::task::yield_now().await;
    }
}

/// Returns an idle connection that has served one request, and the server's end of it.
async fn idle_after(reply: &str) -> (Result<(), NotUsable>, Box<Http1Connection>, TcpStream) {
    let (connection, mut far) = connected().await;
    let exchange = tokio::spawn(connection.exchange(post(b"abcd")));
    received(&mut far, SENT.len()).await;
    far.write_all(reply.as_bytes()).await.unwrap();
    let (_, mut connection) = collected(exchange.await.unwrap().unwrap()).await;
    (connection.becomes_idle(coarse_clock::now()), connection, far)
}

#[tokio::test]
async fn what_comes_without_a_request_is_found_when_the_connection_is_taken() {
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    for (late, expected) in [
        ("", Ok(())),
        (OK, Err(NotUsable::Unasked)),
        ("x", Err(NotUsable::Unasked)),
        ("\r\n", Err(NotUsable::Over)),
        ("HTTP/1.1 408 Request Timeout\r\n\r\n", Err(NotUsable::Over)),
    ] {
        let (idle, mut connection, far) = idle_after(OK).await;
        assert_eq!(idle, Ok(()));
        // Not by the runtime, which then would know of it: the bytes are in the kernel alone.
        let sent = socket2::SockRef::from(&far).send(late.as_bytes());
        assert_eq!(sent.unwrap(), late.len());
        assert_eq!(connection.check_idle(), expected, "{late:?}");
    }
    let (idle, mut connection, far) = idle_after(OK).await;
    assert_eq!(idle, Ok(()));
    drop(far);
    assert_eq!(connection.check_idle(), Err(NotUsable::Over));
}

#[tokio::test]
async fn what_comes_with_a_reply_and_is_no_part_of_it_is_found() {
    for (rest, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", NotUsable::Unasked),
        ("\r\n", NotUsable::Over),
    ] {
        let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok{rest}");
        assert_eq!(idle_after(&reply).await.0, Err(expected), "{rest:?}");
    }
}

#[tokio::test]
async fn cookies_of_several_fields_are_one_line() {
    let (connection, mut far) = connected().await;
    let mut request = post(b"");
    for cookies in ["a=1", "sid=x; b=2", "c=3"] {
        request.headers_mut().append(header::COOKIE, cookies.parse().unwrap());
    }
    request.headers_mut().append("x-after", "1".parse().unwrap());
    let _exchange = tokio::spawn(connection.exchange(request));
    let sent = "POST /v1/chat/completions?x=1 HTTP/1.1\r\nhost: replica\r\n\
        cookie: a=1; sid=x; b=2; c=3\r\nx-after: 1\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(received(&mut far, sent.len()).await, sent);
}

/// Body in pieces that never reports its length.
struct Untold(VecDeque<Bytes>);

impl Body for Untold {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_goes_in_chunks_unless_it_has_ended() {
    let chunked = "transfer-encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n";
    let none = "content-length: 0\r\n\r\n";
    for (pieces, framed) in [(vec!["ab", "", "cd"], chunked), (vec![], none)] {
        let body = Untold(pieces.into_iter().map(Bytes::from).collect());
        let body = UnsyncBoxBody::new(body);
        let (connection, mut far) = connected().await;
        let body = StreamedBody::new(WireBody::Link(body), &Limits::default(), None);
        let request = Request::post("/").body(OutboundBody::Streamed(body)).unwrap();
        let exchange = tokio::spawn(connection.exchange(request));
        let sent = format!("POST / HTTP/1.1\r\n{framed}");
        assert_eq!(received(&mut far, sent.len()).await, sent);
        far.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        let (_, mut connection) = collected(exchange.await.unwrap().unwrap()).await;
        assert!(connection.becomes_idle(coarse_clock::now()).is_ok(), "the whole request was sent");
    }
}

#[tokio::test]
async fn informational_replies_are_passed_over_within_limits() {
    let (connection, mut far) = connected().await;
    let exchange = tokio::spawn(connection.exchange(post(b"abcd")));
    received(&mut far, SENT.len()).await;
    let replies = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    far.write_all(replies).await.unwrap();
    assert_eq!(exchange.await.unwrap().unwrap().status(), StatusCode::NO_CONTENT);

    let (connection, mut far) = connected().await;
    let exchange = tokio::spawn(connection.exchange(post(b"abcd")));
    received(&mut far, SENT.len()).await;
    let one = b"HTTP/1.1 100 Continue\r\n\r\n";
    // It may have closed before all were sent.
    drop(far.write_all(&one.repeat(2 * HEAD_BYTES_MAX / one.len())).await);
    let error = exchange.await.unwrap().unwrap_err();
    assert!(matches!(error, AttemptError::BadReply(_)), "{error}");
}

#[tokio::test]
async fn what_a_replica_did_before_it_closed_tells_if_a_retry_is_safe() {
    let (connection, mut far) = connected().await;
    let exchange = tokio::spawn(connection.exchange(post(b"abcd")));
    received(&mut far, SENT.len()).await;
    drop(far);
    let error = exchange.await.unwrap().unwrap_err();
    assert!(matches!(error, AttemptError::Reset(_)), "{error}");

    let (connection, mut far) = connected().await;
    let exchange = tokio::spawn(connection.exchange(post(b"abcd")));
    received(&mut far, SENT.len()).await;
    far.write_all(b"HTTP/1.1 200").await.unwrap();
    drop(far);
    let error = exchange.await.unwrap().unwrap_err();
    assert!(matches!(error, AttemptError::BadReply(_)), "{error}");
}

#[tokio::test]
async fn a_refusal_arrives_though_the_body_was_not_read() {
    static LONG: [u8; 32 << 20] = [b'x'; 32 << 20];
    let (connection, mut far) = connected().await;
    let exchange = tokio::spawn(connection.exchange(post(&LONG)));
    received(&mut far, 1_000).await;
    far.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig").await.unwrap();
    let reply = exchange.await.unwrap().unwrap();
    assert_eq!(reply.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let (body, mut connection) = collected(reply).await;
    assert_eq!(body, "big");
    assert!(
        connection.becomes_idle(coarse_clock::now()).is_err(),
        "a part of the request was not sent"
    );
}

/// Body that fails once told to, after a first piece.
struct Failing {
    first: Option<Bytes>,
    fails: tokio::sync::oneshot::Receiver<()>,
}

impl Body for Failing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let failed = Pin::new(&mut self.fails).poll(cx);
        failed.map(|_| Some(Err("the client has left".into())))
    }
}

#[tokio::test]
async fn what_came_of_a_reply_goes_before_a_fault_of_the_upload() {
    for (reply, is_whole) in
        [("content-length: 3\r\n\r\nbig", true), ("content-length: 9\r\n\r\nbig", false)]
    {
        let (fail, fails) = tokio::sync::oneshot::channel();
        let body = Failing { first: Some(Bytes::from_static(b"ab")), fails };
        let (connection, mut far) = connected().await;
        let body = WireBody::Link(UnsyncBoxBody::new(body));
        let body = StreamedBody::new(body, &Limits::default(), None);
        let request = Request::post("/").body(OutboundBody::Streamed(body)).unwrap();
        let exchange = tokio::spawn(connection.exchange(request));
        let sent = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n";
        assert_eq!(received(&mut far, sent.len()).await, sent);
        far.write_all(format!("HTTP/1.1 413 Too Large\r\n{reply}").as_bytes()).await.unwrap();
        let mut body = exchange.await.unwrap().unwrap().into_body();
        fail.send(()).unwrap();
        let piece = body.frame().await.unwrap().unwrap();
        assert_eq!(piece.into_data().unwrap(), "big");
        let end = body.frame().await;
        assert_eq!(end.is_none(), is_whole, "{end:?}");
        if let Some(end) = end {
            assert!(matches!(end, Err(Http1Error::Body(_))), "{end:?}");
        }
        assert!(
            body.becomes_idle(coarse_clock::now()).is_err(),
            "a part of the request was not sent"
        );
    }
}

#[tokio::test]
async fn a_connection_with_bytes_that_nobody_asked_for_is_not_used_again() {
    let (connection, mut far) = connected().await;
    let exchange = tokio::spawn(connection.exchange(post(b"abcd")));
    received(&mut far, SENT.len()).await;
    let two = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfalse";
    far.write_all(two).await.unwrap();
    let (body, mut connection) = collected(exchange.await.unwrap().unwrap()).await;
    assert_eq!(body, "ok");
    assert!(connection.becomes_idle(coarse_clock::now()).is_err());
}

/// A reply as the client read it: status, fields, body and trailers.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    NoHead,
    Cut(StatusCode, HeaderMap),
    Whole(StatusCode, HeaderMap, Bytes, HeaderMap),
}

/// Returns what the code here makes of `wire`, which comes in pieces that end at `cuts`.
fn seen_here(method: &Method, wire: &[u8], cuts: &[usize]) -> Seen {
    let mut buffer = BytesMut::new();
    let mut head = None;
    let (mut body, mut trailers) = (BytesMut::new(), HeaderMap::new());
    let mut rest = wire;
    let mut at = 0;
    let cuts = cuts.iter().copied().chain([wire.len()]);
    let parts = cuts.map(|cut| {
        let (part, left) = rest.split_at(cut.max(at) - at);
        (at, rest) = (cut.max(at), left);
        part
    });
    for part in parts {
        buffer.extend_from_slice(part);
        while head.is_none() {
            match take_head(&mut buffer, method, &mut HeaderMap::new()) {
                Ok(Some(next)) if next.is_interim() => {}
                Ok(Some(next)) => head = Some(next),
                Ok(None) => break,
                Err(_) => return Seen::NoHead,
            }
        }
        let Some(head) = &mut head else { continue };
        loop {
            match head.body.take(&mut buffer) {
                Ok(BodyRead::Data(piece)) => body.extend_from_slice(&piece),
                Ok(BodyRead::Trailers(fields)) => trailers = fields,
                Ok(BodyRead::End | BodyRead::More) => break,
                Err(_) => return Seen::Cut(head.parts.status, head.parts.headers.clone()),
            }
        }
    }
    let Some(mut head) = head else { return Seen::NoHead };
    let (status, headers) = (head.parts.status, head.parts.headers);
    match head.body.end() {
        Ok(()) => Seen::Whole(status, headers, body.freeze(), trailers),
        Err(Http1Error::Closed) => Seen::Cut(status, headers),
        Err(_) => Seen::NoHead,
    }
}

/// Returns what hyper's client makes of `wire`.
async fn seen_by_hyper(method: &Method, wire: &[u8]) -> Seen {
    let (near, mut far) = duplex(1 << 20);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(near)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::builder().method(method).uri("/").body(Empty::<Bytes>::new()).unwrap();
    let reply = tokio::spawn(sender.send_request(request));
    let mut asked = [0; 8];
    far.read_exact(&mut asked).await.unwrap();
    far.write_all(wire).await.unwrap();
    far.shutdown().await.unwrap();
    let Ok(reply) = reply.await.unwrap() else { return Seen::NoHead };
    let (mut parts, body) = reply.into_parts();
    // hyper leaves a length that does not count.
    if parts.headers.contains_key(header::TRANSFER_ENCODING) {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    // It also leaves lengths in several fields.
    plain_length(&mut parts.headers);
    let seen = match body.collect().await {
        Ok(all) => {
            let trailers = all.trailers().cloned().unwrap_or_default();
            Seen::Whole(parts.status, parts.headers, all.to_bytes(), trailers)
        }
        Err(_) => Seen::Cut(parts.status, parts.headers),
    };
    connection.abort();
    seen
}

fn fields() -> impl Strategy<Value = String> {
    let field = prop::sample::select(vec![
        "content-length: 5\r\n",
        "content-length: 11\r\n",
        "Content-Length:0\r\n",
        "transfer-encoding: chunked\r\n",
        "transfer-encoding: gzip\r\n",
        "connection: close\r\n",
        "content-type: application/json\r\n",
        "x-empty:\r\n",
        "x-tab: a\tb\r\n",
        "set-cookie: a=b\r\n",
        "x-latin: \u{e9}\r\n",
        "bad field: 1\r\n",
        "x-lf: 1\n",
    ]);
    prop::collection::vec(field, 0..4).prop_map(|fields| fields.concat())
}

fn bodies() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "hello",
        "hello world",
        "5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nx-sum: 1\r\n\r\n",
        "5\r\nhello\r\n0\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "zz\r\n\r\n",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    /// A reply is read as hyper reads it, however it is cut, also a malformed one.
    #[test]
    fn replies_are_read_as_hyper_reads_them(
        status in prop::sample::select(vec![
            "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200\r\n", "HTTP/1.1 204 No Content\r\n",
            "HTTP/1.1 404 Not Found\r\n", "HTTP/1.0 200 OK\r\n", "HTTP/1.1 304 Not Modified\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n", "HTTP/3 200 OK\r\n",
        ]),
        fields in fields(),
        body in bodies(),
        method in prop::sample::select(vec![Method::GET, Method::HEAD]),
        fault in prop::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>())),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut wire = format!("{status}{fields}\r\n{body}").into_bytes();
        if let Some((place, byte)) = fault {
            let place = place.index(wire.len());
            wire[place] = byte;
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len())).collect();
        cuts.sort_unstable();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let by_hyper = runtime.block_on(seen_by_hyper(&method, &wire));
        prop_assert_eq!(seen_here(&method, &wire, &cuts), by_hyper, "{}", wire.escape_ascii());
    }
}
