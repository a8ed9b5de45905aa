//! Continuation of streams by another replica.

use std::time::Instant;

use bytes::Bytes;
use http_body::Frame;
use spillway_protocol::Next;
use spillway_types::End;

use crate::continuations::{Broke, Continuation, ContinuationRefused};
use crate::relay::events::Events;
use crate::relay::relay_body::Relay;
use crate::request::{ContinuationFound, ContinuationPosition};

impl Relay {
    /// Tries to continue a stream whose replica's part ended like this. Returns true if another
    /// replica is looked for, or if only the last events were missing.
    pub(super) fn goes_on(&mut self, end: End) -> bool {
        let is_told = self.events.as_ref().is_some_and(Events::has_fault);
        let Some(broke) = broke(end, is_told) else { return false };
        let Some(resume) = self.plan.resume.take() else { return false };
        // A stream that has sent its end needs no continuation.
        let Some(events) = self.events.as_mut().filter(|events| !events.is_done()) else {
            return false;
        };
        let terms = resume.terms();
        let from = match events.broke_off(terms.as_ref().map_err(|unfit| *unfit)) {
            Next::Ended(last) => {
                self.end_without(last, end, broke);
                return true;
            }
            Next::Unfit(unfit) => return self.refuse(ContinuationRefused::Unfit(unfit)),
            Next::Afresh => ContinuationPosition::Start,
            Next::Behind => events.end_so_far(),
        };
        if !resume.has_turns() {
            return self.refuse(ContinuationRefused::Count);
        }
        if !resume.is_in_budget() {
            return self.refuse(ContinuationRefused::Budget);
        }
        self.account();
        self.tell_witness(end);
        self.observer = None;
        // Dropping the connection also stops a replica that is only slow.
        self.connection = None;
        let place = self.place.take();
        let Some(record) = self.record.take() else { return false };
        self.seeking = Some((end, resume.seek(record, place.as_ref(), from)));
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
    fn end_without(&mut self, last: Bytes, end: End, broke: Broke) {
        self.count(Continuation::Ended(broke));
        self.last_words = (!last.is_empty()).then(|| Frame::data(last));
        self.tell_witness(end);
        self.observer = None;
        self.close(End::Complete);
    }

    fn refuse(&self, why: ContinuationRefused) -> bool {
        self.count(Continuation::Refused(why));
        false
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
        let what = match (found, broke(end, is_told)) {
            (Ok(dispatched), broke) => {
                record.resumed();
                relay.body = dispatched.reply.response.into_body();
                relay.connection = dispatched.reply.connection;
                relay.place = Some(dispatched.place);
                relay.observer = dispatched.observer;
                if resume.hides_cache_at(relay.place.as_ref()) {
                    // The first replica may have kept the tenants' caches apart, and this one does
                    // not.
                    relay.plan.mask.get_or_insert_default();
                }
                relay.plan.resume = Some(resume);
                // The time-outs of the new replica begin now.
                relay.last_piece_at = Instant::now();
                relay.plan.asked_at = relay.last_piece_at;
                if let Some(events) = &mut relay.events {
                    events.take_up();
                }
                Continuation::Continued(broke.unwrap_or(Broke::Cut))
            }
            (Err(failed), _) => Continuation::Failed(failed),
        };
        relay.record = Some(record);
        relay.count(what);
        relay.place.is_some()
    }
}

/// Returns the kind of a replica's failure; `None` for an end that is not the replica's fault.
fn broke(end: End, is_told: bool) -> Option<Broke> {
    match end {
        End::Cut if is_told => Some(Broke::Error),
        End::Cut => Some(Broke::Cut),
        End::Stalled => Some(Broke::Stalled),
        End::Complete
        | End::Answered
        | End::CancelledBeforeReply
        | End::CancelledInReply
        | End::DeadlinePassed => None,
    }
}
