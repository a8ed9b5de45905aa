//! Polls a client connection together with its watchdog and the drain signal.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use spillway_transport::{
    Pressure, REST_FAREWELL_TIME, REST_SILENCE_MAX, REST_TIME_MAX, UnreadBody, coarse_clock,
    rest_bytes_max,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, sleep_until, timeout};

use crate::client::client_stream::ClientStream;
use crate::client::meter::ConnectionMeter;
use crate::client::serve::ReplyPump;
use crate::client::watchdog::Watchdog;
use crate::close_reason::CloseReason;
use crate::front_door::FrontDoor;

/// Time for the last bytes of a connection that is closed at rest.
const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// Room for one read of a body's rest.
const REST_READ_BYTES: usize = 16 << 10;

/// Watch over one client connection, both with hyper and at rest.
pub(super) struct Watch<'a> {
    pub door: &'a FrontDoor,
    pub meter: &'a ConnectionMeter,
    pub unread: &'a UnreadBody,
    pub watchdog: Watchdog,
}

/// Calls of a hyper connection beside polling it.
pub(super) struct Calls<C> {
    /// Call that makes it finish running requests and then close.
    pub finish: fn(Pin<&mut C>),
    /// Call that polls it like its future, but leaves the socket open; `None` if the protocol has
    /// a state that only hyper knows.
    pub let_go: Option<LetGo<C>>,
}

