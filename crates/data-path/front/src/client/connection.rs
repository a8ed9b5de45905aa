//! Serves one client connection from its handshake to its end.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::client::client_stream::ClientStream;
use crate::client::connection_facts::ConnectionFacts;
use crate::client::greet::{ClientProtocol, Greeted, greet};
use crate::client::listener::Listener;
use crate::client::serve::{Entrance, ReplyPump, Serve};
use crate::client::streams::Streams;
use crate::client::watch::{Calls, ServiceEnd, Watch};
use crate::client::watchdog::Watchdog;
use crate::close_reason::CloseReason;
use crate::front_door::FrontDoor;

/// Time that a new connection has for its first bytes while the gateway drains: more than the
/// slowest network path to clients takes, with one packet lost.
const FIRST_WORDS_TIME: Duration = Duration::from_secs(1);
/// Bytes of one HTTP/2 reply that may wait for the client.
const STREAM_BUFFER_BYTES: usize = 64 << 10;

/// Serves a connection until it ends, misbehaves or the gateway drains.
pub(super) async fn serve_connection<S: Serve>(
    entrance: Entrance<S>,
    listener: Arc<Listener>,
    tcp: TcpStream,
    peer: SocketAddr,
) {
    // Without this, a token written while another is unacknowledged waits for up to 40 ms.
    if let Err(error) = tcp.set_nodelay(true) {
        tracing::debug!(%peer, %error, "client left before its connection was set up");
        return;
    }
    let door = &entrance.door;
    let head_timeout = door.limits().head_timeout;
    // Boxed, as is all that a connection needs for a part of its time only: most are idle.
    let greeting = timeout(head_timeout, Box::pin(greet(&listener, tcp, peer)));
    let greeted = tokio::select! {
        biased;
        greeted = greeting => greeted,
        // A client that has not even begun its protocol loses nothing.
        () = first_words_missed(door) => return,
    };
    let greeted = match greeted {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "handshake failed");
            return door.closed_in_handshake();
        }
        Err(_) => return door.closed_by_watchdog(CloseReason::SlowHead),
    };
    // Only now is the client's address known, if a PROXY header gave it.
    let is_told = greeted.address != peer.ip().to_canonical();
    let share = is_told.then(|| door.admit_client(greeted.address));
    // The client has all the connections that it may have; the refusal is counted already.
    if let Some(None) = share {
        return;
    }
    if let Some(reason) = drive(&entrance, &listener, greeted).await {
        tracing::debug!(%peer, ?reason, "connection closed by the gateway");
        door.closed_by_watchdog(reason);
    }
}

/// Waits until the gateway drains and a new connection had time for its first bytes. The connection
/// was accepted, and its client could not distinguish an end at this point from an end in the
/// middle of its request.
async fn first_words_missed(door: &FrontDoor) {
    door.draining().cancelled().await;
    sleep(FIRST_WORDS_TIME).await;
}

