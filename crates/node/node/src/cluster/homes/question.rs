//! Question for a stored response that this node does not know.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::{Method, Uri};
use http_body_util::{BodyExt, Full, Limited};
use spillway_link::{ForwardAnswer, ForwardHead, Link, PeerRoom};
use spillway_types::{NodeName, TenantName};
use spillway_view::StoredResponse;

use super::wire::{KnownResponse, ResponseQuestion};
use super::{RESPONSE_PATH, encode};

/// Time limit of all answers together: three round trips of the longest path.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Largest answer in bytes.
const ANSWER_BYTES_MAX: usize = 4 << 10;
/// Most nodes that are asked, those of the own region first. All know what is older than a moment.
const ASKED_MAX: usize = 32;
/// Time after which a tenant may ask another question.
const PERIOD_MS: u64 = 50;
/// Questions of a tenant that may come at once, after a time without any.
const BURST: u64 = 40;
/// Parts of the limit. Tenants that share one share its questions.
const PARTS: usize = 64;

/// Limit on questions, so that a client that asks for random ids does not make all nodes work.
#[derive(Debug)]
pub(crate) struct ResponseQuestions {
    started: Instant,
    /// Time at which all of [`BURST`] are allowed again, in milliseconds since `started`.
    full_at_ms: [AtomicU64; PARTS],
}

impl ResponseQuestions {
    pub(crate) fn new(now: Instant) -> Self {
        Self { started: now, full_at_ms: [const { AtomicU64::new(0) }; PARTS] }
    }

    /// Takes one of the questions that a tenant may ask. Returns false if there is none.
    pub(crate) fn take(&self, tenant: Option<&TenantName>, now: Instant) -> bool {
        let name = tenant.map(TenantName::as_str).unwrap_or_default();
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        let part = usize::try_from(hash % PARTS as u64).unwrap_or(0);
        let now_ms = now.saturating_duration_since(self.started).as_millis();
        let now_ms = u64::try_from(now_ms).unwrap_or(u64::MAX);
        let order = Ordering::Relaxed;
        let taken = self.full_at_ms[part].fetch_update(order, order, |full_at_ms| {
            let next_ms = full_at_ms.max(now_ms).saturating_add(PERIOD_MS);
            (next_ms <= now_ms.saturating_add(BURST * PERIOD_MS)).then_some(next_ms)
        });
        taken.is_ok()
    }
}

/// Asks the other nodes for a response of this tenant. Returns the first that is known.
pub(crate) async fn ask(
    link: &Arc<Link>,
    id: String,
    tenant: Option<TenantName>,
) -> Option<StoredResponse> {
    let own = link.me().region();
    let mut peers = link.peers();
    peers.retain(|peer| peer.is_connected());
    peers.sort_by_key(|peer| peer.identity.region() != own);
    peers.truncate(ASKED_MAX);
    let question = encode(&ResponseQuestion { id, tenant });
    let asked = peers.iter().map(|peer| ask_node(link, peer.identity.node(), question.clone()));
    let mut answers: FuturesUnordered<_> = asked.collect();
    let first = async {
        while let Some(answer) = answers.next().await {
            if answer.is_some() {
                return answer;
            }
        }
        None
    };
    let known = tokio::time::timeout(ANSWER_LIMIT, first).await.ok()??;
    Some(known.at(link.me().node(), own).1)
}

async fn ask_node(link: &Link, node: &NodeName, question: Bytes) -> Option<KnownResponse> {
    let head = ForwardHead::new(Method::POST, Uri::from_static(RESPONSE_PATH));
    let answer = link.forward(node, head, Full::new(question), PeerRoom::Likely).await.ok()?;
    let ForwardAnswer::Reply(reply) = answer else { return None };
    let body = Limited::new(reply.into_body(), ANSWER_BYTES_MAX).collect().await.ok()?;
    serde_json::from_slice(&body.to_bytes()).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_that_asks_for_random_ids_uses_up_its_own_questions_alone() {
        let start = Instant::now();
        let questions = ResponseQuestions::new(start);
        let (evil, acme) = (TenantName::from("evil"), TenantName::from("acme"));
        let taken = (0..1_000).filter(|_| questions.take(Some(&evil), start)).count();
        assert_eq!(taken, BURST as usize);
        assert!(questions.take(Some(&acme), start) && questions.take(None, start));
        let later = start + Duration::from_millis(PERIOD_MS);
        assert!(questions.take(Some(&evil), later) && !questions.take(Some(&evil), later));
    }
}
