//! A second replica beside the first, where a route wants that: whoever begins to answer first serves.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, Request};
use http_body::Body;
use spillway_types::Hedge;
use tokio::select;
use tokio::time::{sleep_until, timeout};

use crate::hedging::Hedges;
use crate::relay::Flavour;
use crate::request::dispatch::{Asked, Dispatch, REFUSING};
use crate::request::record::Record;
use crate::request::so_far::SoFar;
use crate::route_group::GroupMemory;
use crate::upstream::{
    AttemptBounds, FailedAttempt, Kept, OutboundBody, Reply, RequestBody, attempt,
};
use crate::worker::Worker;

/// When a request's second attempt is made.
#[derive(Debug)]
pub(super) struct Hedging {
    hedges: Arc<Hedges>,
    memory: Arc<GroupMemory>,
    /// `None` if that is not known yet: then it is only learned by it.
    after: Option<Duration>,
}

/// What came of one of the two.
type Done = (Asked, Result<Reply, FailedAttempt>);

impl Dispatch<'_> {
    /// When a second replica is asked beside the first; `None` if none is. Only what can be sent twice
    /// and leaves nothing behind is.
    pub(super) fn hedging(&self, so_far: &SoFar) -> Option<Hedging> {
        let hedges = self.prepared.route.hedges.as_ref()?;
        let is_repeatable = matches!(self.prepared.body, RequestBody::Buffered(_))
            && self.head.method == Method::POST
            && self.prepared.flavour != Flavour::Grpc
            && self.prepared.stored_for.is_none()
            && self.prepared.pinned.is_none();
        if !is_repeatable || so_far.attempts != 1 {
            return None;
        }
        let pin = self.prepared.target.pin.as_ref();
        let model = self.prepared.inquiry.model.as_ref();
        let group = self.prepared.route.group_for(model, pin).ok().flatten()?;
        let memory = Arc::clone(&group.memory);
        let after = hedges.on_request(&memory.first_byte);
        Some(Hedging { hedges: Arc::clone(hedges), memory, after })
    }

    /// Asks the first replica, and a second one if no reply begins in time. Whoever begins a good reply
    /// first serves, and the other is let go at once: nothing is held against it.
    pub(super) async fn race(
        &mut self,
        hedging: Hedging,
        (first, kept): (Asked, Kept),
        record: &mut Record,
        so_far: &mut SoFar,
    ) -> Done {
        let asked_at = Instant::now();
        let request = self.request(&first.replica);
        let mut first = Box::pin(run(self.worker, first, (request, self.bounds(kept))));
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
        let Some(second) = self.second(&hedging.hedges, so_far) else {
            let done = first.await;
            seen();
            return done;
        };
        let request = self.request(&second.replica);
        let second = run(self.worker, second, (request, self.bounds(Kept::Use)));
        let (done, hedge) = first_good(first, Box::pin(second)).await;
        seen();
        record.hedged(hedge);
        if hedge == Hedge::Won {
            let (asked, _) = &done;
            record.hedge_won(&asked.replica.spec().name, &asked.chosen, second_at);
        }
        done
    }

    /// A place at another replica, if that takes it from nobody and the budget allows it.
    fn second(&mut self, hedges: &Hedges, so_far: &mut SoFar) -> Option<Asked> {
        if !self.worker.gateway.waiting.is_quiet() {
            return None;
        }
        let chosen = self.plan(so_far).ok()?;
        if !hedges.try_hedge(Instant::now()) {
            return None;
        }
        let asked = self.take_place(chosen, so_far)?;
        so_far.tried.push(chosen.slot);
        Some(asked)
    }
}

/// The good reply of two that begins first, else what came of the first. The other is let go.
async fn first_good(
    mut first: Pin<Box<impl Future<Output = Done>>>,
    mut second: Pin<Box<impl Future<Output = Done>>>,
) -> (Done, Hedge) {
    select! {
        biased;
        done = &mut first => {
            if is_good(&done) {
                return (done, Hedge::Lost);
            }
            let other = second.await;
            if is_good(&other) {
                tell(done);
                return (other, Hedge::Won);
            }
            tell(other);
            (done, Hedge::Failed)
        }
        other = &mut second => {
            if is_good(&other) {
                return (other, Hedge::Won);
            }
            tell(other);
            (first.await, Hedge::Failed)
        }
    }
}

/// Whether it is a reply for the client, and not a refusal or an error of the server.
fn is_good((_, result): &Done) -> bool {
    result.as_ref().is_ok_and(|reply| {
        let status = reply.response.status();
        !status.is_server_error() && !REFUSING.contains(&status)
    })
}

/// What is not used says something about its replica all the same.
fn tell((mut asked, result): Done) {
    match result {
        Ok(reply) => asked.witness.head(&reply.response),
        Err(failed) => asked.witness.failed(&failed),
    }
}

/// Asks one replica until the first piece of its reply is there.
async fn run(
    worker: &Worker,
    mut asked: Asked,
    (request, bounds): (Option<Request<OutboundBody>>, AttemptBounds),
) -> Done {
    let Asked { replica, witness, .. } = &mut asked;
    let request = || {
        let request = request?;
        witness.sent();
        Some(request)
    };
    let asked_at = Instant::now();
    let result = match attempt(worker, replica, request, bounds).await {
        Ok(reply) => Ok(begun(reply, asked_at, bounds).await),
        Err(failed) => Err(failed),
    };
    (asked, result)
}

/// Waits for the first piece of a reply: many servers send the head of a stream before they have
/// read the prompt.
async fn begun(mut reply: Reply, asked_at: Instant, bounds: AttemptBounds) -> Reply {
    let longest = (asked_at + bounds.timeouts.first_byte).min(bounds.deadline.at());
    let Reply { response, connection } = &mut reply;
    let body = response.body_mut();
    if body.is_end_stream() {
        return reply;
    }
    let first = poll_fn(|cx| match connection {
        Some(connection) => connection.poll_body(body, cx),
        None => Pin::new(&mut *body).poll_frame(cx),
    });
    let late = pin!(sleep_until(longest.into()));
    let first = select! {
        first = first => Some(first),
        // Whoever passes it on knows what to make of its silence.
        () = late => None,
    };
    let Some(first) = first else { return reply };
    let Reply { response, connection } = reply;
    Reply { response: response.map(|body| body.beginning_with(first)), connection }
}
