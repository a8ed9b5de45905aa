//! Driver of a request's journey: carries out one step after the other, and hands in an event for
//! each.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use http::Response;
use http::request::Parts;
use spillway_journey::{
    ComparedCosts, Ending, Event, Journey, Notes, Overflow, RetrySafety, Step, TenantKey,
};
use spillway_protocol::{GatewayError, UsageWish, WholeReader};
use spillway_request::prepared::Prepared;
use spillway_route::{Attempt, SpillReason};
use spillway_transport::coarse_clock;
use spillway_types::{Compared, Inquiry};
use spillway_upstream::UpstreamBody;
use spillway_view::{HeldSlot, QueuedRequest, Regions, RouteGroup, View};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::request::attempt_observer::AttemptObserver;
use crate::request::errors::internal;
use crate::request::record::RequestRecord;
use crate::worker::Worker;

/// A reply that began, and the target that goes with it.
#[derive(Debug)]
pub(crate) struct Dispatched {
    pub(crate) reply: Response<UpstreamBody>,
    pub(crate) target: HeldSlot,
    /// Observer of the replica; `None` for another region, whose replicas are not judged here.
    pub(crate) observer: Option<AttemptObserver>,
    /// Choice of the target.
    pub(crate) choice: ServedChoice,
    /// Usage that the server was asked for beyond the client's own request.
    pub(crate) asked_usage: UsageWish,
    /// Facts of the reply, if all of it was read before.
    pub(crate) reader: Option<Box<WholeReader>>,
}

/// Choice of a target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServedChoice {
    /// A replica of this region, by its group's policy.
    Replica(Attempt),
    /// Another region; `None` if no other could have served it.
    Region(Option<SpillReason>),
}

/// A reply, and the facts of it if all of it was read.
pub(super) type JudgedReply = (Response<UpstreamBody>, Option<Box<WholeReader>>);

/// A request that is being dispatched: all that its acts need, and their interim results.
#[derive(Debug)]
pub(crate) struct Dispatch<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    pub(crate) view: Arc<View>,
    /// State of all regions.
    pub(crate) regions: Arc<Regions>,
    pub(crate) prepared: &'a mut Prepared,
    pub(crate) head: &'a Parts,
    pub(crate) dice: fastrand::Rng,
    /// Time at which the request's head arrived.
    pub(crate) started: Instant,
    /// Key under which the tenant is counted.
    pub(crate) tenant: Option<TenantKey>,
    pub(crate) interim: Interim,
}

/// Interim results of a request's acts.
#[derive(Debug, Default)]
pub(crate) struct Interim {
    /// Position in this node's queue.
    pub(super) queued_request: Option<QueuedRequest>,
    /// Hash by which a retry of the same request is recognized; `None` until needed.
    pub(super) fingerprint: Option<u64>,
    /// The first error reply for which a better one was sought.
    pub(super) held: Option<Box<Dispatched>>,
    /// Error of the last failed attempt, for the client.
    pub(super) failure: Option<GatewayError>,
    /// True once hosted APIs were asked to serve the request while it waits: they are asked once.
    pub(super) has_overflowed: bool,
}

