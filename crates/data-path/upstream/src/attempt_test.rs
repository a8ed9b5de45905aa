//! Attempts over HTTP/2 at servers that limit, refuse and close.
#![expect(clippy::disallowed_methods, reason = "a test waits for the tasks that it spawns")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use h2::{Reason, RecvStream, server};
use http::{HeaderMap, HeaderValue};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use spillway_journey::RetrySafety;
use spillway_protocol::Segments;
use spillway_resolver::Resolver;
use spillway_transport::{BoxError, Limits, WireBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::server_spec::{ReplicaProtocol, ServerSpec};
use crate::streamed_body::StreamedBody;

fn replica_at(address: SocketAddr) -> Arc<ReplicaConnections> {
    Arc::new(connections_to(address, ReplicaProtocol::Http2))
}

fn connections_to(address: SocketAddr, protocol: ReplicaProtocol) -> ReplicaConnections {
    let host = address.ip().to_string();
    let spec = ServerSpec {
        host: &host,
        port: address.port(),
        base: None,
        tls: None,
        protocol,
        grpc: None,
        in_flight_max: 1_000,
        idle: Duration::from_secs(1),
    };
    ReplicaConnections::new(spec, 1, &Resolver::default()).unwrap()
}

/// Sends what a closure returns.
struct FromClosure<F>(F);

impl<F: FnMut() -> Option<Request<OutboundBody>>> Sending for FromClosure<F> {
    fn request(&mut self) -> Option<Request<OutboundBody>> {
        (self.0)()
    }

    fn is_lost(&self, _: Instant, _: Instant) -> bool {
        false
    }
}

fn bounds() -> AttemptBounds {
    AttemptBounds {
        timeouts: Timeouts {
            connect: Duration::from_secs(20),
            first_byte: Duration::from_secs(7_200),
            ..Timeouts::default()
        },
        deadline: Deadline::after(coarse_clock::now(), Duration::from_secs(7_200)),
        connection: Connection::KeptOrNew,
        traffic: Traffic::Http,
    }
}

async fn ask(replica: &ReplicaConnections) -> Result<Response<UpstreamBody>, FailedAttempt> {
    let background = TaskTracker::new();
    let pools = WorkerPools { worker: 0, background: &background };
    let body = Segments::from(Bytes::from_static(b"abcd"));
    let request = || {
        let uri = format!("http://{}/", replica.line(Traffic::Http).endpoint.host().name());
        Some(Request::post(uri).body(OutboundBody::of(&body)).unwrap())
    };
    attempt(pools, replica, &mut FromClosure(request), bounds()).await
}

/// Requests of a test's server, with the number of their connection.
type Requests = tokio::sync::mpsc::Receiver<(usize, Request<RecvStream>, Respond)>;
type Respond = server::SendResponse<Bytes>;

/// Starts a server that takes `streams_max` streams on each connection.
async fn server(streams_max: u32) -> (Arc<ReplicaConnections>, Requests, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = tokio::sync::mpsc::channel(1_000);
    let connections = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let number = count.fetch_add(1, Ordering::Relaxed) as usize;
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut builder = server::Builder::new();
                builder.max_concurrent_streams(streams_max).max_header_list_size(4 << 20);
                let mut connection = builder.handshake::<_, Bytes>(tcp).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    let goes = request.headers().contains_key("x-go-away");
                    sender.send((number, request, respond)).await.unwrap();
                    if goes {
                        connection.graceful_shutdown();
                    }
                }
            });
        }
    });
    (replica_at(address), requests, connections)
}

fn reply(respond: &mut Respond, headers: HeaderMap, trailers: HeaderMap) {
    let mut head = Response::new(());
    *head.headers_mut() = headers;
    let mut body = respond.send_response(head, false).unwrap();
    body.send_trailers(trailers).unwrap();
}

fn field(length: usize) -> HeaderMap {
    HeaderMap::from_iter([(
        http::HeaderName::from_static("x-detail"),
        HeaderValue::try_from("d".repeat(length)).unwrap(),
    )])
}

#[tokio::test]
async fn beyond_a_server_s_limit_of_streams_further_connections_are_opened() {
    let (replica, mut requests, connections) = server(3).await;
    let asking: Vec<_> = (0..10)
        .map(|_| {
            let replica = Arc::clone(&replica);
            tokio::spawn(async move { ask(&replica).await.map(|reply| reply.into_body()) })
        })
        .collect();
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(requests.recv().await.unwrap());
    }
    assert_eq!(connections.load(Ordering::Relaxed), 4);
    assert_eq!(replica.open(), 4);
    let mut by_connection = [0; 4];
    for (connection, _, respond) in &mut waiting {
        by_connection[*connection] += 1;
        reply(respond, HeaderMap::new(), HeaderMap::new());
    }
    assert_eq!(by_connection.iter().max(), Some(&3), "{by_connection:?}");
    for asked in asking {
        asked.await.unwrap().unwrap().collect().await.unwrap();
    }
    // Those beyond the first end once they were idle for long.
    let pool = replica.pool(0).shared(LineKind::Http2);
    pool.sweep(Duration::from_secs(60), coarse_clock::now());
    pool.sweep(Duration::ZERO, coarse_clock::now());
    while replica.open() > 1 {
        // wait: between two looks.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(replica.streams_free(Traffic::Http), 3 * 64, "as many as its slots");
}

