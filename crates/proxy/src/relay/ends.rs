//! Ends of replies: completed, continued, or broken off with an error.

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use spillway_protocol::grpc::{status_in, trailers_of};
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_types::End;

use crate::relay::events::Events;
use crate::relay::relay_body::{Broken, Relay, RelayError};
use crate::request::RequestRecord;
use spillway_request::flavour::Flavour;
use spillway_upstream::connection::ClientHalf;
use spillway_upstream::learning::Learning;
use spillway_upstream::place::Place;
use spillway_upstream::upstream_body::UpstreamBody;
use spillway_upstream::wake;

impl Relay {
    /// Ends the replica's part. A gRPC reply without a status was cut off: without an error the
    /// client would have to guess the result.
    pub(super) fn finish(&mut self) {
        if self.plan.flavour == Flavour::Grpc && !self.has_status {
            self.last_words = Some(self.break_call_off(End::Cut));
        } else {
            self.complete();
        }
    }

    /// Ends the replica's part in good order, and returns its connection to the pool.
    pub(super) fn complete(&mut self) {
        if let Some(events) = &mut self.events {
            self.last_words = events.finish().map(Frame::data);
        }
        let replica = self.place.as_ref().and_then(Place::replica);
        // Only after a complete reply can a connection serve another request.
        if let Some((connection, replica)) = self.body.take_connection().zip(replica) {
            replica.pool(self.plan.worker.id).put(connection, wake::now());
        }
        self.close(End::Complete);
    }

    /// Ends the replica's part with a failure, unless another replica continues the reply.
    pub(super) fn end_badly(&mut self, end: End) {
        if !self.goes_on(end) {
            self.break_off(end);
        }
    }

    /// Tells the client that the replica's part failed: by an event in the stream's own format, or
    /// else by breaking off the reply, so that it cannot be taken for a complete one.
    pub(super) fn break_off(&mut self, end: End) {
        if self.plan.flavour == Flavour::Grpc {
            self.last_words = Some(self.break_call_off(end));
            return;
        }
        let error = self.ending_error(end);
        // A stream that has sent its last event is complete, however its connection ends.
        if self.events.as_ref().is_some_and(Events::is_done) {
            return self.close(End::Complete);
        }
        let event = self.events.as_ref().and_then(|events| events.error_event(&error));
        self.close(end);
        match event {
            Some(event) => self.last_words = Some(Frame::data(event)),
            None => {
                self.broken = Some(Broken { error: RelayError(error.message), has_waited: false });
            }
        }
    }

    /// Returns the trailers of a call whose replica sent none.
    fn break_call_off(&mut self, end: End) -> Frame<Bytes> {
        // A fault of the client may be the reason why the replica ended its half.
        let fault = self.plan.client_half.as_ref().and_then(ClientHalf::fault).cloned();
        let end = if fault.is_some() { End::Answered } else { end };
        let trailers = trailers_of(&fault.unwrap_or_else(|| self.ending_error(end)));
        if let Some(code) = status_in(&trailers) {
            self.record_mut(|record| record.grpc_status(code));
        }
        self.close(end);
        Frame::trailers(trailers)
    }

    /// Notes the status of a gRPC reply, if these headers have one.
    pub(super) fn note_status(&mut self, headers: &HeaderMap) {
        if self.plan.flavour == Flavour::Grpc
            && let Some(code) = status_in(headers)
        {
            self.has_status = true;
            self.record_mut(|record| record.grpc_status(code));
            if let Some(observer) = &mut self.observer {
                observer.grpc_status(code);
            }
        }
    }

    /// Frees the replica; dropping an unfinished connection aborts its request.
    pub(super) fn close(&mut self, end: End) {
        self.account();
        self.tell_attempt_observer(end);
        self.record_mut(|record| record.end(end));
        self.body = UpstreamBody::Over;
        self.plan.client_half = None;
        self.plan.resume = None;
        self.place = None;
    }

    /// Reports the end of the replica's part to the observer.
    pub(super) fn tell_attempt_observer(&mut self, end: End) {
        // Only a whole reply comes again in the next prompt.
        let is_whole = end == End::Complete;
        let hasher = self.plan.hasher.take().filter(|_| is_whole);
        let forwarded = self.plan.forwarded.take().filter(|_| is_whole);
        if self.observer.is_none() && forwarded.is_none() {
            return;
        }
        let written = hasher.map(|hasher| hasher.finish()).unwrap_or_default();
        let (tokens, usage) = match &self.events {
            // Usage in a stream that was cut short may be too low, so only that of a complete one
            // counts.
            Some(events) => (events.tokens_of_replica(), events.usage().filter(|_| is_whole)),
            None => (
                self.record.as_ref().map(RequestRecord::token_counts).unwrap_or_default(),
                self.usage,
            ),
        };
        if let Some(observer) = &mut self.observer {
            observer.end(end, (tokens, usage), written);
        } else if let Some(mut reply) = forwarded {
            reply.written = written;
            reply.prompt_tokens = usage.map(|usage| usage.prompt_tokens);
            reply.cached_tokens = usage.and_then(|usage| usage.cached_tokens);
            self.plan.worker.teach(Learning::ForwardReplied(reply));
        }
    }

    pub(super) fn account(&mut self) {
        if let Some(events) = &mut self.events {
            let (tokens, gaps) = events.account();
            self.record_mut(|record| record.tokens(tokens, gaps));
        }
    }
}

impl Relay {
    /// Returns the error that a client gets for a reply that failed.
    fn ending_error(&self, end: End) -> GatewayError {
        if end == End::Stalled && !self.has_spoken {
            let message = "the replica did not begin its reply in time";
            return GatewayError::new(ErrorKind::FirstByteTimeout, message);
        }
        ending_error(end)
    }
}

fn ending_error(end: End) -> GatewayError {
    let (kind, message) = match end {
        End::Stalled => (ErrorKind::StreamStalled, "the replica stopped sending"),
        End::DeadlinePassed => (
            ErrorKind::DeadlineExceeded,
            "the request's deadline passed in the middle of the reply",
        ),
        End::Complete
        | End::Answered
        | End::CancelledBeforeReply
        | End::CancelledInReply
        | End::Cut => (ErrorKind::StreamCut, "the replica broke off in the middle of the reply"),
    };
    GatewayError::new(kind, message)
}
