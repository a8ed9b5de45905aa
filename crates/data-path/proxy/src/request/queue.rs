//! A request's acts in this node's queue: recognized, in, called, or shed.

use std::net::IpAddr;
use std::sync::Arc;

use spillway_journey::{Claim, Event, Journey, WaitTerms};
use spillway_route::Asker;
use spillway_transport::coarse_clock;
use spillway_types::{Inquiry, ModelName};
use spillway_upstream::RequestBody;
use spillway_usage::ReplyKind;
use spillway_view::{Asking, Patience, QueuedEnd, WaitKey};
use tokio::time::timeout;

use crate::request::dispatch::Dispatch;

/// Bytes of a body by which a repeated request is recognized: more would cost time that is short
/// then.
const KNOWN_BYTES_MAX: usize = 1 << 20;
/// Bytes of a prompt per token, and tokens of a reply without a set length: turns between tenants
/// need no better guess.
const TOKEN_BYTES: u32 = 4;
const OUTPUT_TOKENS: u32 = 256;

impl Dispatch<'_> {
    /// Returns the request as the queue of a model sees it.
    pub(super) fn asking(&self, model: &ModelName, claim: Claim) -> Asking {
        let inquiry = &self.prepared.inquiry;
        let route = &self.prepared.route.spec;
        let hasher = &self.worker.gateway.routing.key_hasher;
        let asker = Asker {
            priority: inquiry.priority,
            tenant: match &self.tenant {
                Some(tenant) => tenant.tenant,
                None => hasher.hash_request_key(&whose(inquiry.client)),
            },
            weight: 1,
            tokens: tokens(inquiry),
            bytes: self.prepared.body.held_bytes(),
            fingerprint: self.interim.fingerprint.unwrap_or_default(),
            is_promised: claim.is_promised(),
        };
        Asking { key: WaitKey::of(&route.name, model), limits: route.queue.limits, asker }
    }

    /// Redeems the promise that was made when the same request was shed. Returns false if none is
    /// due. Call it once, before anything is decided.
    pub(super) fn redeem(&mut self, journey: &Journey) -> bool {
        let queues = Arc::clone(&self.worker.gateway.routing.waiting);
        let Some(model) = self.prepared.inquiry.model.clone() else { return false };
        // Bodies are hashed only if any promise is open. A guest has that of its own node, not of
        // this one.
        if queues.promised() == 0 || self.prepared.inquiry.hop > 0 {
            return false;
        }
        self.recognize();
        queues.redeem(&self.asking(&model, journey.claim()))
    }

    /// Notes that a slot was found, here or in another region: waiting requests learn the rate
    /// from it.
    pub(super) fn began(&self, journey: &Journey) {
        let queues = &self.worker.gateway.routing.waiting;
        // No waiting request could learn from it.
        if !queues.is_busy() && journey.waits_since().is_none() {
            return;
        }
        if let Some(model) = &self.prepared.inquiry.model {
            queues.began(&self.asking(model, journey.claim()));
        }
    }

    /// Waits for a slot at one of the own replicas, or for news of other regions.
    pub(super) async fn wait(&mut self, terms: WaitTerms, journey: &mut Journey) {
        self.recognize();
        if self.interim.queued_request.is_none() && !self.enter(terms, journey) {
            self.tell(journey, Event::QueueFull);
            return;
        }
        if terms.passes_turn_on {
            self.pass_turn_on();
        }
        let Some(mut queued_request) = self.interim.queued_request.take() else { return };
        let event = match timeout(terms.pause, queued_request.ended()).await {
            Ok(QueuedEnd::Turn) => Event::Turn { due: queued_request.due(coarse_clock::now()) },
            Ok(QueuedEnd::Shed(reason, retry_after)) => Event::SentAway { reason, retry_after },
            Err(_) => {
                // The pause is over, but the place in the queue is kept while the journey looks
                // around.
                self.interim.queued_request = Some(queued_request);
                Event::Paused
            }
        };
        self.tell(journey, event);
        self.look_again(journey);
    }

    /// Enters the queue; `false` if that is full.
    fn enter(&mut self, terms: WaitTerms, journey: &Journey) -> bool {
        let Some(model) = self.prepared.inquiry.model.clone() else { return false };
        let WaitTerms { until, begin_by, turn_by, .. } = terms;
        let asking = self.asking(&model, journey.claim());
        let queues = Arc::clone(&self.worker.gateway.routing.waiting);
        self.interim.queued_request =
            queues.enter(&asking, Patience { until, begin_by, turn_by }).ok();
        self.interim.queued_request.is_some()
    }

    /// Computes the hash by which a retry of the same request is recognized.
    pub(super) fn recognize(&mut self) {
        if self.interim.fingerprint.is_some() {
            return;
        }
        let Inquiry { tenant, client, .. } = &self.prepared.inquiry;
        let tenant = tenant.as_ref().map_or("", |tenant| tenant.as_str());
        // A streamed body cannot be compared, so the client is recognized instead.
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
        let hasher = &self.worker.gateway.routing.key_hasher;
        self.interim.fingerprint = Some(hasher.hash_request(&fields, pieces));
    }

    /// Updates regions and view, which may have changed while the request waited.
    fn look_again(&mut self, journey: &mut Journey) {
        let gateway = &self.worker.gateway;
        self.regions = gateway.routing.regions();
        let view = gateway.routing.view();
        if Arc::ptr_eq(&view, &self.view) {
            return;
        }
        // The route is gone from the config: the old one serves the request.
        let Some(route) = view.route_again(&self.prepared.route) else { return };
        journey.follow_view(|slot| view.slot(&self.view.replica(slot).spec().name));
        self.prepared.take_route(route);
        self.view = view;
    }
}

/// Returns the client that an address identifies, where no credential names one: each IPv4 address
/// is a client, and each /64 network of IPv6.
pub(super) fn whose(client: IpAddr) -> [u8; 9] {
    let mut whose = [0; 9];
    match client.to_canonical() {
        IpAddr::V4(address) => whose[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => {
            // The last byte of an IPv4 address is always 0.
            whose[8] = 6;
            whose[..8].copy_from_slice(&address.octets()[..8]);
        }
    }
    whose
}

impl Dispatch<'_> {
    /// Returns the tokens that the reply is expected to have; 0 where no text is generated.
    pub(super) fn expected_reply_tokens(&self) -> u32 {
        if self.prepared.cost.request_tokens().reply != ReplyKind::Text {
            return 0;
        }
        let inquiry = &self.prepared.inquiry;
        let usual = inquiry.whole_tokens.unwrap_or(OUTPUT_TOKENS);
        inquiry.output_tokens_max.map_or(usual, |most| most.min(usual))
    }
}

/// Estimates the tokens that a request takes, prompt and reply together.
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
}
