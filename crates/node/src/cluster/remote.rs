//! The way to other regions as the data path takes it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http_body_util::BodyExt;
use spillway_link::{Answer, ForwardError, ForwardHead, Link, Room, Stage};
use spillway_proxy::{
    BoxError, Destination, Forwarded, Forwarding, Remote, RemoteFailure, RemoteReply,
};
use spillway_types::NodeName;

use crate::cluster::guests::NOT_SERVED;

/// Forwards requests over the link.
#[derive(Debug)]
pub(super) struct Links {
    /// The data path must not keep the link: the link serves by the data path.
    link: Weak<Link>,
    /// Counts requests, so that the nodes of a region take turns.
    turns: AtomicU64,
}

impl Links {
    pub(super) fn new(link: &Arc<Link>, first_turn: u64) -> Self {
        Self { link: Arc::downgrade(link), turns: AtomicU64::new(first_turn) }
    }

    /// A node of the region that a request can be sent to now.
    fn node(&self, link: &Link, to: &Destination) -> Option<NodeName> {
        if let Some(node) = &to.node {
            return Some(node.clone());
        }
        let mut nodes = link.connected_in(&to.region);
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let count = u64::try_from(nodes.len()).unwrap_or(u64::MAX);
        let index = usize::try_from(turn.checked_rem(count)?).ok()?;
        Some(nodes.swap_remove(index))
    }
}

impl Remote for Links {
    fn forward(&self, to: &Destination, forwarded: Forwarded) -> Forwarding {
        let found = self.link.upgrade().and_then(|link| Some((self.node(&link, to)?, link)));
        Box::pin(async move {
            let (node, link) = found.ok_or(RemoteFailure::NotConnected)?;
            let Forwarded { request, terms, has_room } = forwarded;
            let (parts, body) = request.into_parts();
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
            let room = if has_room { Room::Likely } else { Room::Unknown };
            match link.forward(&node, head, body, room).await {
                Ok(Answer::Reply(reply)) => {
                    if let Some(wait_ms) = reply.headers().get(&NOT_SERVED) {
                        let wait_ms = wait_ms.to_str().ok().and_then(|text| text.parse().ok());
                        let wait = wait_ms.map(Duration::from_millis);
                        return Err(RemoteFailure::Refused { wait });
                    }
                    let response = reply.map(|body| body.map_err(BoxError::from).boxed_unsync());
                    Ok(RemoteReply { node, response })
                }
                Ok(Answer::Refused(refused)) => {
                    let wait = refused.wait_ms.map(|ms| Duration::from_millis(ms.into()));
                    Err(RemoteFailure::Refused { wait })
                }
                Err(error) => Err(failure(error)),
            }
        })
    }
}

fn failure(error: ForwardError) -> RemoteFailure {
    match (&error, error.stage()) {
        (ForwardError::NotConnected | ForwardError::Saturated, _) => RemoteFailure::NotConnected,
        (ForwardError::Deadline(_), _) => RemoteFailure::DeadlinePassed,
        (_, Stage::NotSent) => RemoteFailure::Unsent(error.into()),
        (_, Stage::Undecided | Stage::Accepted) => RemoteFailure::Broken(error.into()),
    }
}
