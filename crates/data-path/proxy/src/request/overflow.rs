//! Use of hosted APIs for a request that no replica of one's own can serve in time.

use std::time::{Duration, SystemTime};

use http::Response;
use spillway_journey::{
    Connection, Journey, Overflow, OverflowEvent, OverflowSight, OverflowStep, RetrySafety,
};
use spillway_protocol::{FailureCause, has_media_type};
use spillway_request::headers::keep_of_hosted_api;
use spillway_route::{Attempt, Group};
use spillway_transport::coarse_clock;
use spillway_types::{Inquiry, ReplicaSlot, TriedTarget, unix_ms};
use spillway_upstream::{FailedAttempt, RequestBody, UpstreamBody};
use spillway_usage::BudgetPeriod;
use spillway_view::{HeldSlot, OverflowCap, overflow_account};

use crate::request::asked::Asked;
use crate::request::dispatch::{Dispatch, Dispatched, JudgedReply, ServedChoice};
use crate::request::record::RequestRecord;

/// Name of the region of hosted APIs: rules that name regions allow none.
const NO_REGION: &str = "";

impl OverflowSight for Dispatch<'_> {
    fn overflow(&self) -> Option<&Group> {
        let group = Dispatch::group(self)?.overflow.as_ref()?;
        let prepared = &self.prepared;
        // Another region's request goes back to its own node, which may know a hosted API. A
        // response that is stored at a replica, or will be looked for there later, is of no use
        // elsewhere.
        let is_free = prepared.inquiry.hop == 0
            && prepared.pinned.is_none()
            && prepared.target.home.is_none()
            && prepared.stored_for.is_none();
        // Hosted APIs read the model from JSON. Forms are passed as they are.
        let is_json = prepared.flavour.is_read()
            && !has_media_type(&self.head.headers, "multipart/form-data");
        let is_sendable = is_json
            && prepared.target.pin.is_none()
            && matches!(prepared.body, RequestBody::Buffered(_));
        (is_free && is_sendable).then_some(group)
    }

    fn may_overflow_to(&self, slot: ReplicaSlot) -> bool {
        let spec = self.view.replica(slot).spec();
        let country = spec.overflow.as_ref().and_then(|overflow| overflow.country);
        let gateway = &self.worker.gateway;
        let Inquiry { tenant, client, residency, .. } = &self.prepared.inquiry;
        residency.may_serve(NO_REGION, country)
            && tenant.as_ref().is_none_or(|tenant| {
                gateway.clients.authenticator.may_serve(tenant, NO_REGION, country)
            })
            && gateway.routing.locations().may_serve(*client, NO_REGION, country)
    }
}

