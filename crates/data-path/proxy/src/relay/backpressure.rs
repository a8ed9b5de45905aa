//! Reads a reply ahead of a slow client, so that the replica's slot becomes free.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use spillway_protocol::FailureCause;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::relay::ahead::Ahead;
use crate::relay::relay_body::Relay;

/// Time for a client to take a piece before its reply is read ahead. Shorter pauses are part of
/// every long reply: new bytes wait in the replica's socket, which costs no copy.
const GRACE: Duration = Duration::from_millis(20);

/// Interval at which a reply without room checks again: room that others release is not announced.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Lag of a client behind its reply.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// Start of the client's pause; set at the first poll after a piece.
    since: Option<Instant>,
    /// Timer; made at the first pause, since most clients never need it.
    timer: Option<Pin<Box<Sleep>>>,
    /// Bytes read ahead of the client; `None` if it never lagged.
    ahead: Option<Box<Ahead>>,
    has_begun: bool,
    /// True if there was no more room at some time.
    was_full: bool,
}

impl Relay {
    /// Continues the reply while the client takes nothing. Call it after each poll that left a
    /// piece with the client. Ready once the client has not taken that piece for `patience`.
    pub(super) fn poll_behind(
        &mut self,
        cx: &mut Context<'_>,
        patience: Option<Duration>,
    ) -> Poll<()> {
        let now = Instant::now();
        let since = *self.behind.since.get_or_insert(now);
        // A client that has not taken the bytes read before gets no second grace.
        if self.behind.has_all()
            && now < since + GRACE
            && self.behind.poll_until(since + GRACE, cx).is_pending()
        {
            return Poll::Pending;
        }
        self.read_ahead(cx);
        match patience {
            Some(patience) => {
                let cut_off = self.behind.poll_until(since + patience, cx);
                if cut_off.is_ready() {
                    self.record_mut(|record| record.failed(FailureCause::ConnectionClosed.code()));
                }
                cut_off
            }
            None => Poll::Pending,
        }
    }

    fn read_ahead(&mut self, cx: &mut Context<'_>) {
        // A reply that has ended needs no buffer.
        if !self.is_served() {
            return;
        }
        let mut ahead = self.behind.ahead.take().unwrap_or_else(|| self.begin_ahead());
        while self.is_served() {
            if !ahead.has_room() {
                self.wait_for_room(&mut ahead, cx);
                break;
            }
            match self.poll_piece(cx) {
                Poll::Ready(Some(frame)) => {
                    ahead.push(frame);
                    self.note_begun();
                }
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        self.behind.ahead = Some(ahead);
    }

    fn begin_ahead(&self) -> Box<Ahead> {
        let gateway = &self.plan.worker.gateway;
        let room = gateway.door.memory().ahead();
        let ahead = Ahead::new(Arc::clone(room), gateway.door.limits().read_ahead_bytes_max);
        Box::new(ahead)
    }

    /// Makes the replica wait for the client; only the request's own time limits run on.
    fn wait_for_room(&mut self, ahead: &mut Ahead, cx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.behind.was_full, true) {
            self.plan.worker.gateway.door.memory().ahead().count_full();
        }
        if let Some(observer) = self.upstream.as_mut().and_then(|it| it.observer.as_mut()) {
            observer.held_up();
        }
        // The timer may fire early; the woken task checks everything again.
        let _: Poll<()> = self.behind.poll_until(Instant::now() + LOOK_AGAIN, cx);
        if self.poll_paused(cx).is_pending() {
            return;
        }
        // Bytes that were read already go before the message about the end.
        while let Some(piece) = self.content.pop() {
            ahead.push(Frame::data(piece));
        }
    }

    fn note_begun(&mut self) {
        if !std::mem::replace(&mut self.behind.has_begun, true) {
            self.plan.worker.gateway.door.memory().ahead().count_begun();
        }
    }
}

impl Behind {
    /// Returns the next frame for a client that lagged; `None` if it has all that was read ahead.
    pub(super) fn catch_up(&mut self) -> Option<Frame<Bytes>> {
        self.since = None;
        self.ahead.as_mut()?.pop()
    }

    /// Returns true if the client has all that was read.
    pub(super) fn has_all(&self) -> bool {
        self.ahead.as_ref().is_none_or(|ahead| ahead.is_empty())
    }

    /// Returns ready from `due` on.
    fn poll_until(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        // An early wake-up costs less than resetting the timer for each piece.
        if timer.deadline() > due {
            timer.as_mut().reset(due);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= due {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}
