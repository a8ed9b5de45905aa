//! A request's way through this node's queue: in, out, or turned away.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_protocol::{ErrorKind, GatewayError};
use spillway_route::{Asker, Candidate, Degraded, Refusal, ShedReason, Turnover, expected_rate};
use spillway_types::{Inquiry, ModelName, ReplicaSlot};
use tokio::time::timeout;

use crate::late_probes::PROBE_PERIOD;
use crate::request::dispatch::{Dispatch, refused};
use crate::request::headers::client_patience;
use crate::request::so_far::SoFar;
use crate::upstream::RequestBody;
use crate::waiting::{Asking, Foreseen, Patience, Told, WaitKey};

/// How often a request that waits looks whether another region would be sooner by now.
const REVIEW: Duration = Duration::from_millis(250);
/// Bytes of a body that a request is known again by: more costs time just when there is none.
const KNOWN_BYTES_MAX: usize = 1 << 20;
/// Bytes of a prompt that a token stands for, and tokens of a reply whose length nobody set: turns
/// between tenants need no better guess.
const TOKEN_BYTES: u32 = 4;
const OUTPUT_TOKENS: u32 = 256;

/// The longest rest of replicas that requests wait for in this node. For longer ones their clients are
/// told when to come again.
const REST_WAIT_MAX: Duration = Duration::from_secs(30);
/// What passes between a rest's end and the word of it.
const REST_SLACK: Duration = Duration::from_millis(5);
/// The pause between two looks for a place at the one replica that can serve a request.
const HOME_PAUSE: Duration = Duration::from_millis(20);
/// The part of a predicted wait that is certain.
const CERTAIN_SHARE: f32 = 0.7;
/// The longest wait that can be set, a day.
const WAIT_MS_END: u64 = 86_400_000;

