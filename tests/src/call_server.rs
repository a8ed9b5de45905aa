//! A replica that speaks gRPC under the control of the test, frame by frame.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, header};
use spillway_testkit::{spawn, within};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Calls that wait for the test.
const CALLS_MAX: usize = 64;

/// A listening server; the test answers its calls.
#[derive(Debug)]
pub struct CallServer {
    /// Address that it listens on.
    pub address: SocketAddr,
    calls: mpsc::Receiver<Call>,
}

/// One call, as its server sees it.
#[derive(Debug)]
pub struct Call {
    /// Path and headers.
    pub head: Parts,
    body: RecvStream,
    buffer: BytesMut,
    respond: SendResponse<Bytes>,
    reply: Option<SendStream<Bytes>>,
}

impl CallServer {
    /// Listens on a free port, in cleartext.
    ///
    /// # Panics
    /// If there is none.
    pub async fn start() -> Self {
        Self::with_streams(u32::MAX).await
    }

    /// As [`Self::start`], for a server that takes so many calls on a connection at a time.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn with_streams(streams_max: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let (sender, calls) = mpsc::channel(CALLS_MAX);
        spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).expect("is alive");
                spawn(serve(stream, streams_max, sender.clone()));
            }
        });
        Self { address, calls }
    }

    /// A server for streams that the test connects itself, e.g. through TLS.
    #[must_use]
    pub fn detached(address: SocketAddr) -> (Self, CallSink) {
        let (sender, calls) = mpsc::channel(CALLS_MAX);
        (Self { address, calls }, CallSink(sender))
    }

    /// The next call.
    ///
    /// # Panics
    /// If none comes.
    pub async fn call(&mut self) -> Call {
        within("a call", self.calls.recv()).await.expect("the server runs")
    }

    /// Returns true if no call waits to be answered.
    pub fn is_alone(&mut self) -> bool {
        self.calls.is_empty()
    }
}

/// Takes connections for a detached [`CallServer`].
#[derive(Clone, Debug)]
pub struct CallSink(mpsc::Sender<Call>);

impl CallSink {
    /// Serves one connection to its end.
    pub async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        serve(stream, u32::MAX, self.0).await;
    }
}

async fn serve<S>(stream: S, streams_max: u32, calls: mpsc::Sender<Call>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(streams_max);
    // Whatever is no HTTP/2 has no calls; the test will miss them.
    let Ok(mut connection) = builder.handshake(stream).await else { return };
    while let Some(call) = next(&mut connection).await {
        if calls.send(call).await.is_err() {
            return;
        }
    }
}

async fn next<S>(connection: &mut Connection<S, Bytes>) -> Option<Call>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (request, respond) = connection.accept().await?.ok()?;
    let (head, body) = request.into_parts();
    Some(Call { head, body, buffer: BytesMut::new(), respond, reply: None })
}

impl Call {
    /// A header as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    /// The next message of the client, with its frame's head; `None` after the last.
    ///
    /// # Panics
    /// If the stream breaks.
    pub async fn message(&mut self) -> Option<Bytes> {
        loop {
            if let Some([_, length @ ..]) = self.buffer.first_chunk::<5>() {
                let length = u32::from_be_bytes(*length) as usize + 5;
                if self.buffer.len() >= length {
                    return Some(self.buffer.split_to(length).freeze());
                }
            }
            let piece = within("a message", self.body.data()).await?.expect("the stream lives");
            self.body.flow_control().release_capacity(piece.len()).expect("was taken");
            self.buffer.extend_from_slice(&piece);
        }
    }

    /// Waits until the client resets the stream, and returns its reason.
    ///
    /// # Panics
    /// If it does not.
    pub async fn was_reset(&mut self) -> Reason {
        let error = match &mut self.reply {
            Some(reply) => {
                let reset = std::future::poll_fn(|cx| reply.poll_reset(cx));
                return within("a reset", reset).await.expect("a reset");
            }
            None => {
                let reset = std::future::poll_fn(|cx| self.respond.poll_reset(cx));
                within("a reset", reset).await
            }
        };
        error.expect("a reset")
    }

    /// Sends the head of a reply.
    ///
    /// # Panics
    /// If the client is gone.
    pub fn begin(&mut self) {
        self.begin_with(Response::new(()));
    }

    /// Sends a head that the test makes; gRPC's content type is added if it is missing.
    ///
    /// # Panics
    /// If the client is gone.
    pub fn begin_with(&mut self, mut head: Response<()>) {
        let grpc = HeaderValue::from_static("application/grpc");
        head.headers_mut().entry(header::CONTENT_TYPE).or_insert(grpc);
        self.reply = Some(self.respond.send_response(head, false).expect("the client is there"));
    }

    /// Sends a reply that is a head and nothing else.
    ///
    /// # Panics
    /// If the client is gone.
    pub fn answer_with(mut self, mut head: Response<()>) {
        let grpc = HeaderValue::from_static("application/grpc");
        head.headers_mut().entry(header::CONTENT_TYPE).or_insert(grpc);
        self.respond.send_response(head, true).expect("the client is there");
    }

    /// Sends bytes of the reply's body.
    ///
    /// # Panics
    /// If the reply has no head yet, or the client is gone.
    pub fn send(&mut self, bytes: impl Into<Bytes>) {
        let reply = self.reply.as_mut().expect("a head");
        reply.send_data(bytes.into(), false).expect("the client is there");
    }

    /// Sends until no bytes are accepted for 100 ms.
    ///
    /// # Panics
    /// If the reply has no head yet, or the client is gone.
    pub async fn send_until_blocked(&mut self) {
        const PIECE_BYTES: usize = 64 << 10;
        let reply = self.reply.as_mut().expect("a head");
        loop {
            reply.reserve_capacity(PIECE_BYTES);
            let room = std::future::poll_fn(|cx| reply.poll_capacity(cx));
            let Ok(room) = timeout(Duration::from_millis(100), room).await else { return };
            let bytes = room.expect("an open stream").expect("the client is there");
            reply.send_data(vec![7; bytes].into(), false).expect("there is room");
        }
    }

    /// Ends the reply with these trailers.
    ///
    /// # Panics
    /// If the reply has no head yet, or the client is gone.
    pub fn end_with(&mut self, trailers: HeaderMap) {
        let reply = self.reply.as_mut().expect("a head");
        reply.send_trailers(trailers).expect("the client is there");
    }

    /// Ends the reply as a call ends that went well.
    ///
    /// # Panics
    /// If the reply has no head yet, or the client is gone.
    pub fn end(&mut self) {
        let status = header::HeaderName::from_static("grpc-status");
        self.end_with(HeaderMap::from_iter([(status, HeaderValue::from_static("0"))]));
    }

    /// Ends the reply without a word about how it went.
    ///
    /// # Panics
    /// If the reply has no head yet, or the client is gone.
    pub fn end_silently(&mut self) {
        let reply = self.reply.as_mut().expect("a head");
        reply.send_data(Bytes::new(), true).expect("the client is there");
    }

    /// Resets the stream.
    pub fn reset(&mut self, reason: Reason) {
        match &mut self.reply {
            Some(reply) => reply.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
    }

    /// Replies with this message, and well.
    ///
    /// # Panics
    /// If the client is gone.
    pub fn reply(&mut self, message: impl Into<Bytes>) {
        self.begin();
        self.send(message);
        self.end();
    }
}
