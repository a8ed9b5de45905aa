//! Serves one client connection from its handshake to its end.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::{sleep, sleep_until, timeout};

use crate::client::client_stream::ClientStream;
use crate::client::connection_facts::ConnectionFacts;
use crate::client::greet::{Greeted, Version, greet};
use crate::client::listener::Listener;
use crate::client::meter::ConnectionMeter;
use crate::client::serve::{Entrance, ReplyPump, Serve};
use crate::client::streams::Streams;
use crate::client::watchdog::{CloseReason, Watchdog};
use crate::front_door::FrontDoor;
use spillway_upstream::memory::Pressure;
use spillway_upstream::wake;

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
    let greeting = timeout(head_timeout, greet(&listener, tcp, peer));
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
/// was accepted, and its client could not tell an end at this point from an end in the middle of
/// its request.
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
    let client = Arc::new(if greeted.is_unnamed { client.unnamed() } else { client });
    let meter = Arc::clone(&client.meter);
    let Greeted { stream, version, read_ahead, .. } = greeted;
    let counted = (Arc::clone(door), Arc::clone(&meter));
    let io = TokioIo::new(ClientStream::new(stream, version, read_ahead, counted));
    let service = entrance.service.clone();
    let serve = move |pump, request| service.serve(Arc::clone(&client), pump, request);
    match greeted.version {
        Version::Http1 => {
            // One pump is enough: HTTP/1.1 sends one reply after the other.
            let pump = Arc::<S::Pump>::default();
            let replies = Arc::clone(&pump);
            let service = service_fn(move |request| serve(Arc::clone(&replies), request));
            let connection = pin!(http1_builder(door).serve_connection(io, service));
            let finish = http1::Connection::graceful_shutdown;
            watch(door, &meter, Some(&pump), connection, finish).await
        }
        Version::Http2 => {
            let streams = Streams::<S::Pump>::new(door);
            let builder = http2_builder(door, streams.clone());
            let service = service_fn(move |request| serve(streams.pump(), request));
            let connection = pin!(builder.serve_connection(io, service));
            let finish = http2::Connection::graceful_shutdown;
            watch::<_, S::Pump>(door, &meter, None, connection, finish).await
        }
    }
}

fn http1_builder(door: &FrontDoor) -> http1::Builder {
    let limits = door.limits();
    let mut builder = http1::Builder::new();
    // The watchdog bounds the time of heads: it can tell an idle connection from a slow one.
    builder.header_read_timeout(None).max_header_size(limits.header_bytes_max);
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
        .max_concurrent_streams(limits.streams_per_connection_max)
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        // Per stream, on top of what the client's window allows: a slow reader of many streams must
        // not hold many replies in memory.
        .max_send_buf_size(STREAM_BUFFER_BYTES)
        // A peer that answers no ping is gone, even if TCP still retransmits.
        .keep_alive_interval(Some(limits.idle_timeout / 2))
        .keep_alive_timeout(limits.head_timeout);
    builder
}

/// Call that tells a hyper connection to finish running requests and then close.
type Finish<C> = fn(Pin<&mut C>);

/// Polls a connection together with its watchdog and the drain signal. An HTTP/1.1 connection has
/// one pump; over HTTP/2 each stream has its own.
///
/// The timer and the signal are polled only to register this task's waker; whether they fired is
/// read from a flag. Polling them at every wake-up would cost each token of each stream.
async fn watch<C: Future<Output = hyper::Result<()>>, P: ReplyPump>(
    door: &FrontDoor,
    meter: &ConnectionMeter,
    pump: Option<&Arc<P>>,
    mut connection: Pin<&mut C>,
    finish: Finish<C>,
) -> Option<CloseReason> {
    let now = Instant::now();
    let version = if pump.is_some() { Version::Http1 } else { Version::Http2 };
    let mut watchdog = Watchdog::new(door.limits(), version, now);
    let mut tick = pin!(sleep_until((now + watchdog.interval()).into()));
    let mut draining = pin!(door.draining().cancelled());
    let mut registered = false;
    let mut closing = false;
    let mut leave_reason = None;
    let mut abandoned_seen = 0;
    poll_fn(|cx| {
        if let Poll::Ready(ended) = wake::once(|| connection.as_mut().poll(cx)) {
            return Poll::Ready(
                leave_reason.or_else(|| ended.err().as_ref().and_then(CloseReason::of_error)),
            );
        }
        if meter.is_flooded() {
            return Poll::Ready(Some(CloseReason::Frames));
        }
        if let Some(pump) = pump {
            // The watchdog counts the bytes that the client takes, so it has no limit here.
            let _: Poll<()> = pump.poll(cx, None);
        }
        if !registered {
            registered = true;
            // The results are read from `is_elapsed` and `is_draining` below.
            let _: Poll<()> = tick.as_mut().poll(cx);
            let _: Poll<()> = draining.as_mut().poll(cx);
        }
        if door.is_draining() && !closing {
            closing = true;
            finish(connection.as_mut());
            cx.waker().wake_by_ref();
        }
        let abandoned = meter.read().abandoned;
        // Abandoned requests are checked at once: a flood of them would be over before the tick.
        if tick.is_elapsed() || abandoned != abandoned_seen {
            abandoned_seen = abandoned;
            let now = Instant::now();
            let is_full = door.memory().pressure() == Pressure::Full;
            let verdict = watchdog.check(meter.read(), is_full, now);
            if tick.is_elapsed() {
                tick.as_mut().reset((now + watchdog.interval()).into());
                registered = false;
                cx.waker().wake_by_ref();
            }
            match verdict {
                // First closed in the protocol's own way; a client that does not react until the
                // next check is cut off.
                Some(CloseReason::Idle) if !closing => {
                    closing = true;
                    leave_reason = verdict;
                    finish(connection.as_mut());
                    cx.waker().wake_by_ref();
                }
                Some(_) => return Poll::Ready(verdict),
                None => {}
            }
        }
        Poll::Pending
    })
    .await
}