impl Dispatch<'_> {
    /// What the request says of itself to the queue of a model.
    pub(super) fn asking(&self, model: &ModelName, so_far: &SoFar) -> Asking {
        let inquiry = &self.prepared.inquiry;
        let route = &self.prepared.route.spec;
        let hasher = &self.worker.gateway.key_hasher;
        let asker = Asker {
            priority: inquiry.priority,
            tenant: match &self.tenant {
                Some(tenant) => tenant.tenant,
                None => hasher.hash_request_key(&whose(inquiry.client)),
            },
            weight: 1,
            tokens: tokens(inquiry),
            bytes: self.prepared.body.held_bytes(),
            fingerprint: so_far.fingerprint.unwrap_or_default(),
            // Whose turn it was and who found no place comes before all that came later.
            is_promised: so_far.is_promised || so_far.had_turn,
        };
        Asking { key: WaitKey::of(&route.name, model), limits: route.queue.limits, asker }
    }

    /// Keeps a promise that was made when the same request was turned away, if there is one that is
    /// due. To be called once, before anything is decided.
    pub(super) fn redeem(&self, so_far: &mut SoFar) {
        let waitings = &self.worker.gateway.waiting;
        let Some(model) = &self.prepared.inquiry.model else { return };
        if waitings.promised() == 0 || self.prepared.inquiry.hop > 0 {
            return;
        }
        self.know_again(so_far);
        so_far.is_promised = waitings.redeem(&self.asking(model, so_far));
    }

    /// Turns the request away: says why and when to come again.
    pub(super) fn shed(
        &mut self,
        reason: ShedReason,
        predicted_ms: f32,
        so_far: &mut SoFar,
    ) -> GatewayError {
        let Some(model) = self.prepared.inquiry.model.clone() else { return shed_error(reason) };
        self.know_again(so_far);
        let asking = self.asking(&model, so_far);
        let waitings = &self.worker.gateway.waiting;
        let seconds = match reason {
            ShedReason::NobodyInReach => waitings.turn_away(&asking, &mut self.dice),
            _ => {
                let rate_per_s = |tokens| self.expected_rate(tokens);
                let foreseen = Foreseen { wait_ms: predicted_ms, rate_per_s };
                let mut dice = self.dice.clone();
                let seconds = waitings.shed(&asking, foreseen, &mut dice);
                self.dice = dice;
                seconds
            }
        };
        let promised = Duration::from_secs(seconds.into());
        // Where all replicas asked to be left alone there is no place before that is over.
        let busy = so_far.busy_until.map(|until| until.saturating_duration_since(Instant::now()));
        shed_error(reason).with_retry_after(promised.max(busy.unwrap_or_default()))
    }

    /// Whether the request is served although it is predicted to come too late, so that the prediction
    /// is tried now and then.
    pub(super) fn is_probe(&self) -> bool {
        let pin = self.prepared.target.pin.as_ref();
        let model = self.prepared.inquiry.model.as_ref();
        let group = self.prepared.route.group_for(model, pin).ok().flatten();
        group.is_some_and(|group| group.memory.late_probes.pass(Instant::now()))
    }

    /// A place at an own replica was found: whoever waits learns by that how fast it goes.
    pub(super) fn began(&self, so_far: &SoFar) {
        let waitings = &self.worker.gateway.waiting;
        if !waitings.is_busy() && so_far.waiting_since.is_none() {
            return;
        }
        if let Some(model) = &self.prepared.inquiry.model {
            waitings.began(&self.asking(model, so_far));
        }
    }

    /// Waits for a place at one of the own replicas, or for news of other regions.
    ///
    /// # Errors
    /// If the queue is full, it has waited for too long, or it had to make way.
    pub(super) async fn wait(
        &mut self,
        prefill_ms: f32,
        so_far: &mut SoFar,
    ) -> Result<(), GatewayError> {
        let Some(model) = self.prepared.inquiry.model.clone() else {
            return Err(refused(Refusal::AllBusy, so_far));
        };
        let now = Instant::now();
        self.know_again(so_far);
        let has_had_turn = std::mem::take(&mut so_far.has_turn);
        let asking = self.asking(&model, so_far);
        let deadline = self.prepared.inquiry.deadline.at();
        let (until, over) = self.waits_until(*so_far.waiting_since.get_or_insert(now));
        if now >= until {
            return Err(self.shed(over, 0.0, so_far));
        }
        let mut stay = match so_far.stay.take() {
            Some(stay) => stay,
            None => {
                let begin_by = self.begin_by(prefill_ms);
                let patience = Patience { until, begin_by, turn_by: so_far.turn_by };
                let waitings = Arc::clone(&self.worker.gateway.waiting);
                match waitings.enter(&asking, patience) {
                    Ok(stay) => stay,
                    Err(_) => return Err(self.shed(ShedReason::QueueFull, 0.0, so_far)),
                }
            }
        };
        if has_had_turn {
            self.pass_turn_on();
        }
        let mut pause = REVIEW.min(until - now);
        if let Some(rests_until) = so_far.busy_until {
            // Who is let in again should not have to wait for the next look.
            pause = pause.min(rests_until.saturating_duration_since(now) + REST_SLACK);
        }
        match timeout(pause, stay.told()).await {
            Ok(Told::Turn) => {
                so_far.has_turn = true;
                so_far.had_turn = true;
                so_far.turn_by = Some(stay.due(Instant::now()));
            }
            Ok(Told::Shed(reason, retry_after)) => {
                // The queue knows the end of the longest wait as a deadline.
                let is_early = reason == ShedReason::Late && Instant::now() < deadline;
                let reason = if is_early { over } else { reason };
                return Err(shed_error(reason).with_retry_after(retry_after));
            }
            Err(_) => so_far.stay = Some(stay),
        }
        // Who refused it a while ago may have room by now; whether it has, its reports say.
        let now = Instant::now();
        so_far.refused.retain(|(_, at)| now.saturating_duration_since(*at) < REVIEW);
        self.look_again(so_far);
        Ok(())
    }

    /// Until when it waits, and why it is turned away then: until its deadline, for as long as its route
    /// lets requests wait, or for as long as its client says that it waits for a reply to begin.
    fn waits_until(&self, since: Instant) -> (Instant, ShedReason) {
        let longest_ms = self.prepared.route.spec.queue.limits.wait_ms_max;
        let longest = since + Duration::from_millis(longest_ms.min(WAIT_MS_END));
        let patience = client_patience(&self.head.headers);
        let left_by = patience.map(|patience| self.started + patience);
        let deadline = self.prepared.inquiry.deadline.at();
        let longest = left_by.map_or(longest, |left_by| left_by.min(longest));
        if deadline <= longest {
            (deadline, ShedReason::Late)
        } else {
            (longest, ShedReason::Waited)
        }
    }

    /// Why it is not to wait at all: its turn is predicted to come after all the time that it may wait.
    /// Predictions stray, so it has to be clearly later; who waits already is not sent away for one.
    pub(super) fn is_beyond_patience(&self, wait_ms: f32, so_far: &SoFar) -> Option<ShedReason> {
        if so_far.waiting_since.is_some() || so_far.is_promised {
            return None;
        }
        let now = Instant::now();
        let (until, over) = self.waits_until(now);
        let left_ms = until.saturating_duration_since(now).as_secs_f32() * 1e3;
        (wait_ms * CERTAIN_SHARE > left_ms).then_some(over)
    }

    /// Whether all replicas asked to be left alone for so short a time that it waits in this node for
    /// that to be over. One that a replica has refused itself gets that reply.
    pub(super) fn waits_for_rest(&self, so_far: &SoFar) -> bool {
        let Some(rests_until) = so_far.busy_until else { return false };
        let now = Instant::now();
        let (until, _) = self.waits_until(so_far.waiting_since.unwrap_or(now));
        let has_queue = self.prepared.route.spec.queue.limits.count_max > 0;
        let is_new = so_far.tried.is_empty() && so_far.held.is_none();
        has_queue && is_new && rests_until < until.min(now + REST_WAIT_MAX)
    }

    /// How long to wait until it is looked again for a place at the one replica that can serve it.
    ///
    /// # Errors
    /// If it has waited for as long as it may.
    pub(super) fn pause_at_home(&self, so_far: &mut SoFar) -> Result<Duration, GatewayError> {
        let now = Instant::now();
        let (until, over) = self.waits_until(*so_far.waiting_since.get_or_insert(now));
        if now >= until {
            return Err(shed_error(over));
        }
        Ok(HOME_PAUSE.min(until - now))
    }

    /// Requests of so many tokens on average that the replicas are expected to serve in a second, by
    /// their places and by how long such requests keep one.
    fn expected_rate(&self, tokens: f32) -> Option<f32> {
        let pin = self.prepared.target.pin.as_ref();
        let model = self.prepared.inquiry.model.as_ref();
        let group = self.prepared.route.group_for(model, pin).ok().flatten()?;
        let room = self.room();
        let turnover = |candidate: &Candidate| {
            let replica = self.view.replica(candidate.slot);
            let places = candidate.in_flight_max.min(room.places(replica, candidate.slot));
            (places < u32::MAX).then(|| Turnover { places, hold: replica.hold_time() })
        };
        expected_rate(group.group.candidates().iter().filter_map(turnover), tokens)
    }

    /// The same where the number of places is certain. Where it is still being found it may grow
    /// within a second, and nobody is refused for a guess.
    pub(super) fn certain_rate(&self, tokens: f32) -> Option<f32> {
        let pin = self.prepared.target.pin.as_ref();
        let model = self.prepared.inquiry.model.as_ref();
        let group = self.prepared.route.group_for(model, pin).ok().flatten()?;
        let is_certain = |candidate: &Candidate| {
            let replica = self.view.replica(candidate.slot);
            replica.concurrency_limit().is_none() || replica.found_limit().is_some()
        };
        let all = group.group.candidates().iter().all(is_certain);
        self.expected_rate(tokens).filter(|_| all)
    }

    /// Milliseconds that are left until the first token is due, if the route says when.
    pub(super) fn first_token_left_ms(&self) -> Option<f32> {
        let due = self.first_token_due()?;
        Some(due.saturating_duration_since(Instant::now()).as_secs_f32() * 1e3)
    }

    /// Whether so many of the model's replicas are missing that the request is not to wait for so long.
    pub(super) fn is_beyond_degraded(&self, wait_ms: f32) -> bool {
        let Inquiry { priority, model, .. } = &self.prepared.inquiry;
        let pin = self.prepared.target.pin.as_ref();
        let group = self.prepared.route.group_for(model.as_ref(), pin).ok().flatten();
        let Some(group) = group else { return false };
        let queue = &self.prepared.route.spec.queue;
        let degraded = Degraded {
            healthy_permille: group.healthy_permille,
            below_permille: queue.degraded_below_permille,
        };
        degraded.refuses(*priority, wait_ms, queue.limits.wait_ms_max as f32)
    }

    fn first_token_due(&self) -> Option<Instant> {
        self.prepared.route.spec.queue.slo.map(|slo| self.started + slo)
    }

    /// When it must be with a replica for its first token to come in time.
    fn begin_by(&self, prefill_ms: f32) -> Option<Instant> {
        let prefill = Duration::try_from_secs_f32(prefill_ms / 1e3).unwrap_or_default();
        let due = self.first_token_due()?;
        Some(due.checked_sub(prefill).unwrap_or(due))
    }

    /// Finds out what the same request is known by when it comes again.
    fn know_again(&self, so_far: &mut SoFar) {
        so_far.fingerprint.get_or_insert_with(|| {
            let Inquiry { tenant, client, .. } = &self.prepared.inquiry;
            let tenant = tenant.as_ref().map_or("", |tenant| tenant.as_str());
            // A body that is not kept says nothing; then it is the client that is known again.
            let (body, client) = match &self.prepared.body {
                RequestBody::Buffered(segments) => (Some(segments), String::new()),
                _ => (None, client.to_string()),
            };
            let fields = [tenant, self.head.uri.path(), &client].map(str::as_bytes);
            let mut left = KNOWN_BYTES_MAX;
            let pieces = body.into_iter().flatten().map(|piece| {
                let known = &piece[..piece.len().min(left)];
                left -= known.len();
                known
            });
            self.worker.gateway.key_hasher.hash_request(&fields, pieces)
        });
    }

    /// Goes by what is known now: it may have changed while the request waited.
    fn look_again(&mut self, so_far: &mut SoFar) {
        let gateway = &self.worker.gateway;
        self.regions = gateway.regions();
        let view = gateway.view();
        if Arc::ptr_eq(&view, &self.view) {
            return;
        }
        // Gone with the config: then it is served by what there was.
        let Some(route) = view.route_again(&self.prepared.route) else { return };
        let name = |slot: &ReplicaSlot| self.view.replica(*slot).spec().name.clone();
        let tried: Vec<_> = so_far.tried.iter().map(name).collect();
        so_far.tried = tried.iter().filter_map(|name| view.slot(name)).collect();
        self.prepared.take_route(route);
        self.view = view;
    }
}

