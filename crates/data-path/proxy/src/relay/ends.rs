//! Acts of a relay: its reply continued, completed, or broken off with an error.

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use spillway_journey::{FailureForm, ReplyAction, ReplyEnd, ReplyFault};
use spillway_protocol::grpc::{GrpcStatus, status_in, trailers_of};
use spillway_protocol::{ErrorKind, FailureCause, GatewayError};
use spillway_transport::coarse_clock;
use spillway_types::End;
use spillway_upstream::ClientHalf;
use spillway_view::{HomeNews, Learning, NotKept, StoredResponse};

use crate::relay::content::{Content, counts};
use crate::relay::relay_body::{Broken, Relay, RelayError};
use crate::request::{code_in, engines_died};

impl Relay {
    /// Carries out an action of the state machine.
    pub(super) fn carry_out(&mut self, action: ReplyAction) {
        match action {
            ReplyAction::Proceed => {}
            ReplyAction::Continue(fault) => self.seek(fault),
            ReplyAction::Move => self.seek_better(),
            ReplyAction::KeepAlive => self.keep_alive(),
            ReplyAction::Complete | ReplyAction::Close => self.close(End::Complete),
            ReplyAction::Finish => self.finish(),
            ReplyAction::Release(fault) => {
                if let Some(events) = self.content.events() {
                    events.release_fault();
                }
                self.record_mut(|record| record.failed(FailureCause::ReplicaError.code()));
                self.close(fault.end());
            }
            ReplyAction::Break(fault) => self.break_off(fault),
        }
    }

    /// Ends the source's part in good order, and returns its connection to the pool.
    fn finish(&mut self) {
        if let Some(events) = self.content.events() {
            events.finish();
        }
        if let Some(upstream) = &mut self.upstream {
            let replica = upstream.target.replica();
            // Only after a complete reply can a connection serve another request.
            if let Some((connection, replica)) = upstream.body.take_connection().zip(replica) {
                replica.connections().keep(self.plan.worker.id, connection, coarse_clock::now());
            }
        }
        self.close(self.reply.ended().map_or(End::Complete, ReplyEnd::end));
    }

    /// Reports the failure to the client: by an event in the stream's own format, by trailers, or
    /// else by breaking off the reply, so that it cannot be taken for a complete one.
    fn break_off(&mut self, fault: ReplyFault) {
        if self.content.form() == FailureForm::Call {
            self.own_piece = Some(self.break_call_off(fault));
            return;
        }
        let error = error_of(fault);
        self.record_mut(|record| record.broke_off(&error));
        let event = self.content.events().and_then(|events| events.error_event(&error));
        self.close(fault.end());
        match event {
            Some(event) => self.own_piece = Some(Frame::data(event)),
            None => {
                self.broken = Some(Broken { error: RelayError(error.message), has_waited: false });
            }
        }
    }

    /// Returns the trailers of a call whose replica sent none.
    fn break_call_off(&mut self, fault: ReplyFault) -> Frame<Bytes> {
        // A fault of the client may be the reason why the replica ended its half.
        let of_client = self.plan.client_half.as_ref().and_then(ClientHalf::fault).cloned();
        let end = if of_client.is_some() { End::Answered } else { fault.end() };
        let error = of_client.unwrap_or_else(|| error_of(fault));
        let trailers = trailers_of(&error);
        self.record_mut(|record| record.broke_off(&error));
        if let Some(code) = status_in(&trailers) {
            self.record_mut(|record| record.grpc_status(code));
        }
        self.close(end);
        Frame::trailers(trailers)
    }

    /// Sends the client of a silent stream a sign of life, unless an event is under way.
    fn keep_alive(&mut self) {
        if let Some(events) = self.content.events() {
            self.own_piece = events.keep_alive().map(Frame::data);
        }
    }

    /// Notes the status of a gRPC reply, if these headers have one.
    pub(super) fn note_status(&mut self, headers: &HeaderMap) {
        if let Content::Call { has_status } = &mut self.content
            && let Some(code) = status_in(headers)
        {
            *has_status = true;
            let is_of_region =
                self.upstream.as_ref().is_some_and(|it| it.target.replica().is_none());
            self.record_mut(|record| {
                record.grpc_status(code);
                if code != GrpcStatus::Ok.code() {
                    record.failed(match is_of_region {
                        true => code_in(headers),
                        false => FailureCause::ReplicaError.code(),
                    });
                }
            });
            if let Some(observer) = self.observer() {
                observer.grpc_status(code);
            }
        }
    }

    /// Notes the facts of the reply that are needed before its end.
    pub(super) fn note_facts(&mut self) {
        if self.plan.stored_for.is_none() {
            return;
        }
        let Some(id) = self.content.facts().and_then(|facts| facts.id.clone()) else { return };
        self.remember_response(&id);
    }

