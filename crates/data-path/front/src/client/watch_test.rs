use std::convert::Infallible;
use std::sync::Mutex;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use spillway_transport::{Limits, Stream};
use spillway_types::Millis;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::client::greet::ClientProtocol;

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
const POST: &[u8] = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 8\r\n\r\nhalf";

#[derive(Debug, Default)]
struct NoPump;

impl ReplyPump for NoPump {
    fn poll(&self, _cx: &mut Context<'_>, _patience: Option<Duration>) -> Poll<()> {
        Poll::Pending
    }
}

/// A connection with its client.
struct World {
    door: Arc<FrontDoor>,
    meter: Arc<ConnectionMeter>,
    unread: UnreadBody,
    client: TcpStream,
    stream: Option<ClientStream>,
    /// Bodies that the service keeps instead of dropping them unread.
    kept: Option<Mutex<Vec<Incoming>>>,
}

impl World {
    async fn start() -> Self {
        Self::with(Limits::default().idle_timeout_ms).await
    }

    /// Its watchdog looks each 20 ms.
    async fn with(idle_timeout_ms: Millis) -> Self {
        let head_timeout = Duration::from_millis(40);
        let limits = Limits { head_timeout, idle_timeout_ms, ..Limits::default() };
        let (door, meter) = (Arc::new(FrontDoor::new(limits)), Arc::<ConnectionMeter>::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (tcp, _) = listener.accept().await.unwrap();
        let (counted, metered) = (Arc::clone(&door), Arc::clone(&meter));
        let stream = ClientStream::new(
            Stream::Plain(tcp),
            ClientProtocol::Http1,
            Bytes::new(),
            counted,
            metered,
        );
        Self {
            door,
            meter,
            unread: UnreadBody::default(),
            client,
            stream: Some(stream),
            kept: None,
        }
    }

    fn watch(&self) -> Watch<'_> {
        let watchdog = Watchdog::new(self.door.limits(), ClientProtocol::Http1, Instant::now());
        Watch { door: &self.door, meter: &self.meter, unread: &self.unread, watchdog }
    }

    /// Sends `request` and runs the connection until hyper is done with it.
    async fn run(&mut self, request: &[u8]) -> ServiceEnd {
        self.client.write_all(request).await.unwrap();
        let stream = self.stream.take().expect("a stream");
        let meter = Arc::clone(&self.meter);
        // The reply comes before the body of the request was looked at.
        let kept = self.kept.as_ref();
        let service = service_fn(|request: Request<Incoming>| {
            if let Some(kept) = kept {
                kept.lock().unwrap().push(request.into_body());
            }
            meter.request_started();
            meter.request_ended();
            std::future::ready(Ok::<_, Infallible>(Response::new(String::new())))
        });
        let builder = http1::Builder::new();
        let mut connection = Box::pin(builder.serve_connection(TokioIo::new(stream), &service));
        let calls = Calls {
            finish: http1::Connection::graceful_shutdown,
            let_go: Some(|connection, cx| connection.get_mut().poll_without_shutdown(cx)),
        };
        let ended = self.watch().run::<_, NoPump>(connection.as_mut(), None, &calls).await;
        let parts = Pin::into_inner(connection).into_parts();
        let mut stream = parts.io.into_inner();
        stream.unread(parts.read_buf);
        self.stream = Some(stream);
        ended
    }

    async fn reply(&mut self) -> String {
        let mut reply = vec![0; 1 << 10];
        let length = self.client.read(&mut reply).await.unwrap();
        String::from_utf8(reply[..length].to_vec()).unwrap()
    }
}

#[tokio::test]
async fn a_connection_between_two_requests_is_taken_from_hyper_and_given_back() {
    let mut world = World::start().await;
    for _ in 0..3 {
        assert!(matches!(world.run(GET).await, ServiceEnd::AtRest));
        let reply = world.reply().await;
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && !reply.contains("close"), "{reply}");
    }
    let mut stream = world.stream.take().unwrap();
    world.client.write_all(b"G").await.unwrap();
    assert!(world.watch().rest(&mut stream).await.is_none(), "it has bytes");
}

#[tokio::test]
async fn half_of_a_head_is_not_lost_and_half_of_a_body_is_no_head() {
    let mut world = World::start().await;
    assert!(matches!(world.run(&[GET, &GET[..9]].concat()).await, ServiceEnd::AtRest));
    world.reply().await;
    let mut stream = world.stream.take().unwrap();
    assert!(world.watch().rest(&mut stream).await.is_none(), "the half is given back");
    world.stream = Some(stream);
    assert!(matches!(world.run(&GET[9..]).await, ServiceEnd::AtRest));
    assert!(world.reply().await.starts_with("HTTP/1.1 200 OK\r\n"));

    let mut world = World::start().await;
    assert!(matches!(world.run(POST).await, ServiceEnd::Closed(None)));
    let reply = world.reply().await;
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");

    let mut world = World::with(Millis(200)).await;
    world.kept = Some(Mutex::default());
    assert!(matches!(world.run(POST).await, ServiceEnd::Closed(Some(CloseReason::Idle))));
}

#[tokio::test]
async fn a_client_that_has_asked_nothing_stays_with_hyper() {
    let mut world = World::with(Millis(200)).await;
    assert!(matches!(world.run(b"").await, ServiceEnd::Closed(Some(CloseReason::Idle))));
}

#[tokio::test]
async fn a_connection_at_rest_ends_with_its_time_or_the_node_and_its_client_is_heard() {
    let mut world = World::with(Millis(200)).await;
    assert!(matches!(world.run(GET).await, ServiceEnd::AtRest));
    world.reply().await;
    let mut stream = world.stream.take().unwrap();
    let idle = world.watch().rest(&mut stream).await;
    assert!(matches!(idle, Some(ServiceEnd::Closed(Some(CloseReason::Idle)))));
    assert_eq!(world.client.read(&mut [0]).await.unwrap(), 0, "it is closed");

    let mut world = World::start().await;
    assert!(matches!(world.run(GET).await, ServiceEnd::AtRest));
    let mut stream = world.stream.take().unwrap();
    world.door.start_draining();
    let drained = world.watch().rest(&mut stream).await;
    assert!(matches!(drained, Some(ServiceEnd::Closed(None))));

    let mut world = World::start().await;
    assert!(matches!(world.run(GET).await, ServiceEnd::AtRest));
    let mut stream = world.stream.take().unwrap();
    world.client.shutdown().await.unwrap();
    assert!(world.watch().rest(&mut stream).await.is_none(), "hyper is to see the end");
}
