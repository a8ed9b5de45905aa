//! One act of a request: a replica is asked, and its reply or its failure is taken.

use http::Response;
use spillway_journey::{Connection, Event, Journey, Position, RetrySafety, StatusClass, Step};
use spillway_protocol::{FailureCause, ReplyApi};
use spillway_request::flavour::Flavour;
use spillway_request::prepared::Prepared;
use spillway_route::{Attempt, Candidate};
use spillway_transport::coarse_clock;
use spillway_types::TriedTarget;
use spillway_upstream::{AttemptError, FailedAttempt, UpstreamBody};
use spillway_view::{HeldSlot, HomeNews, UsageReports};

use crate::request::asked::Asked;
use crate::request::dispatch::{Dispatch, Dispatched, JudgedReply, ServedChoice};
use crate::request::record::RequestRecord;
use crate::request::whole_reply::{Judging, judge};

impl Dispatch<'_> {
    /// Asks one replica, or two if the first is silent for long. Returns the reply that ends the
    /// journey.
    pub(super) async fn ask_replica(
        &mut self,
        chosen: Attempt,
        connection: Connection,
        journey: &mut Journey,
        record: &mut RequestRecord,
    ) -> Option<Dispatched> {
        let Some(mut asked) = self.take_slot(chosen, journey) else {
            self.tell(journey, Event::NoSlot);
            return None;
        };
        self.interim.queued_request = None;
        // From now on the request counts at the replica itself.
        self.prepared.target.coming = None;
        self.began(journey);
        if journey.position() == Position::AtTurn {
            // Where this request has found a slot there may be more.
            self.worker.gateway.routing.waiting.wake();
        }
        self.tell(journey, Event::Asked);
        // After a death, the break of a kept connection could not be distinguished from another
        // death.
        let connection = if journey.deaths() > 0 { Connection::New } else { connection };
        record.asked(&asked.replica.spec().name, &self.prepared.inquiry.prefix, &chosen);
        self.begin_session(&asked);
        // Assumed until the replica refuses: if the client leaves before that, a replica may be at
        // work.
        let was_sent = record.sent(true);
        let reply = match self.hedging(journey) {
            Some(hedging) => {
                // Boxed, since few requests need its room.
                let race = Box::pin(self.race(hedging, (asked, connection), journey, record));
                let (last, reply) = race.await;
                asked = last;
                reply
            }
            None => self.attempt(&mut asked, connection).await,
        };
        let reply = self.judged(reply, &mut asked).await;
        let is_refused = match &reply {
            Ok((reply, _)) => status_class(reply) == StatusClass::NoRoom,
            Err(failed) => failed.error.retry_safety() == RetrySafety::Unsent,
        };
        record.sent(was_sent || !is_refused);
        match reply {
            Ok(reply) => {
                let reply = self.take_reply(asked, reply, journey, record)?;
                if is_refused && self.view.has_overflow() {
                    // Boxed, since few requests need its room.
                    return Some(Box::pin(self.overflow_refusal(reply, journey, record)).await);
                }
                Some(reply)
            }
            Err(failed) => {
                self.take_failure(asked, &failed, journey, record);
                None
            }
        }
    }

    /// Tells the other nodes of a new session when its replica is asked: when the reply is over, any
    /// of them may get the next request.
    fn begin_session(&mut self, asked: &Asked) {
        let Some(key) = self.prepared.target.new_session.take() else { return };
        let route = &self.prepared.route;
        let Some(sessions) = route.sessions.as_ref() else { return };
        // A session is of the model that the client named.
        if self.prepared.fell_back_from().is_some() {
            return;
        }
        let replica = Candidate::identity_of(&asked.replica.spec().name);
        if let Some(home) = sessions.begun(key, replica, coarse_clock::now()) {
            let route = || route.spec.name.clone();
            let outbox = &self.worker.gateway.homes.outbox;
            outbox.push(|| HomeNews::Session { route: route(), key, home });
        }
    }

    /// Takes a reply that began. Returns it unless a better one is sought.
    fn take_reply(
        &mut self,
        asked: Asked,
        (reply, reader): JudgedReply,
        journey: &mut Journey,
        record: &mut RequestRecord,
    ) -> Option<Dispatched> {
        let Asked { chosen, lease, observer, usage, .. } = asked;
        let status = status_class(&reply);
        let mut dispatched = Dispatched {
            reply,
            target: HeldSlot::Replica(lease),
            observer: Some(observer),
            choice: ServedChoice::Replica(chosen),
            asked_usage: usage,
            reader,
        };
        let can_repeat = !self.prepared.body.is_gone();
        self.tell(journey, Event::Replied { status, can_repeat });
        if !self.retry_after_reply(journey, record) {
            return Some(dispatched);
        }
        // A reply that is held back still says how its replica fares.
        if let Some(observer) = &mut dispatched.observer {
            observer.head(&dispatched.reply);
        }
        let status = dispatched.reply.status().as_u16();
        record.failed_try(
            dispatched.target.tried(),
            FailureCause::ReplicaError.code(),
            Some(status),
        );
        // The first error reply is kept for the client, in case that no better one comes.
        self.interim.held.get_or_insert_with(|| Box::new(dispatched));
        None
    }

    /// Takes the failure of an attempt.
    fn take_failure(
        &mut self,
        mut asked: Asked,
        failed: &FailedAttempt,
        journey: &mut Journey,
        record: &mut RequestRecord,
    ) {
        let name = &asked.replica.spec().name;
        tracing::debug!(replica = %name, error = %failed.error, "attempt failed");
        if let Some(fault) = self.prepared.body.fault() {
            self.interim.failure = Some(fault.clone());
            self.tell(journey, Event::ClientFault);
            return;
        }
        // Only now: a client's bad upload is no fault of the replica.
        asked.observer.failed(failed);
        let error = failed.error.to_gateway_error(name.as_str());
        record.failed_try(TriedTarget::Replica(name.clone()), error.kind.code(), None);
        self.interim.failure = Some(error);
        let can_repeat = !self.prepared.body.is_gone();
        let event = match failed.error {
            AttemptError::NoModel => Event::LacksModel { can_repeat },
            _ => Event::Failed {
                safety: failed.error.retry_safety(),
                is_fault: failed.fault().is_some(),
                was_kept: failed.was_kept,
                can_repeat,
                is_death: failed.error.is_death(),
            },
        };
        self.tell(journey, event);
        self.prepared.deaths = journey.deaths();
    }

    /// Judges the reply of an attempt, and asks again without usage options that it refuses.
    pub(super) async fn judged(
        &mut self,
        reply: Result<Response<UpstreamBody>, FailedAttempt>,
        asked: &mut Asked,
    ) -> Result<JudgedReply, FailedAttempt> {
        let reply = match reply? {
            // Boxed, since few requests need its room.
            refusal if asked.may_refuse_usage(&refusal) => {
                Box::pin(self.ask_for_less_usage(asked, refusal)).await?
            }
            reply => reply,
        };
        match self.judging(asked) {
            Some(judging) => judge(reply, judging)
                .await
                .map_err(|error| FailedAttempt { error, was_kept: false }),
            None => Ok((reply, None)),
        }
    }

    /// Returns how the replies of an attempt are judged; `None` on routes whose replies are unknown.
    fn judging(&self, asked: &Asked) -> Option<Judging<'_>> {
        let Prepared { flavour, inquiry, .. } = &*self.prepared;
        (*flavour != Flavour::Raw).then(|| Judging {
            is_call: *flavour == Flavour::Grpc,
            api: flavour.is_read().then(|| ReplyApi::of_path(self.head.uri.path())),
            model: inquiry.model.as_ref(),
            is_known: asked.replica.spec().usage_reports != UsageReports::None,
            first_byte: self.prepared.route.spec.timeouts.first_byte,
            idle: self.prepared.route.spec.timeouts.idle,
            deadline: self.prepared.inquiry.deadline.at(),
        })
    }

    /// Takes the retry that follows an error reply. Returns false if none follows: the reply is the
    /// client's.
    fn retry_after_reply(&mut self, journey: &mut Journey, record: &mut RequestRecord) -> bool {
        if journey.ending().is_some() {
            return false;
        }
        match self.next(journey) {
            Step::TakeRetry(safety) => self.take_retry(safety, journey, record),
            _ => false,
        }
    }
}

fn status_class(reply: &Response<UpstreamBody>) -> StatusClass {
    StatusClass::of(reply.status().as_u16())
}