/// Runs the HTTP protocol; returns the reason if the watchdog closed the connection.
async fn drive<S: Serve>(
    entrance: &Entrance<S>,
    listener: &Listener,
    greeted: Greeted,
) -> Option<CloseReason> {
    let door = &entrance.door;
    let (proxies, access) = (Arc::clone(&listener.trusted_proxies), Arc::clone(&listener.access));
    let is_tls = greeted.stream.is_tls();
    let client = ConnectionFacts::new(greeted.address, is_tls, proxies, access);
    let client = match greeted.version {
        ClientProtocol::Http1 => client,
        ClientProtocol::Http2 => client.over_http2(door.rests()),
    };
    let client = Arc::new(if greeted.is_unnamed { client.unnamed() } else { client });
    let (meter, unread) = (Arc::clone(&client.meter), client.unread.clone());
    let Greeted { stream, version, read_ahead, .. } = greeted;
    let (counted, metered) = (Arc::clone(door), Arc::clone(&meter));
    let stream = ClientStream::new(stream, version, read_ahead, counted, metered);
    let service = &entrance.service;
    let serve = |pump, request| service.serve(Arc::clone(&client), pump, request);
    let watchdog = Watchdog::new(door.limits(), version, Instant::now());
    let mut watch = Watch { door, meter: &meter, unread: &unread, watchdog };
    match version {
        ClientProtocol::Http1 => {
            let ended = drive_http1(&mut watch, stream, serve).await;
            if matches!(ended, ServiceEnd::LargeHead) {
                service.note_large_head(Arc::clone(&client));
            }
            ended.reason()
        }
        ClientProtocol::Http2 => {
            let streams = Streams::<S::Pump>::new(door);
            let builder = http2_builder(door, streams.clone());
            let service = service_fn(|request| serve(streams.pump(), request));
            let mut connection = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
            let calls = Calls { finish: http2::Connection::graceful_shutdown, let_go: None };
            watch.run::<_, S::Pump>(connection.as_mut(), None, &calls).await.reason()
        }
    }
}

/// Runs HTTP/1.1. While the connection is at rest, hyper and its buffers are gone.
async fn drive_http1<P: ReplyPump, B, F>(
    watch: &mut Watch<'_>,
    stream: ClientStream,
    serve: impl Fn(Arc<P>, Request<Incoming>) -> F,
) -> ServiceEnd
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
    F: Future<Output = Result<Response<B>, Infallible>> + Unpin,
{
    let builder = http1_builder(watch.door);
    let calls = Calls {
        finish: http1::Connection::graceful_shutdown,
        let_go: Some(|connection, cx| connection.get_mut().poll_without_shutdown(cx)),
    };
    // One pump is enough: HTTP/1.1 sends one reply after the other.
    let pump = Arc::<P>::default();
    let service = service_fn(|request| serve(Arc::clone(&pump), request));
    let mut io = TokioIo::new(stream);
    loop {
        let mut connection = Box::pin(builder.serve_connection(io, &service));
        let ended = watch.run(connection.as_mut(), Some(&pump), &calls).await;
        let parts = Pin::into_inner(connection).into_parts();
        io = parts.io;
        if !matches!(ended, ServiceEnd::AtRest) {
            if ended.reason().is_none() {
                watch.linger(io.inner_mut()).await;
            }
            return ended;
        }
        io.inner_mut().unread(parts.read_buf);
        if let Some(ended) = watch.rest(io.inner_mut()).await {
            return ended;
        }
    }
}

fn http1_builder(door: &FrontDoor) -> http1::Builder {
    let limits = door.limits();
    let mut builder = http1::Builder::new();
    // The watchdog bounds the time of heads: it can distinguish an idle connection from a slow one.
    builder.header_read_timeout(None).max_header_size(limits.header_bytes_max);
    builder.auto_date_header(false);
    // Any other value than hyper's own makes it allocate for every request.
    if limits.headers_max != 100 {
        builder.max_headers(limits.headers_max);
    }
    builder
}

fn http2_builder<P: ReplyPump>(
    door: &FrontDoor,
    streams: Streams<P>,
) -> http2::Builder<Streams<P>> {
    let limits = door.limits();
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(limits.streams_per_connection_max)
        // Twice the limit, since the library answers by itself what is beyond: a head between the two gets
        // an error with its code, and is in the access log.
        .max_header_list_size(u32::try_from(limits.header_bytes_max * 2).unwrap_or(u32::MAX))
        // Per stream, on top of what the client's window allows: a slow reader of many streams must
        // not hold many replies in memory.
        .max_send_buf_size(STREAM_BUFFER_BYTES)
        // A peer that answers no ping is gone, even if TCP still retransmits.
        .keep_alive_interval(Some(limits.idle_timeout_ms.duration() / 2))
        .keep_alive_timeout(limits.head_timeout);
    builder
}