    /// Remembers the target of a stored response by its id, under which only the same tenant can ask
    /// for it.
    fn remember_response(&mut self, id: &str) {
        let Some(upstream) = &self.upstream else { return };
        let Some(model) = self.plan.stored_for.take() else { return };
        let (home, tenant) = (upstream.target.home(), self.plan.tenant.clone());
        let stored = StoredResponse { home, tenant, model };
        let gateway = &self.plan.worker.gateway;
        // If another region serves the response, that region sends the news: it knows the replica.
        let is_told = upstream.target.replica().is_some() && gateway.homes.outbox.is_open();
        let told = is_told.then(|| stored.clone());
        match gateway.homes.responses.keep(id, stored, coarse_clock::now()) {
            Ok(()) => {
                if let Some(response) = told {
                    gateway.homes.outbox.push(|| HomeNews::Response { id: id.into(), response });
                }
            }
            Err(NotKept::Taken) => tracing::warn!(
                id, tenant = ?self.plan.tenant,
                "a replica gave out the id of another response: this reply can't be asked for again"
            ),
            Err(NotKept::LongId) => tracing::debug!(
                bytes = id.len(),
                "the id of a response is too long: the reply can't be asked for again"
            ),
        }
    }

    /// Frees the source; dropping an unfinished connection aborts its request.
    pub(super) fn close(&mut self, end: End) {
        self.account();
        self.report_part(end);
        self.record_mut(|record| record.end(end));
        self.plan.client_half = None;
        self.plan.resume = None;
        self.upstream = None;
    }

    /// Reports the end of the source's part to its observer.
    pub(super) fn report_part(&mut self, end: End) {
        // Only a whole reply is repeated in the next prompt.
        let is_whole = end == End::Complete;
        let hasher = self.plan.hasher.take().filter(|_| is_whole);
        let forwarded = self.plan.forwarded.take().filter(|_| is_whole);
        let observer = self.upstream.as_mut().and_then(|upstream| upstream.observer.take());
        if observer.is_none() && forwarded.is_none() {
            return;
        }
        let written = hasher.map(|hasher| hasher.finish()).unwrap_or_default();
        let tokens = self.content.tokens_of_source();
        // Usage in a stream that was cut short may be too low, so only that of a complete one
        // counts. What can't be true teaches nothing.
        let usage = self.content.facts().and_then(|facts| facts.usage).filter(|usage| {
            let record = self.record.as_ref();
            is_whole && record.is_none_or(|record| record.can_have_used(counts(*usage)))
        });
        if let Some(mut observer) = observer {
            observer.end(end, tokens, usage, written);
        } else if let Some(mut reply) = forwarded {
            reply.written = written;
            reply.prompt_tokens = usage.map(|usage| usage.prompt_tokens);
            reply.cached_tokens = usage.and_then(|usage| usage.cached_tokens);
            self.plan.worker.teach(Learning::ForwardReplied(reply));
        }
    }

    /// Notes the tokens so far in the record, and what an error that is passed on is called.
    pub(super) fn account(&mut self) {
        if let Some(error) = self.content.facts().and_then(|facts| facts.error.as_ref())
            && let Some(record) = &mut self.record
        {
            record.replica_says(error);
        }
        match &mut self.content {
            Content::Events(events) => {
                let (tokens, gaps) = events.account();
                self.record_mut(|record| record.tokens(tokens, gaps));
            }
            Content::Document(_) => {
                if let Some(usage) = self.content.facts().and_then(|facts| facts.usage) {
                    self.record_mut(|record| record.usage_reported(counts(usage)));
                }
            }
            Content::Call { .. } | Content::Bytes => {}
        }
    }
}

/// Returns the error that a client gets for a reply that failed.
pub(super) fn error_of(fault: ReplyFault) -> GatewayError {
    let (kind, message) = match fault {
        ReplyFault::NotBegun => {
            (ErrorKind::FirstByteTimeout, "the replica did not begin its reply in time")
        }
        ReplyFault::Stalled => (ErrorKind::StreamStalled, "the replica stopped sending"),
        ReplyFault::DeadlinePassed => (
            ErrorKind::DeadlineExceeded,
            "the request's deadline passed in the middle of the reply",
        ),
        ReplyFault::Lost => {
            (ErrorKind::StreamCut, "the region that served the reply can't be reached any more")
        }
        ReplyFault::Down => {
            (ErrorKind::StreamCut, "the replica went down in the middle of the reply")
        }
        ReplyFault::Aborted => (ErrorKind::StreamCut, "the replica aborted the request"),
        ReplyFault::Unfinished => {
            (ErrorKind::StreamCut, "the replica ended the reply before the answer was complete")
        }
        ReplyFault::GivenUp => return engines_died(),
        ReplyFault::Cut | ReplyFault::Reported(_) => {
            (ErrorKind::StreamCut, "the replica broke off in the middle of the reply")
        }
    };
    GatewayError::new(kind, message)
}