impl Dispatch<'_> {
    /// Counts a request for the caps on the share of those overflow replicas that could serve it.
    #[cold]
    pub(super) fn count_for_overflow(&self) {
        let group = self.group().and_then(|group| group.overflow.as_ref());
        for candidate in group.map(Group::candidates).unwrap_or_default() {
            if let Some(caps) = self.view.replica(candidate.slot).overflow() {
                caps.on_request();
            }
        }
    }

    /// Begins the use of hosted APIs for a request that has waited for long, once.
    #[cold]
    pub(super) fn overflow_instead_of_waiting(&mut self, journey: &Journey) -> Option<Overflow> {
        let group = OverflowSight::overflow(self).filter(|_| !self.interim.has_overflowed)?;
        let spec = |slot: ReplicaSlot| self.view.replica(slot).spec().overflow.as_ref();
        let after =
            group.candidates().iter().filter_map(|one| Some(spec(one.slot)?.after)).min()?;
        // Where no replica is up, no slot comes free soon.
        let is_any_up = self.group().is_some_and(|it| it.is_open() || it.busy_until.is_some());
        let after = if is_any_up { after } else { Duration::ZERO };
        let overflow = Overflow::instead_of_waiting(journey, after, coarse_clock::now())?;
        self.interim.has_overflowed = true;
        Some(overflow)
    }

    /// Asks hosted APIs in place of a replica's refusal. Returns that if none replies with success.
    pub(super) async fn overflow_refusal(
        &mut self,
        mut refusal: Dispatched,
        journey: &Journey,
        record: &mut RequestRecord,
    ) -> Dispatched {
        let Some(overflow) = Overflow::instead_of_refusal(journey) else { return refusal };
        let Some(reply) = self.overflow(overflow, record).await else { return refusal };
        // A reply that is not passed on still says how its replica fares.
        if let Some(observer) = &mut refusal.observer {
            observer.head(&refusal.reply);
        }
        reply
    }

    /// Asks hosted APIs until one replies with success; `None` if none does: then the request ends as
    /// it would without them.
    pub(super) async fn overflow(
        &mut self,
        mut overflow: Overflow,
        record: &mut RequestRecord,
    ) -> Option<Dispatched> {
        loop {
            let mut dice = self.dice.clone();
            let step = overflow.next(self, coarse_clock::now(), &mut dice);
            self.dice = dice;
            let event = match step {
                OverflowStep::TakeAllowance(attempt) => {
                    OverflowEvent::Allowance { is_allowed: self.take_allowance(attempt) }
                }
                OverflowStep::Ask { attempt, connection } => {
                    record.overflowed(overflow.reason());
                    match self.ask_overflow(attempt, connection, record).await {
                        Ok(reply) => return Some(reply),
                        Err(event) => event,
                    }
                }
                OverflowStep::GiveUp => return None,
            };
            overflow.on(event);
        }
    }

    /// Takes one request from the caps of an overflow replica. Returns false, and counts it, if one of
    /// them is reached.
    fn take_allowance(&self, attempt: Attempt) -> bool {
        let replica = self.view.replica(attempt.slot);
        let Some(caps) = replica.overflow() else { return false };
        let account = overflow_account(&replica.spec().name);
        let budgets = &self.worker.gateway.clients.budgets;
        let spent = budgets.check(Some(&account), || unix_ms(SystemTime::now()));
        let reached = match spent {
            Some((spent, _)) if spent.period == BudgetPeriod::Day => Some(OverflowCap::Day),
            Some(_) => Some(OverflowCap::Month),
            // Taken last, so that no other cap uses it up.
            None => (!caps.take_share(coarse_clock::now())).then_some(OverflowCap::Share),
        };
        if let Some(cap) = reached {
            caps.keep(cap);
        }
        reached.is_none()
    }

    /// Sends the request to a hosted API. Returns a reply that began with success.
    ///
    /// # Errors
    /// Returns the event for the decision if there is none.
    async fn ask_overflow(
        &mut self,
        attempt: Attempt,
        connection: Connection,
        record: &mut RequestRecord,
    ) -> Result<Dispatched, OverflowEvent> {
        let Some(mut asked) = self.take_overflow_slot(attempt) else {
            return Err(OverflowEvent::Refused);
        };
        // The queue would call the request while it is served there, and hold back those behind it.
        self.interim.queued_request = None;
        record.asked(&asked.replica.spec().name, &self.prepared.inquiry.prefix, &attempt);
        // Assumed until the API refuses: if the client leaves before that, the API may be at work.
        let was_sent = record.sent(true);
        let reply = self.attempt(&mut asked, connection).await;
        match self.judged(reply, &mut asked).await {
            Ok((reply, reader)) if reply.status().is_success() => {
                Ok(dispatched(asked, (reply, reader)))
            }
            Ok((reply, _)) => {
                record.sent(was_sent);
                let target = TriedTarget::Replica(asked.replica.spec().name.clone());
                let status = reply.status().as_u16();
                record.failed_try(target, FailureCause::ReplicaError.code(), Some(status));
                refused(&mut asked, &reply);
                Err(OverflowEvent::Refused)
            }
            Err(failed) => {
                let event = failed_event(&failed);
                let is_unsent = failed.error.retry_safety() == RetrySafety::Unsent;
                record.sent(was_sent || !is_unsent);
                let replica = &asked.replica.spec().name;
                let code = failed.error.to_gateway_error(replica.as_str()).kind.code();
                record.failed_try(TriedTarget::Replica(replica.clone()), code, None);
                tracing::warn!(%replica, error = %failed.error, "a request to a hosted API failed");
                asked.observer.failed(&failed);
                Err(event)
            }
        }
    }
}

fn dispatched(asked: Asked, (mut reply, reader): JudgedReply) -> Dispatched {
    let Asked { chosen, lease, observer, usage, .. } = asked;
    keep_of_hosted_api(reply.headers_mut());
    Dispatched {
        reply,
        target: HeldSlot::Replica(lease),
        observer: Some(observer),
        choice: ServedChoice::Replica(chosen),
        asked_usage: usage,
        reader,
    }
}

/// Notes a reply without success. The client does not get it: it is about the operator's account,
/// or about features that the hosted API lacks.
fn refused(asked: &mut Asked, reply: &Response<UpstreamBody>) {
    let (replica, status) = (&asked.replica.spec().name, reply.status().as_u16());
    tracing::warn!(%replica, status, "a hosted API refused a request");
    asked.observer.head(reply);
    if status != 400 {
        // A bad key or an empty account is not repaired by the next request.
        asked.replica.rest(coarse_clock::now(), Some(spillway_view::REST_MAX));
    }
}

fn failed_event(failed: &FailedAttempt) -> OverflowEvent {
    OverflowEvent::Failed { safety: failed.error.retry_safety(), was_kept: failed.was_kept }
}