#[tokio::test]
async fn a_stream_that_is_refused_is_sent_again_and_blames_no_replica() {
    let (replica, mut requests, connections) = server(100).await;
    let asking = tokio::spawn({
        let replica = Arc::clone(&replica);
        async move { ask(&replica).await }
    });
    for _ in 0..2 {
        let (_, _, mut respond) = requests.recv().await.unwrap();
        respond.send_reset(Reason::REFUSED_STREAM);
    }
    let (_, _, mut respond) = requests.recv().await.unwrap();
    reply(&mut respond, HeaderMap::new(), HeaderMap::new());
    asking.await.unwrap().unwrap();
    assert_eq!(connections.load(Ordering::Relaxed), 3, "another connection each time");

    let asking = tokio::spawn({
        let replica = Arc::clone(&replica);
        async move { ask(&replica).await }
    });
    for _ in 0..3 {
        let (_, _, mut respond) = requests.recv().await.unwrap();
        respond.send_reset(Reason::REFUSED_STREAM);
    }
    let failed = asking.await.unwrap().unwrap_err();
    assert!(matches!(failed.error, AttemptError::Refused(_)), "{failed:?}");
    assert_eq!(failed.fault(), None);
    assert_eq!(failed.error.retry_safety(), RetrySafety::Unsent);
}

#[tokio::test]
async fn a_body_straight_from_the_client_is_sent_again_from_its_beginning() {
    let (replica, mut requests, _) = server(100).await;
    let text = "t".repeat(40_000);
    let client = async {
        let background = TaskTracker::new();
        let pools = WorkerPools { worker: 0, background: &background };
        let body = Full::new(Bytes::from(text.clone())).map_err(BoxError::from);
        let body = WireBody::Link(UnsyncBoxBody::new(body));
        let mut body = Some(StreamedBody::new(body, &Limits::default(), None));
        // It can be taken once.
        let request = || {
            let body = OutboundBody::Streamed(body.take()?);
            Some(Request::post("http://replica/").body(body).unwrap())
        };
        attempt(pools, &replica, &mut FromClosure(request), bounds()).await.unwrap()
    };
    let server = async {
        let (_, refused, mut respond) = requests.recv().await.unwrap();
        // A part of it was read.
        let mut body = refused.into_body();
        body.data().await.unwrap().unwrap();
        respond.send_reset(Reason::REFUSED_STREAM);
        let (_, taken, mut respond) = requests.recv().await.unwrap();
        let mut body = taken.into_body();
        let mut read = Vec::new();
        while let Some(piece) = body.data().await {
            let piece = piece.unwrap();
            body.flow_control().release_capacity(piece.len()).unwrap();
            read.extend_from_slice(&piece);
        }
        assert_eq!(read, text.as_bytes());
        reply(&mut respond, HeaderMap::new(), HeaderMap::new());
    };
    tokio::join!(client, server);
}

#[tokio::test]
async fn long_heads_and_trailers_are_whole_or_refused() {
    let (replica, mut requests, _) = server(100).await;
    let mut exchange = async |headers: HeaderMap, trailers: HeaderMap| {
        let asking = tokio::spawn({
            let replica = Arc::clone(&replica);
            async move { ask(&replica).await }
        });
        let (_, _, mut respond) = requests.recv().await.unwrap();
        reply(&mut respond, headers, trailers);
        asking.await.unwrap()
    };
    for length in [17_000, 500_000] {
        let reply = exchange(field(length), field(length)).await.unwrap();
        assert_eq!(reply.headers()["x-detail"].len(), length);
        let body = reply.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["x-detail"].len(), length);
    }
    for length in [600_000, 3_000_000] {
        let reply = exchange(HeaderMap::new(), field(length)).await;
        let cut = match reply {
            Ok(reply) => reply.into_body().collect().await.is_err(),
            Err(_) => true,
        };
        assert!(cut, "trailers of {length} bytes");
        let failed = exchange(field(length), HeaderMap::new()).await.unwrap_err();
        assert_eq!(failed.error.retry_safety(), RetrySafety::Never, "{:?}", failed.error);
    }
}

