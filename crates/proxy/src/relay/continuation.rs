//! Continuation of streams by another replica.

use bytes::Bytes;
use http_body::Frame;
use spillway_journey::{BreakCause, StreamBreak, StreamEnd, StreamRest, StreamStep};
use spillway_protocol::Next;
use spillway_types::End;

use crate::relay::events::Events;
use crate::relay::relay_body::Relay;
use crate::request::{ContinuationFound, ContinuationPosition};
use spillway_upstream::continuations::Continuation;
use spillway_upstream::place::Place;
use spillway_upstream::upstream_body::UpstreamBody;
use spillway_upstream::wake;

impl Relay {
    /// Tries to continue a stream whose replica's part ended like this. Returns true if another
    /// replica is looked for, or if only the last events were missing.
    pub(super) fn goes_on(&mut self, end: End) -> bool {
        let is_told = self.events.as_ref().is_some_and(Events::has_fault);
        let Some(cause) = BreakCause::of(end, is_told) else { return false };
        // Taken, so that a stream that can't be continued now is not continued after a later
        // failure either.
        let Some(mut resume) = self.plan.resume.take() else { return false };
        // A stream that has sent its end needs no continuation.
        let Some(events) = self.events.as_mut().filter(|events| !events.is_done()) else {
            return false;
        };
        let terms = resume.terms();
        let next = events.broke_off(terms.as_ref().map_err(|unfit| *unfit));
        let from = match next {
            Next::Behind => events.end_so_far(),
            Next::Afresh | Next::Ended(_) | Next::Unfit(_) => ContinuationPosition::Start,
        };
        let rest = rest(&next, &from);
        let place = self.place.as_ref().map(Place::of_stream);
        match (resume.broke(StreamBreak { place, rest }), next) {
            (StreamStep::End(StreamEnd::Complete), Next::Ended(last)) => {
                self.count(Continuation::Over(cause, StreamEnd::Complete));
                self.end_without(last, end);
                return true;
            }
            (StreamStep::End(why), _) if !why.is_after_search() => {
                self.count(Continuation::Over(cause, why));
                return false;
            }
            _ => {}
        }
        // The record leaves with the search, so the tokens are noted first.
        self.account();
        self.tell_attempt_observer(end);
        self.observer = None;
        // Dropping the connection also stops a replica that is only slow.
        self.body = UpstreamBody::Over;
        self.place = None;
        let Some(record) = self.record.take() else { return false };
        self.seeking = Some((end, resume.seek(record, from)));
        true
    }

    /// Handles an error event of the replica: another replica continues the stream, or else the
    /// event is passed on to the client.
    pub(super) fn break_by_word(&mut self) {
        if !self.goes_on(End::Cut)
            && let Some(events) = &mut self.events
        {
            events.release_fault();
        }
    }

    /// Completes a stream whose replica failed when only the last events were missing.
    fn end_without(&mut self, last: Bytes, end: End) {
        self.last_words = (!last.is_empty()).then(|| Frame::data(last));
        self.tell_attempt_observer(end);
        self.observer = None;
        self.close(End::Complete);
    }

    fn count(&self, what: Continuation) {
        self.plan.worker.gateway.counters.continuations.count(what);
    }

    /// Releases memory of the request once its stream can no longer be continued.
    pub(super) fn forget_if_unfit(&mut self) {
        if let (Some(resume), Some(events)) = (&mut self.plan.resume, &self.events)
            && events.is_unfit()
        {
            resume.forget();
        }
    }
}

impl ContinuationFound {
    /// Continues the relay with the replica that was found; returns `false` if there is none.
    pub(super) fn settle(self, relay: &mut Relay) -> bool {
        let Self { resume, mut record, found } = self;
        let end = relay.seeking.take().map_or(End::Cut, |(end, _)| end);
        let is_told = relay.events.as_ref().is_some_and(Events::has_fault);
        let cause = BreakCause::of(end, is_told).unwrap_or(BreakCause::Cut);
        let what = match found {
            Ok(dispatched) => {
                record.resumed();
                relay.body = dispatched.reply.into_body();
                relay.place = Some(dispatched.place);
                relay.observer = dispatched.observer;
                if resume.hides_cache_at(relay.place.as_ref()) {
                    // The first replica may have kept the tenants' caches apart, and this one does
                    // not.
                    relay.plan.mask.get_or_insert_default();
                }
                relay.plan.resume = Some(resume);
                // The time-outs of the new replica begin now.
                relay.last_piece_at = wake::now();
                relay.plan.asked_at = relay.last_piece_at;
                if let Some(events) = &mut relay.events {
                    events.take_up();
                }
                Continuation::Continued(cause)
            }
            Err(why) => Continuation::Over(cause, why),
        };
        relay.record = Some(record);
        relay.count(what);
        relay.place.is_some()
    }
}

/// Returns the part of the stream that its client lacks.
fn rest(next: &Next, from: &ContinuationPosition) -> StreamRest {
    match (next, from) {
        (Next::Ended(_), _) => StreamRest::LastEvents,
        (Next::Unfit(unfit), _) => StreamRest::Unfit(unfit.name()),
        (Next::Afresh | Next::Behind, ContinuationPosition::Start) => StreamRest::Whole,
        (Next::Afresh | Next::Behind, ContinuationPosition::Behind { .. }) => StreamRest::Text,
    }
}
