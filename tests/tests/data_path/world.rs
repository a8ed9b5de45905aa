//! A worker, its client and its replica on one thread, so that the cost of a request can be counted
//! exactly: client and replica read into buffers of their own and allocate nothing.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use spillway_front::access::AccessMode;
use spillway_front::client::{Listener, ListenerSpec, accept_loop};
use spillway_node::Node;
use spillway_protocol::TrustedProxies;
use spillway_proxy::Worker;
use spillway_tests::{Cluster, Setup, knows};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::http2::{self, Http2Client};

/// Bytes that a client or replica reads ahead; larger than any message here.
const BUFFER_BYTES: usize = 1 << 18;

const UNARY: &str = "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\
    \"message\":{\"role\":\"assistant\",\"content\":\"All is well.\"},\"finish_reason\":\"stop\"}],\
    \"usage\":{\"prompt_tokens\":40,\"completion_tokens\":4,\"total_tokens\":44}}";
const TOKENS: usize = 100;

/// Request of a client and the reply of its replica.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// Bytes of the body.
    body_bytes: usize,
    model: &'static str,
    is_stream: bool,
    is_http2: bool,
    pub(crate) is_forwarded: bool,
    status: &'static [u8],
}

const USUAL: Shape = Shape {
    name: "1 KB",
    body_bytes: 1 << 10,
    model: "tiny",
    is_stream: false,
    is_http2: false,
    is_forwarded: false,
    status: b"HTTP/1.1 200",
};

/// The shapes that have budgets. For forwarded shapes only the sending node's worker is on the
/// counting thread; QUIC and the other region run elsewhere.
pub(crate) const SHAPES: [Shape; 7] = [
    USUAL,
    Shape { name: "16 KB", body_bytes: 16 << 10, ..USUAL },
    Shape { name: "128 KB", body_bytes: 128 << 10, ..USUAL },
    Shape { name: "100 tokens", is_stream: true, ..USUAL },
    Shape { name: "1 KB over HTTP/2", is_http2: true, ..USUAL },
    Shape { name: "refused", model: "unknown", status: b"HTTP/1.1 404", ..USUAL },
    Shape { name: "1 KB forwarded", is_forwarded: true, ..USUAL },
];

/// Calls `act` with each shape, and with a client that sends so many requests of it.
pub(crate) fn with_each_shape(mut act: impl FnMut(&Shape, &mut dyn FnMut(usize))) {
    for is_forwarded in [false, true] {
        let mut world = World::new(is_forwarded);
        for shape in SHAPES.iter().filter(|shape| shape.is_forwarded == is_forwarded) {
            act(shape, &mut world.asking(shape));
        }
        world.stop();
    }
}

/// Returns true if a message is complete, by its length or its last chunk.
fn is_whole(message: &[u8]) -> bool {
    let Some(head) = message.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let (head, body) = message.split_at(head + 4);
    let mut lines = head.split(|byte| *byte == b'\n');
    let length = lines.find_map(|line| {
        let (name, value) = line.split_at_checked("content-length:".len())?;
        let value = std::str::from_utf8(value).ok()?.trim();
        name.eq_ignore_ascii_case(b"content-length:").then(|| value.parse::<usize>().ok())?
    });
    match length {
        Some(length) => body.len() >= length,
        None => body.ends_with(b"0\r\n\r\n"),
    }
}

/// Reads one message into the buffer and returns its length. Each event in it gives a permit to
/// `events`. Allocates nothing.
async fn read_message(
    stream: &mut TcpStream,
    buffer: &mut [u8],
    events: &Semaphore,
) -> Option<usize> {
    let mut read = 0;
    while !is_whole(&buffer[..read]) {
        match stream.read(&mut buffer[read..]).await {
            Ok(0) | Err(_) => return None,
            Ok(more) => {
                let recent = &buffer[read.saturating_sub(1)..read + more];
                events.add_permits(recent.windows(2).filter(|two| two == b"\n\n").count());
                read += more;
            }
        }
    }
    Some(read)
}

/// Answers each request of each connection with the same bytes: a stream if the request asks for
/// one. Each event is sent after the client has the one before, since the number that arrive
/// together would depend on the machine.
async fn answer(listener: tokio::net::TcpListener, events: Arc<Semaphore>) {
    let replies: Arc<[Vec<Vec<u8>>; 2]> = Arc::new([vec![unary()], streamed()]);
    while let Ok((mut stream, _)) = listener.accept().await {
        let (replies, events) = (Arc::clone(&replies), Arc::clone(&events));
        spillway_tests::spawn(async move {
            let mut buffer = vec![0; BUFFER_BYTES];
            let nothing = Semaphore::new(0);
            while let Some(length) = read_message(&mut stream, &mut buffer, &nothing).await {
                let asks_for_stream = |part: &[u8]| part.starts_with(b"\"stream\":true");
                let is_stream = buffer[..length].windows(14).take(512).any(asks_for_stream);
                // The last event of the stream before.
                events.forget_permits(usize::MAX);
                for (number, part) in replies[usize::from(is_stream)].iter().enumerate() {
                    if number > 0 {
                        events.acquire().await.expect("never closed").forget();
                    }
                    if stream.write_all(part).await.is_err() {
                        return;
                    }
                }
            }
        });
    }
}