/// What a client is told that is turned away for this reason.
pub(super) fn shed_error(reason: ShedReason) -> GatewayError {
    let kind = match reason {
        ShedReason::Late => ErrorKind::DeadlineExceeded,
        ShedReason::NobodyInReach => ErrorKind::NoReplica,
        reason if reason.is_limit() => ErrorKind::RateLimited,
        _ => ErrorKind::Overloaded,
    };
    let message = match reason {
        ShedReason::Late => "the deadline would pass before a replica has a place",
        ShedReason::NobodyInReach => "no replica that could serve it is in reach",
        ShedReason::Slo => "the first token would come later than this route allows",
        ShedReason::Waited => "no replica has a place within the time that it may wait",
        ShedReason::PushedOut => "more urgent requests took its place in the queue",
        ShedReason::Degraded => "too many replicas are missing to serve requests of this class",
        ShedReason::ReplicaBusy => "every replica has asked to be left alone for now",
        ShedReason::GuestWithoutRoom => "this region has no room for requests of others",
        ShedReason::Memory => "this node holds all that it may in memory",
        ShedReason::Draining => "this node is shutting down",
        ShedReason::RequestRate => "the limit of requests per second is used up",
        ShedReason::TokenRate => "the limit of tokens per minute is used up",
        ShedReason::Concurrency => "the limit of requests at a time is used up",
        ShedReason::QueueFull | ShedReason::Connections => {
            "all replicas are busy and the queue is full"
        }
    };
    GatewayError::new(kind, message).with_shed(reason.name())
}

