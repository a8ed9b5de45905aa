//! Hedging: a second replica is asked beside the first, and the one that begins to answer first
//! serves.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body::Body;
use spillway_journey::{Connection, Event, HedgeResult, Journey, Step, judge_hedge};
use spillway_transport::coarse_clock;
use spillway_types::{DownCause, Hedge};
use spillway_upstream::{
    AttemptBounds, FailedAttempt, OutboundBody, Sending, UpstreamBody, attempt,
};
use spillway_view::{GroupMemory, Hedges, Replica};
use tokio::select;
use tokio::time::{sleep_until, timeout};

use crate::request::asked::Asked;
use crate::request::attempt_observer::AttemptObserver;
use crate::request::dispatch::Dispatch;
use crate::request::record::RequestRecord;
use crate::worker::Worker;

/// Time and budget of a request's second attempt.
#[derive(Debug)]
pub(super) struct Hedging {
    hedges: Arc<Hedges>,
    memory: Arc<GroupMemory>,
    /// Wait before the second attempt; `None` if it is not known yet, and is learned from this
    /// request.
    after: Option<Duration>,
}

/// Replica and result of one of the two attempts.
type Done = (Asked, Result<Response<UpstreamBody>, FailedAttempt>);

impl Dispatch<'_> {
    /// Returns the hedging of this request; `None` if no second replica is asked.
    pub(super) fn hedging(&self, journey: &Journey) -> Option<Hedging> {
        let hedges = self.prepared.route.hedges.as_ref()?;
        if !journey.may_hedge(self) {
            return None;
        }
        let memory = Arc::clone(&self.group()?.memory);
        let after = hedges.on_request(&memory.first_byte);
        Some(Hedging { hedges: Arc::clone(hedges), memory, after })
    }

    /// Asks the first replica, and a second one if no reply begins in time. The one that first
    /// begins a good reply serves. The other is dropped at once, and that is not held against it.
    pub(super) async fn race(
        &mut self,
        hedging: Hedging,
        (first, connection): (Asked, Connection),
        journey: &mut Journey,
        record: &mut RequestRecord,
    ) -> Done {
        let asked_at = Instant::now();
        let request = self.request(&first.replica, first.usage);
        let mut first = Box::pin(run(self.worker, first, request, self.bounds(connection)));
        let seen = || hedging.hedges.seen(&hedging.memory.first_byte, asked_at.elapsed());
        let first_alone = async {
            match hedging.after {
                Some(after) => timeout(after, &mut first).await.ok(),
                None => Some((&mut first).await),
            }
        };
        if let Some(done) = first_alone.await {
            seen();
            return done;
        }
        let second_at = Instant::now();
        let Some(second) = self.second(&hedging.hedges, journey) else {
            let done = first.await;
            seen();
            return done;
        };
        let request = self.request(&second.replica, second.usage);
        let bounds = self.bounds(Connection::KeptOrNew);
        let second = run(self.worker, second, request, bounds);
        let (done, hedge) = first_good(first, Box::pin(second)).await;
        seen();
        record.hedged(hedge);
        if hedge == Hedge::Won {
            let (asked, _) = &done;
            record.hedge_won(&asked.replica.spec().name, &asked.chosen, second_at);
        }
        done
    }

    /// Takes a slot at another replica, if the journey wants one, the budget allows it, and there is
    /// one.
    fn second(&mut self, hedges: &Hedges, journey: &mut Journey) -> Option<Asked> {
        self.tell(journey, Event::Silent);
        let Step::Hedge(chosen) = self.next(journey) else { return None };
        let is_allowed = hedges.try_hedge(coarse_clock::now());
        let asked = if is_allowed { self.take_slot(chosen, journey) } else { None };
        self.tell(journey, Event::Hedged { is_asked: asked.is_some() });
        asked
    }
}

/// Returns the result that serves, and drops the other attempt.
async fn first_good(
    mut first: Pin<Box<impl Future<Output = Done>>>,
    mut second: Pin<Box<impl Future<Output = Done>>>,
) -> (Done, Hedge) {
    let (mut first_done, mut second_result) = (None, None);
    loop {
        select! {
            // If both have begun, the first is looked at first.
            biased;
            done = &mut first, if first_done.is_none() => first_done = Some(done),
            done = &mut second, if second_result.is_none() => {
                second_result = Some(result_of(&done));
                let hedge = judge_hedge(first_done.as_ref().map(result_of), second_result);
                if hedge == Some(Hedge::Won) {
                    if let Some(unused) = first_done {
                        tell(unused);
                    }
                    return (done, Hedge::Won);
                }
                // At once, so that its slot is free while the first attempt is awaited.
                tell(done);
            }
        }
        let hedge = judge_hedge(first_done.as_ref().map(result_of), second_result);
        match (hedge, first_done) {
            (Some(hedge), Some(done)) => return (done, hedge),
            (_, done) => first_done = done,
        }
    }
}

fn result_of((_, result): &Done) -> HedgeResult {
    let reply = result.as_ref().ok();
    HedgeResult::of(reply.map(|reply| reply.status().as_u16()))
}

/// Tells the health check about a result that is not used.
fn tell((mut asked, result): Done) {
    match result {
        Ok(reply) => asked.observer.head(&reply),
        Err(failed) => asked.observer.failed(&failed),
    }
}

/// Asks one replica until the first piece of its reply is there.
async fn run(
    worker: &Worker,
    mut asked: Asked,
    request: Option<Request<OutboundBody>>,
    bounds: AttemptBounds,
) -> Done {
    let Asked { replica, observer, .. } = &mut asked;
    let mut sending = HedgeSending { request, replica, observer };
    let asked_at = Instant::now();
    let result = match attempt(worker.pools(), replica.connections(), &mut sending, bounds).await {
        Ok(reply) => Ok(begun(reply, asked_at, bounds).await),
        Err(failed) => Err(failed),
    };
    (asked, result)
}

/// Request that is sent to two replicas.
struct HedgeSending<'r> {
    request: Option<Request<OutboundBody>>,
    replica: &'r Replica,
    observer: &'r mut AttemptObserver,
}

impl Sending for HedgeSending<'_> {
    fn request(&mut self) -> Option<Request<OutboundBody>> {
        let request = self.request.take()?;
        self.observer.sent();
        Some(request)
    }

    fn is_lost(&self, asked_at: Instant, now: Instant) -> bool {
        // A second replica is asked beside a silent one, if there is one: neither is given up.
        self.replica.lost(asked_at, now) == Some(DownCause::Failure)
    }
}

/// Waits for the first piece of a reply: many servers send the head of a stream before they have
/// read the prompt.
async fn begun(
    mut reply: Response<UpstreamBody>,
    asked_at: Instant,
    bounds: AttemptBounds,
) -> Response<UpstreamBody> {
    let longest = (asked_at + bounds.timeouts.first_byte).min(bounds.deadline.at());
    if reply.body().is_end_stream() {
        return reply;
    }
    let first = poll_fn(|cx| Pin::new(reply.body_mut()).poll_frame(cx));
    let late = pin!(sleep_until(longest.into()));
    let first = select! {
        first = first => Some(first),
        // The caller that relays the reply handles its silence.
        () = late => None,
    };
    let Some(first) = first else { return reply };
    reply.map(|body| body.beginning_with(first))
}