#[tokio::test]
async fn the_farewell_of_an_idle_connection_is_no_reply_to_a_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let replica = connections_to(listener.local_addr().unwrap(), ReplicaProtocol::Http1);
    const TIMEOUT: &str = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\
        content-length: 0\r\n\r\n";
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let client = async {
        for (expected, keeps) in [(200, true), (200, false), (408, false)] {
            let reply = ask(&replica).await.unwrap();
            assert_eq!(reply.status(), expected);
            let mut body = reply.into_body();
            if keeps {
                replica.keep(0, body.take_connection().unwrap(), coarse_clock::now());
            }
        }
    };
    let server = async {
        let mut first = Http1Script::accept(&listener).await;
        first.reply(OK).await;
        // It crosses the next request.
        first.reply(TIMEOUT).await;
        Http1Script::accept(&listener).await.reply(OK).await;
        // A new connection was not idle.
        Http1Script::accept(&listener).await.reply(TIMEOUT).await;
    };
    tokio::join!(client, server);
}

/// Server of HTTP/1.1 of which a test writes each reply.
struct Http1Script(TcpStream);

impl Http1Script {
    async fn accept(listener: &TcpListener) -> Self {
        Self(listener.accept().await.unwrap().0)
    }

    /// Reads a request with a body of four bytes, and replies.
    async fn reply(&mut self, reply: &str) {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\nabcd") {
            assert!(self.0.read_buf(&mut request).await.unwrap() > 0, "a request");
        }
        self.0.write_all(reply.as_bytes()).await.unwrap();
    }
}

/// Server of which a test writes each frame.
struct Script(TcpStream);

const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const HEADERS: u8 = 1;
const END_STREAM_AND_HEADERS: u8 = 5;

impl Script {
    /// Accepts a connection and sends settings.
    async fn accept(listener: &TcpListener) -> Self {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut script = Self(tcp);
        script.0.read_exact(&mut [0; 24]).await.unwrap();
        script.write(SETTINGS, 0, 0, &[]).await;
        script
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [length[1], length[2], length[3], kind, flags];
        let frame = [&head[..], &stream.to_be_bytes(), payload].concat();
        self.0.write_all(&frame).await.unwrap();
    }

    /// Returns kind, flags and stream of the next frame.
    async fn read(&mut self) -> std::io::Result<(u8, u8, u32)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await?;
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        self.0.read_exact(&mut payload).await?;
        Ok((kind, flags, u32::from_be_bytes(stream)))
    }

    /// Reads until a request begins, and returns its stream.
    async fn request(&mut self) -> u32 {
        loop {
            if let (HEADERS, _, stream) = self.read().await.unwrap() {
                return stream;
            }
        }
    }

    async fn reply(&mut self, stream: u32) {
        const STATUS_200: u8 = 0x88;
        self.write(HEADERS, END_STREAM_AND_HEADERS, stream, &[STATUS_200]).await;
    }
}

async fn scripted() -> (TcpListener, Arc<ReplicaConnections>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let replica = replica_at(listener.local_addr().unwrap());
    (listener, replica)
}

/// Servers of gRPC end a connection with more than one PING in five minutes without data.
#[tokio::test(start_paused = true)]
async fn no_ping_leaves_while_a_call_is_silent_for_forty_minutes() {
    let (listener, replica) = scripted().await;
    let asking = tokio::spawn(async move {
        // By the connection alone, since attempts look at a clock that is not paused.
        let line = replica.line(Traffic::Http);
        let (stream, address) = connect(&line, Duration::from_secs(20)).await?;
        let count = replica.count_connection();
        let connection = Http2Connection::new(stream, address, count, &TaskTracker::new()).await?;
        let body = OutboundBody::of(&Segments::from(Bytes::from_static(b"abcd")));
        let request = Request::post("http://replica/").body(body).unwrap();
        connection.first_stream().exchange(request).await.map_err(|failed| failed.error)
    });
    let mut script = Script::accept(&listener).await;
    let stream = script.request().await;
    // wait: for as long as the call is silent; the clock is a test's.
    let mut silence = pin!(tokio::time::sleep(Duration::from_secs(2_400)));
    let mut pings = 0;
    loop {
        tokio::select! {
            biased;
            frame = script.read() => pings += u32::from(frame.unwrap().0 == PING),
            () = &mut silence => break,
        }
    }
    script.reply(stream).await;
    asking.await.unwrap().unwrap();
    assert_eq!(pings, 0);
}

#[tokio::test]
async fn a_connection_that_is_closed_by_age_costs_no_request() {
    let (listener, replica) = scripted().await;
    let replica = &replica;
    let client = async {
        ask(replica).await.unwrap();
        // The farewell has arrived before this one is sent.
        ask(replica).await.unwrap();
        // This one crosses the farewell of the second connection.
        ask(replica).await.unwrap();
    };
    let server = async {
        let mut first = Script::accept(&listener).await;
        let stream = first.request().await;
        first.write(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]).await;
        first.reply(stream).await;
        let mut second = Script::accept(&listener).await;
        let stream = second.request().await;
        second.reply(stream).await;
        let crossing = second.request().await;
        assert_ne!(crossing, stream);
        let last = [&stream.to_be_bytes()[..], &[0; 4]].concat();
        second.write(GOAWAY, 0, 0, &last).await;
        let mut third = Script::accept(&listener).await;
        let stream = third.request().await;
        third.reply(stream).await;
    };
    tokio::join!(client, server);
}