/// What a client is told whose first token is predicted to come too late from a replica that is free.
pub(super) fn too_late(reason: ShedReason, late_ms: f32) -> GatewayError {
    let error = shed_error(reason);
    let message = format!(
        "{}: it is predicted after {late_ms:.0} ms, although a replica is free",
        match reason {
            ShedReason::Slo => error.message.as_str(),
            _ => "the first token would come after the request's deadline",
        }
    );
    let error = GatewayError { message, ..error };
    match reason {
        // By then the prediction is tried again. The same request with the same deadline is no better
        // off for coming again.
        ShedReason::Slo => error.with_retry_after(PROBE_PERIOD),
        _ => error,
    }
}

/// Whose requests come from an address, where no credential says it: each IPv4 address is one client,
/// and each network of IPv6, which has the rest of the address to itself.
pub(super) fn whose(client: IpAddr) -> [u8; 9] {
    let mut whose = [0; 9];
    match client.to_canonical() {
        IpAddr::V4(address) => whose[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => {
            // No IPv4 address has anything but 0 in the last byte.
            whose[8] = 6;
            whose[..8].copy_from_slice(&address.octets()[..8]);
        }
    }
    whose
}

/// About how many tokens it takes to serve a request.
pub(super) fn tokens(inquiry: &Inquiry) -> u32 {
    let output = inquiry.output_tokens_max.unwrap_or(OUTPUT_TOKENS);
    (inquiry.prompt_bytes / TOKEN_BYTES).saturating_add(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_client_and_no_two_addresses_of_ipv4_are() {
        let whose = |text: &str| whose(text.parse().unwrap());
        assert_eq!(whose("2001:db8::1"), whose("2001:db8::ffff:1"));
        assert_ne!(whose("2001:db8::1"), whose("2001:db8:0:1::1"));
        assert_ne!(whose("10.0.0.1"), whose("10.0.0.2"));
        assert_eq!(whose("10.0.0.1"), whose("::ffff:10.0.0.1"));
        assert_ne!(whose("0.0.0.0"), whose("::"));
    }

    #[test]
    fn each_reason_has_its_status() {
        for reason in ShedReason::ALL {
            let error = shed_error(reason);
            let status = match reason {
                ShedReason::Late => 504,
                reason if reason.is_limit() => 429,
                _ => 503,
            };
            assert_eq!(error.kind.status().as_u16(), status, "{reason:?}");
            assert_eq!(error.shed, Some(reason.name()));
        }
    }
}