type LetGo<C> = fn(Pin<&mut C>, &mut Context<'_>) -> Poll<hyper::Result<()>>;

/// End of the time in which a connection is with hyper, or at rest.
pub(super) enum ServiceEnd {
    /// The connection is over; with the reason, if the gateway closed it.
    Closed(Option<CloseReason>),
    /// The HTTP library refused a head that was larger than the limit, and closed the connection.
    LargeHead,
    /// The connection is between two requests, and hyper has let go of it.
    AtRest,
}

impl ServiceEnd {
    /// Returns the reason why the gateway closed the connection.
    pub(super) fn reason(&self) -> Option<CloseReason> {
        match self {
            Self::Closed(reason) => *reason,
            Self::LargeHead | Self::AtRest => None,
        }
    }
}

impl Watch<'_> {
    /// Runs a connection until it ends or is at rest. An HTTP/1.1 connection has one pump; over HTTP/2
    /// each stream has its own.
    ///
    /// The timer and the signal are polled only to register this task's waker; whether they fired is
    /// read from a flag. Polling them at every wake-up would cost each token of each stream.
    pub(super) async fn run<C: Future<Output = hyper::Result<()>>, P: ReplyPump>(
        &mut self,
        mut connection: Pin<&mut C>,
        pump: Option<&Arc<P>>,
        calls: &Calls<C>,
    ) -> ServiceEnd {
        let (door, meter) = (self.door, self.meter);
        let mut tick = pin!(sleep_until((Instant::now() + self.watchdog.interval()).into()));
        let mut draining = pin!(door.draining().cancelled());
        let mut registered = false;
        let mut closing = Closing::default();
        let begun = meter.read();
        let mut abandoned_seen = begun.abandoned;
        poll_fn(|cx| {
            if let Poll::Ready(ended) = coarse_clock::once(|| connection.as_mut().poll(cx)) {
                return Poll::Ready(closing.ended(&ended));
            }
            if meter.is_flooded() {
                meter.note_closed_here();
                return Poll::Ready(ServiceEnd::Closed(Some(CloseReason::Frames)));
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
            if door.is_draining() && !closing.has_begun {
                closing.begin(connection.as_mut(), calls, cx);
            }
            let abandoned = meter.read().abandoned;
            let is_tick = tick.is_elapsed();
            // Abandoned requests are checked at once: a flood of them would be over before the tick.
            if !is_tick && abandoned == abandoned_seen {
                return Poll::Pending;
            }
            abandoned_seen = abandoned;
            let now = Instant::now();
            let verdict = self.check(now);
            if is_tick {
                tick.as_mut().reset((now + self.watchdog.interval()).into());
                registered = false;
                cx.waker().wake_by_ref();
            }
            match (verdict, calls.let_go) {
                // First closed in the protocol's own way; a client that does not react until the
                // next check is cut off.
                (Some(CloseReason::Idle), _) if !closing.has_begun => {
                    closing.reason = verdict;
                    closing.begin(connection.as_mut(), calls, cx);
                }
                (Some(_), _) => {
                    meter.note_closed_here();
                    return Poll::Ready(ServiceEnd::Closed(verdict));
                }
                // Hyper has seen a request, and so knows that this is between two.
                (None, Some(let_go)) if !closing.has_begun && self.is_at_rest(begun.requests) => {
                    closing.begin(connection.as_mut(), calls, cx);
                    if let Poll::Ready(Ok(())) = let_go(connection.as_mut(), cx) {
                        return Poll::Ready(ServiceEnd::AtRest);
                    }
                }
                (None, _) => {}
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for bytes of a connection at rest. Returns `None` when there are some, and otherwise how
    /// it has ended.
    pub(super) async fn rest(&mut self, stream: &mut ClientStream) -> Option<ServiceEnd> {
        let reason = loop {
            tokio::select! {
                biased;
                () = poll_fn(|cx| stream.poll_readable(cx)) => return None,
                () = self.door.draining().cancelled() => break None,
                () = sleep(self.watchdog.interval()) => {}
            }
            let verdict = self.check(Instant::now());
            if verdict.is_some() {
                break verdict;
            }
        };
        // An encrypted connection says goodbye; whether the client receives it makes no difference.
        drop(timeout(FAREWELL_TIME, stream.shutdown()).await);
        Some(ServiceEnd::Closed(reason))
    }

    /// Ends a connection on which the client may still send the body of the last request: the rest is
    /// read and discarded, within limits. Call it after the last reply. A close with unread bytes
    /// would reset the connection, and a client that reads its reply only after its last byte would
    /// never see that reply.
    pub(super) async fn linger(&self, stream: &mut ClientStream) {
        if !self.unread.is_left() {
            return;
        }
        let bytes_max = rest_bytes_max(self.door.limits());
        let reading = async {
            // hyper may have done it already. A client that sees the end can stop sending.
            drop(stream.shutdown().await);
            let mut room = vec![0; REST_READ_BYTES];
            let mut bytes = 0;
            while bytes <= bytes_max
                && let Ok(Ok(read @ 1..)) = timeout(REST_SILENCE_MAX, stream.read(&mut room)).await
            {
                bytes += read as u64;
            }
        };
        let draining = async {
            self.door.draining().cancelled().await;
            sleep(REST_FAREWELL_TIME).await;
        };
        tokio::select! {
            () = reading => {}
            () = draining => {}
            () = sleep(REST_TIME_MAX) => {}
        }
    }

    fn check(&mut self, now: Instant) -> Option<CloseReason> {
        let is_full = self.door.memory().pressure() == Pressure::Full;
        self.watchdog.check(self.meter.read(), is_full, now)
    }

    fn is_at_rest(&self, requests_before: u64) -> bool {
        self.watchdog.is_at_rest() && self.meter.read().requests != requests_before
    }
}

/// Progress of closing a connection.
#[derive(Default)]
struct Closing {
    has_begun: bool,
    reason: Option<CloseReason>,
}

impl Closing {
    fn begin<C>(&mut self, connection: Pin<&mut C>, calls: &Calls<C>, cx: &Context<'_>) {
        self.has_begun = true;
        (calls.finish)(connection);
        cx.waker().wake_by_ref();
    }

    fn ended(&self, ended: &hyper::Result<()>) -> ServiceEnd {
        if ended.as_ref().is_err_and(hyper::Error::is_parse_too_large) {
            return ServiceEnd::LargeHead;
        }
        let of_error = || ended.as_ref().err().and_then(CloseReason::of_error);
        ServiceEnd::Closed(self.reason.or_else(of_error))
    }
}

#[cfg(test)]
#[path = "watch_test.rs"]
mod watch_test;
