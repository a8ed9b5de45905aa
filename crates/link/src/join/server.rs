//! Service for nodes that ask to join.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spillway_types::NodeName;
use tokio::time::{Instant, timeout, timeout_at};

use super::STRANGERS_MAX;
use crate::code::CloseCode;
use crate::counters::add;
use crate::identity::Identity;
use crate::rpc::{Served, StreamReceiver, StreamSender};
use crate::shared::LinkShared;
use crate::tls::HandshakeError;

/// Time limit for a joining node: a write to the log takes up to 10 s, and paths are long.
const STAY_LIMIT: Duration = Duration::from_secs(15);
/// Most places of one node: its next question may come before the end of the last one is noticed.
const OF_ONE_MAX: usize = 2;
/// Time limit for the node to begin its question.
const QUESTION_LIMIT: Duration = Duration::from_secs(3);
/// Time limit for the node to close the connection once it has its answer.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);

/// Handler of the questions of nodes that ask to join. The link's own tasks call it, so it must not
/// block.
pub trait JoinHandler: Send + Sync + 'static {
    /// Answers a question of a node with a valid certificate of this cluster. The node may be a
    /// peer or unknown: only its name and region are verified.
    fn asked_to_join(&self, from: Identity, streams: (StreamSender, StreamReceiver)) -> Served;
}

/// Places of the joining nodes that are served now.
#[derive(Debug, Default)]
pub(crate) struct JoinPermits(Arc<Mutex<BTreeMap<NodeName, usize>>>);

/// Place of one joining node that is served; it ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct JoinPermit {
    places: Arc<Mutex<BTreeMap<NodeName, usize>>>,
    name: NodeName,
}

impl JoinPermits {
    /// Takes a place for a node; `None` if no place is free or the node has enough. One certificate
    /// can't take the places of all others.
    fn take(&self, name: &NodeName) -> Option<JoinPermit> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken: usize = places.values().sum();
        let own = places.entry(name.clone()).or_default();
        if taken >= STRANGERS_MAX || *own >= OF_ONE_MAX {
            // The look-up above may have left an entry of 0.
            places.retain(|_, count| *count > 0);
            return None;
        }
        *own += 1;
        Some(JoinPermit { places: Arc::clone(&self.0), name: name.clone() })
    }
}

impl Drop for JoinPermit {
    fn drop(&mut self) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = places.get_mut(&self.name) {
            *own = own.saturating_sub(1);
        }
        places.retain(|_, count| *count > 0);
    }
}

/// Connection of a node that asks to join.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) connection: quinn::Connection,
    pub(crate) from: Identity,
}

/// Answers one question, then waits until the node has the answer and leaves.
pub(crate) async fn serve(shared: &Arc<LinkShared>, guest: Guest) {
    let Guest { connection, from } = guest;
    let code = match (shared.join_handler.load_full(), shared.strangers.take(from.node())) {
        // Without a gate, not even members are answered.
        (None, _) => CloseCode::NotMember,
        (Some(_), None) => {
            shared.refusals.count(HandshakeError::Busy);
            CloseCode::TooMany
        }
        (Some(join_handler), Some(_place)) => {
            add(&shared.counters.strangers);
            tracing::info!(%from, "a node knocks");
            let stay = Instant::now() + STAY_LIMIT;
            let answering = async {
                let Ok(Ok(streams)) = timeout(QUESTION_LIMIT, connection.accept_bi()).await else {
                    return;
                };
                let streams = (StreamSender::new(streams.0), StreamReceiver::new(streams.1));
                join_handler.asked_to_join(from, streams).await;
                // An error means that the node has not left within its time.
                drop(timeout(FAREWELL_LIMIT, connection.closed()).await);
            };
            let stopped = shared.stop.run_until_cancelled(timeout_at(stay, answering));
            // A node that is still here has had its time.
            let _ = stopped.await;
            // A normal end: this code tells that the connection is not needed any more.
            CloseCode::Double
        }
    };
    connection.close(code.number(), b"");
}
