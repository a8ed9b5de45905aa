//! Continuation of streams by another target.

use http_body::Frame;
use spillway_journey::{
    BreakCause, ReplyEvent, ReplyFault, StreamBreak, StreamEnd, StreamRest, StreamStep,
};
use spillway_protocol::{FailureCause, Next};
use spillway_view::Continuation;

use crate::relay::ends::error_of;
use crate::relay::relay_body::{Relay, Upstream};
use crate::request::{ContinuationFound, ContinuationPosition, is_known_engine};

impl Relay {
    /// Begins the search for a target that continues the stream, whose own has failed.
    pub(super) fn seek(&mut self, fault: ReplyFault) {
        let cause = fault.break_cause();
        // A stream that can't be continued now is not continued after a later failure either.
        let Some(mut resume) = self.plan.resume.take() else {
            return self.report(ReplyEvent::NotContinued(StreamEnd::NoTargetLeft));
        };
        let Some(events) = self.content.events() else {
            return self.report(ReplyEvent::NotContinued(StreamEnd::NoTargetLeft));
        };
        let terms = resume.terms();
        let next = events.next(terms.as_ref().map_err(|unfit| *unfit));
        let from = match next {
            Next::Behind => events.end_so_far(),
            Next::Afresh | Next::Ended(_) | Next::Unfit(_) => ContinuationPosition::Start,
        };
        let rest = rest(&next, &from);
        let target = self.upstream.as_ref().map(|upstream| upstream.target.of_stream());
        let is_death = fault.is_death(self.reply.source());
        match resume.broke(StreamBreak { target, rest, cause, is_death }) {
            StreamStep::End(end) => {
                if let (StreamEnd::Complete, Next::Ended(last)) = (end, next) {
                    self.own_piece = (!last.is_empty()).then(|| Frame::data(last));
                    // The source failed, although the client misses nothing.
                    self.report_part(fault.end());
                }
                self.count(Continuation::Over(cause, end));
                self.warn_of_deaths(end);
                self.report(ReplyEvent::NotContinued(end));
            }
            _ => {
                // The record leaves with the search, so the tokens are noted first.
                self.account();
                self.report_part(fault.end());
                let tried = self.upstream.as_ref().map(|upstream| upstream.target.tried());
                // Dropping the connection also stops a replica that is only slow.
                self.upstream = None;
                let Some(mut record) = self.record.take() else { return };
                if let Some(target) = tried {
                    record.failed_try(target, error_of(fault).kind.code(), None);
                }
                self.seeking = Some(resume.seek(record, from, cause));
            }
        }
    }

    /// Begins the search for a target with room that continues a stream whose source is being
    /// drained. The source keeps its reply until one is found.
    pub(super) fn seek_better(&mut self) {
        let from = self.position();
        let (Some(from), Some(mut resume)) = (from, self.plan.resume.take()) else {
            return self.report(ReplyEvent::NotContinued(StreamEnd::NoTargetLeft));
        };
        let rest = match from {
            ContinuationPosition::Start => StreamRest::Whole,
            ContinuationPosition::Behind { .. } => StreamRest::Text,
        };
        let target = self.upstream.as_ref().map(|upstream| upstream.target.of_stream());
        let cause = BreakCause::Drained;
        let _step = resume.broke(StreamBreak { target, rest, cause, is_death: false });
        self.account();
        let Some(record) = self.record.take() else { return };
        self.seeking = Some(resume.seek(record, from, cause));
    }

    /// Returns the position from which another target can continue the stream now; `None` if none
    /// can.
    fn position(&mut self) -> Option<ContinuationPosition> {
        let terms = self.plan.resume.as_ref()?.terms();
        let events = self.content.events()?;
        match events.next(terms.as_ref().map_err(|unfit| *unfit)) {
            Next::Behind => Some(events.end_so_far()),
            Next::Afresh => Some(ContinuationPosition::Start),
            // Its last events are being sent.
            Next::Ended(_) | Next::Unfit(_) => None,
        }
    }

    /// Returns true if a stream whose source is being drained, or is silent, has somewhere to go.
    pub(super) fn may_move(&self) -> bool {
        let resume = self.plan.resume.as_ref();
        self.reply.is_continuable() && resume.is_some_and(|resume| resume.has_room_elsewhere())
    }

    /// Goes on as the search for a target ended.
    pub(super) fn found(&mut self, found: ContinuationFound) {
        self.seeking = None;
        let ContinuationFound { mut resume, mut record, cause, found } = found;
        let what = match &found {
            Ok(_) => Continuation::Continued(cause),
            Err(end) => Continuation::Over(cause, *end),
        };
        let event = match found {
            Ok(dispatched) => {
                record.resumed();
                if let Some(mut left) = self.upstream.take() {
                    record.failed_try(left.target.tried(), FailureCause::Drained.code(), None);
                    // It is left for its drain alone, which is no fault.
                    if let Some(observer) = &mut left.observer {
                        observer.left();
                    }
                }
                let target = dispatched.target;
                if resume.hides_cache_at(Some(&target)) {
                    // The first replica may have kept the tenants' caches apart, and this one does
                    // not.
                    self.plan.mask.get_or_insert_default();
                }
                let source = target.source();
                let is_known_engine = is_known_engine(&target);
                let strips_usage = resume.strips_usage(dispatched.asked_usage);
                let body = dispatched.reply.into_body();
                self.upstream = Some(Upstream { body, target, observer: dispatched.observer });
                if let Some(events) = self.content.events() {
                    events.take_up(strips_usage, is_known_engine);
                }
                self.plan.resume = Some(resume);
                ReplyEvent::Continued(source)
            }
            Err(end) => {
                if cause == BreakCause::Drained {
                    resume.stays();
                    self.plan.resume = Some(resume);
                }
                ReplyEvent::NotContinued(end)
            }
        };
        self.record = Some(record);
        // A stream that stays where it drains misses nothing.
        if !matches!(what, Continuation::Over(BreakCause::Drained, _)) {
            self.count(what);
        }
        if let Continuation::Over(_, end) = what {
            self.warn_of_deaths(end);
        }
        self.report(event);
    }

    fn count(&self, what: Continuation) {
        self.plan.worker.gateway.counters.continuations.count(what);
    }

    /// Logs and counts a request that is not tried again, since engines died with it.
    fn warn_of_deaths(&self, end: StreamEnd) {
        if end == StreamEnd::Deaths
            && let Some(record) = &self.record
        {
            record.engines_died();
        }
    }

    /// Releases memory of the request once its stream can no longer be continued.
    pub(super) fn forget_if_unfit(&mut self) {
        let Some(resume) = &mut self.plan.resume else { return };
        if self.content.events().is_some_and(|events| events.is_unfit()) {
            resume.forget();
        }
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
