//! Forwarding of requests to other regions, for the data path.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http_body_util::BodyExt;
use spillway_link::{
    ForwardAnswer, ForwardError, ForwardHead, ForwardStage, Link, PeerRoom, RefusedReason,
};
use spillway_transport::BoxError;
use spillway_types::{NodeName, TenantName};
use spillway_view::{
    Destination, FindingResponse, Forwarded, Forwarding, RefusedFor, Remote, RemoteError,
    RemoteReply,
};

use crate::cluster::guest_notes::GuestNotes;
use crate::cluster::guests::{NOT_ABLE, NOT_SERVED};
use crate::cluster::homes::{ResponseQuestions, ask};
use crate::cluster::residency;

/// Time for which a node that is about to end gets no new requests: after that it may be back under
/// its name.
const LEAVING: Duration = Duration::from_secs(2);

/// Forwards requests over the link.
#[derive(Debug)]
pub(super) struct Links {
    /// Nodes that are about to end, each with the time until which it is left out. Swapped as a
    /// whole: requests read the map, and it is written when a node reports that it ends.
    leaving: Arc<ArcSwap<BTreeMap<NodeName, Instant>>>,
    /// Weak, because the link owns the data path that serves its guests.
    link: Weak<Link>,
    /// Limit on questions for stored responses.
    questions: ResponseQuestions,
    /// Counter of requests, so that the nodes of a region take turns.
    turns: AtomicU64,
}

impl Links {
    pub(super) fn new(link: &Arc<Link>, first_turn: u64) -> Self {
        let (link, turns) = (Arc::downgrade(link), AtomicU64::new(first_turn));
        let questions = ResponseQuestions::new(Instant::now());
        Self { leaving: Arc::default(), link, questions, turns }
    }

    /// Returns a node of the region that a request can be sent to now.
    fn node(&self, link: &Link, to: &Destination) -> Option<NodeName> {
        // Another node may not know the response yet, so this one is asked even if it is about to
        // end.
        if let Some(node) = to.node.as_ref().filter(|node| link.is_heard(node)) {
            return Some(node.clone());
        }
        let mut nodes = link.connected_in(&to.region);
        let leaving = self.leaving.load();
        if !leaving.is_empty() {
            let now = Instant::now();
            let is_staying = |node: &NodeName| leaving.get(node).is_none_or(|until| now >= *until);
            nodes.retain(is_staying);
        }
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let count = u64::try_from(nodes.len()).unwrap_or(u64::MAX);
        let index = usize::try_from(turn.checked_rem(count)?).ok()?;
        Some(nodes.swap_remove(index))
    }
}

impl Remote for Links {
    fn is_alive(&self, node: &NodeName) -> bool {
        self.link.upgrade().is_some_and(|link| link.is_heard(node))
    }

    fn find_response(&self, id: &str, tenant: Option<&TenantName>) -> FindingResponse {
        let is_allowed = self.questions.take(tenant, Instant::now());
        let link = self.link.upgrade().filter(|_| is_allowed);
        let (id, tenant) = (id.to_owned(), tenant.cloned());
        Box::pin(async move { ask(&link?, id, tenant).await })
    }

    fn forward(&self, to: &Destination, forwarded: Forwarded) -> Forwarding {
        let found = self.link.upgrade().and_then(|link| Some((self.node(&link, to)?, link)));
        let leaving = Arc::clone(&self.leaving);
        Box::pin(async move {
            let (node, link) = found.ok_or(RemoteError::NotConnected)?;
            let Forwarded { request, terms, has_room } = forwarded;
            let (mut parts, body) = request.into_parts();
            residency::put(&terms.residency, &mut parts.headers)
                .map_err(|why| RemoteError::Unsent(why.into()))?;
            GuestNotes { usage: terms.usage, deaths: terms.deaths, named: terms.named }
                .put(&mut parts.headers);
            let head = ForwardHead {
                headers: parts.headers,
                model: terms.model,
                pin: terms.version,
                deadline_ms: u64::try_from(terms.time_left.as_millis()).ok(),
                hop: terms.hop,
                client: Some(terms.client),
                prefix: terms.prefix,
                tenant: terms.tenant.map(|tenant| tenant.to_string()),
                priority: terms.priority,
                ..ForwardHead::new(parts.method, parts.uri)
            };
            let room = if has_room { PeerRoom::Likely } else { PeerRoom::Unknown };
            match link.forward(&node, head, body, room).await {
                Ok(ForwardAnswer::Reply(reply)) => {
                    if let Some(wait_ms) = reply.headers().get(&NOT_SERVED) {
                        let wait_ms = wait_ms.to_str().ok().and_then(|text| text.parse().ok());
                        let wait = wait_ms.map(Duration::from_millis);
                        // A node that refuses for load sends no second header.
                        let is_other = reply.headers().contains_key(&NOT_ABLE);
                        let reason =
                            if is_other { RefusedReason::NoReplica } else { RefusedReason::Busy };
                        return Err(refusal(reason, wait));
                    }
                    let response = reply.map(|body| body.map_err(BoxError::from).boxed_unsync());
                    Ok(RemoteReply { node, response })
                }
                Ok(ForwardAnswer::Refused(refused)) => {
                    if refused.reason == RefusedReason::Draining {
                        note_leaving(&leaving, node);
                        return Err(RemoteError::Leaving);
                    }
                    let wait = refused.wait_ms.map(|ms| Duration::from_millis(ms.into()));
                    Err(refusal(refused.reason, wait))
                }
                Err(error) => Err(failure(error)),
            }
        })
    }
}

fn note_leaving(leaving: &ArcSwap<BTreeMap<NodeName, Instant>>, node: NodeName) {
    let now = Instant::now();
    leaving.rcu(|known| {
        let mut known = BTreeMap::clone(known);
        known.retain(|_, until| now < *until);
        known.insert(node.clone(), now + LEAVING);
        known
    });
}

fn refusal(reason: RefusedReason, wait: Option<Duration>) -> RemoteError {
    let why = match reason {
        RefusedReason::Busy
        | RefusedReason::Reserved
        | RefusedReason::Shedding
        | RefusedReason::Draining
        // Caused by the sender, and no fault of the region.
        | RefusedReason::Hops
        | RefusedReason::Deadline => RefusedFor::Load,
        RefusedReason::Residency => RefusedFor::Residency,
        RefusedReason::NoReplica => RefusedFor::Other,
    };
    RemoteError::Refused { text: reason.text(), wait, why }
}

fn failure(error: ForwardError) -> RemoteError {
    match (&error, error.stage()) {
        (ForwardError::NotConnected, _) => RemoteError::NotConnected,
        // The link has as many requests to that node as the node allows.
        (ForwardError::Saturated, _) => refusal(RefusedReason::Busy, None),
        (ForwardError::Deadline(_), _) => RemoteError::DeadlinePassed,
        (_, ForwardStage::NotSent) => RemoteError::Unsent(error.into()),
        (ForwardError::Lost(_), ForwardStage::Undecided | ForwardStage::Accepted) => {
            RemoteError::Lost
        }
        (_, ForwardStage::Undecided | ForwardStage::Accepted) => RemoteError::Broken(error.into()),
    }
}