impl Dispatch<'_> {
    /// Asks replicas until one begins to reply, or the journey ends without.
    ///
    /// # Errors
    /// Returns the error for the client.
    pub(crate) async fn run(
        mut self,
        record: &mut RequestRecord,
    ) -> Result<Dispatched, GatewayError> {
        self.worker.gateway.retries.budget.on_request();
        if self.view.has_overflow() {
            self.count_for_overflow();
        }
        let mut journey = self.journey();
        if self.redeem(&journey) {
            journey.redeem_promise();
        }
        let driven = self.drive(&mut journey, record).await;
        if journey.ending() == Some(Ending::EnginesDied) {
            record.engines_died();
        }
        driven
    }

    /// Creates the journey of this request from its beginning.
    pub(super) fn journey(&self) -> Journey {
        let attempts_max = self.worker.gateway.retries.attempts_max;
        Journey::new(self.started, attempts_max).after_deaths(self.prepared.deaths)
    }

    /// Carries out the steps of a journey to its end.
    ///
    /// # Errors
    /// Returns the error for the client.
    pub(super) async fn drive(
        &mut self,
        journey: &mut Journey,
        record: &mut RequestRecord,
    ) -> Result<Dispatched, GatewayError> {
        loop {
            self.saw_tenant();
            let step = self.next(journey);
            self.keep(journey.take_notes(), record);
            match step {
                Step::TakeRetry(safety) => {
                    self.take_retry(safety, journey, record);
                }
                Step::TakeLateProbe => {
                    let probes = self.group().map(|group| &group.memory.slo_probes);
                    let is_allowed = probes.is_some_and(|probes| probes.pass(coarse_clock::now()));
                    self.tell(journey, Event::LateProbe { is_allowed });
                }
                Step::Ask { attempt, connection } => {
                    let asking = self.ask_replica(attempt, connection, journey, record);
                    if let Some(reply) = asking.await {
                        return Ok(reply);
                    }
                }
                Step::Forward { region, reason } => {
                    // Boxed, since few requests need its room.
                    let asking = Box::pin(self.ask_region(region, reason, journey, record));
                    if let Some(reply) = asking.await {
                        return Ok(reply);
                    }
                }
                Step::Wait(terms) => {
                    if self.view.has_overflow()
                        && let Some(overflow) = self.overflow_instead_of_waiting(journey)
                        && let Some(reply) = Box::pin(self.overflow(overflow, record)).await
                    {
                        return Ok(reply);
                    }
                    self.wait(terms, journey).await;
                }
                Step::Pause(pause) => {
                    // Other tasks of the worker go first.
                    if pause.is_zero() {
                        yield_now().await;
                    } else {
                        sleep(pause).await;
                    }
                    self.tell(journey, Event::Paused);
                }
                Step::StandIn => self.stand_in(journey),
                Step::End(ending) => {
                    if self.view.has_overflow()
                        && let Some(overflow) = Overflow::after(journey)
                        // Boxed, since few requests need its room.
                        && let Some(reply) = Box::pin(self.overflow(overflow, record)).await
                    {
                        return Ok(reply);
                    }
                    self.note_left_out(ending, record);
                    return self.end(ending, journey);
                }
                // Numbers are taken by `next`, and the others need an attempt that is under way.
                Step::TakeTicket | Step::Listen | Step::Hedge(_) => return Err(internal()),
            }
        }
    }

    /// Returns the next step of a journey. The number that nearly every journey needs is taken at
    /// once.
    pub(super) fn next(&mut self, journey: &mut Journey) -> Step {
        // Cloned, since the journey reads from all of this dispatch.
        let mut dice = self.dice.clone();
        let mut step = journey.next(self, coarse_clock::now(), &mut dice);
        if let Step::TakeTicket = step {
            let ticket = self.group().map_or(0, RouteGroup::ticket);
            self.tell(journey, Event::Ticket(ticket));
            step = journey.next(self, coarse_clock::now(), &mut dice);
        }
        self.dice = dice;
        step
    }

    /// Keeps what a journey noted: in the record of the request, and in counters.
    fn keep(&self, notes: Notes, record: &mut RequestRecord) {
        let Notes { compared, cache_comparisons, cache_changes, regions_forbidden } = notes;
        let gateway = &self.worker.gateway;
        if let Some(costs) = compared {
            let Inquiry { model, residency, .. } = &self.prepared.inquiry;
            record.compared(self.compared(costs), self.regions.left_out(model.as_ref(), residency));
        }
        if cache_comparisons > 0 {
            gateway.routing.knowledge.spilled(cache_comparisons, cache_changes);
        }
        if regions_forbidden > 0 {
            gateway.counters.residency_sent.fetch_add(regions_forbidden.into(), Ordering::Relaxed);
        }
    }

    /// Notes the regions that were not considered for a client's request that no target serves.
    #[cold]
    fn note_left_out(&self, ending: Ending, record: &mut RequestRecord) {
        let Inquiry { model, residency, hop, .. } = &self.prepared.inquiry;
        if ending.is_error() && ending != Ending::ClientFault && *hop == 0 {
            record.left_out(self.regions.left_out(model.as_ref(), residency));
        }
    }

    fn compared(&self, costs: ComparedCosts) -> Compared {
        let named = |(index, cost_ms): (usize, f32)| {
            Some((self.regions.others.get(index)?.name.clone(), cost_ms))
        };
        let (best, reason) = (costs.best.and_then(named), costs.reason.name());
        Compared { here_ms: costs.here_ms, best, reason }
    }

    /// Reports the result of an act.
    pub(super) fn tell(&self, journey: &mut Journey, event: Event) {
        journey.on(event, self, coarse_clock::now());
    }

    /// Takes a retry from the budget. Returns false if that is used up.
    pub(super) fn take_retry(
        &self,
        safety: RetrySafety,
        journey: &mut Journey,
        record: &mut RequestRecord,
    ) -> bool {
        let gateway = &self.worker.gateway;
        let is_allowed = gateway.retries.budget.try_retry(coarse_clock::now());
        if is_allowed {
            record.retried(safety);
        } else {
            gateway.counters.retries_refused.fetch_add(1, Ordering::Relaxed);
        }
        self.tell(journey, Event::Retry { is_allowed });
        is_allowed
    }

    /// Changes the request to its next stand-in model.
    fn stand_in(&mut self, journey: &mut Journey) {
        let is_renamed =
            self.prepared.fall_back(&self.view, &self.worker.gateway.routing, self.head);
        if is_renamed {
            // The place in the queue was for the model before.
            self.interim.queued_request = None;
        }
        self.tell(journey, Event::StoodIn { is_renamed });
    }
}