fn body(shape: &Shape) -> Vec<u8> {
    let begin = format!(
        "{{\"model\":\"{}\",\"stream\":{},\"messages\":[{{\"role\":\"user\",\"content\":\"",
        shape.model, shape.is_stream
    );
    let end = "\"}]}";
    let text = "word ".repeat(shape.body_bytes / 5 + 1);
    let text = &text[..shape.body_bytes - begin.len() - end.len()];
    format!("{begin}{text}{end}").into_bytes()
}

fn request(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nuser-agent: test\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn unary() -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
    format!("{head}{}\r\n\r\n{UNARY}", UNARY.len()).into_bytes()
}

/// Returns a stream by its events; the first one has the head before it.
fn streamed() -> Vec<Vec<u8>> {
    let chunk = |event: &str| format!("{:x}\r\n{event}\r\n", event.len());
    let token = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\
                 \"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n";
    let mut parts = vec![chunk(token); TOKENS];
    parts[0].insert_str(
        0,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    );
    parts.push(chunk("data: [DONE]\n\n") + "0\r\n\r\n");
    parts.into_iter().map(String::into_bytes).collect()
}

/// Client of one HTTP/1.1 connection to a worker on this same thread.
struct World {
    runtime: Runtime,
    address: SocketAddr,
    client: TcpStream,
    buffer: Vec<u8>,
    /// Events that the client has.
    events: Arc<Semaphore>,
    nodes: Vec<Node>,
    /// Holds the nodes' files.
    _cluster: Option<Cluster>,
    /// Runtime of the rest of the node.
    elsewhere: Runtime,
}

impl World {
    /// Starts a node with one replica, in another region if it is to forward; a worker of the node on this
    /// thread; and a client.
    fn new(is_forwarding: bool) -> Self {
        let elsewhere = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let elsewhere = elsewhere.expect("a runtime");
        let (replica, replica_address) = listen();
        let setup = Setup::new().replica("a", replica_address);
        let (cluster, nodes) = elsewhere.block_on(async {
            if !is_forwarding {
                return (None, vec![setup.start().await]);
            }
            let cluster = Cluster::new(&["edge", "core"]);
            let edge = cluster.start(0, Setup::new()).await;
            let core = cluster.start(1, setup).await;
            knows(&edge, "core").await;
            (Some(cluster), vec![edge, core])
        });
        let worker = Arc::new(Worker::new(0, Arc::clone(nodes[0].gateway())));
        let spec = ListenerSpec {
            tls: None,
            proxy_protocol: false,
            trusted_proxies: TrustedProxies::default(),
            access: AccessMode::None,
        };
        let listener = Arc::new(Listener::new(spec).expect("a listener"));
        let (socket, address) = listen();
        let events = Arc::new(Semaphore::new(0));
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = runtime.block_on(async {
            let replica = tokio::net::TcpListener::from_std(replica).expect("a socket");
            spillway_tests::spawn(answer(replica, Arc::clone(&events)));
            spillway_tests::spawn(accept_loop(worker.entrance(), listener, socket));
            TcpStream::connect(address).await.expect("connects")
        });
        let buffer = vec![0; BUFFER_BYTES];
        Self { runtime, address, client, buffer, events, nodes, _cluster: cluster, elsewhere }
    }

    /// Returns a client that sends a request of this shape a number of times.
    fn asking(&mut self, shape: &Shape) -> impl FnMut(usize) {
        let body = body(shape);
        let request = request(&body);
        let Self { runtime, address, client, buffer, events, .. } = self;
        // A separate connection, because it wakes up at times even without requests.
        let mut over_http2 = shape.is_http2.then(|| {
            (http2::request(&body), runtime.block_on(Http2Client::start(*address, buffer)))
        });
        move |count| {
            runtime.block_on(async {
                for _ in 0..count {
                    if let Some((request, client)) = &mut over_http2 {
                        assert!(client.ask(request, buffer).await, "{}", shape.name);
                        continue;
                    }
                    client.write_all(&request).await.expect("sends");
                    let length = read_message(client, buffer, events).await.expect("a reply");
                    assert!(buffer[..length].starts_with(shape.status), "{}", shape.name);
                }
            });
        }
    }

    fn stop(self) {
        // The node waits for connections, and those here go on only while this thread runs them.
        drop((self.client, self.runtime));
        self.elsewhere.block_on(async {
            for node in self.nodes {
                node.stop().await;
            }
        });
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    socket.set_nonblocking(true).expect("a socket");
    let address = socket.local_addr().expect("an address");
    (socket, address)
}
