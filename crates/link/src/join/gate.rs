//! Serves those who knock.

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
use crate::shared::Shared;
use crate::tls::Refusal;

/// How long a stranger may stay: a write to the log takes up to 10 s, and paths are long.
const STAY_LIMIT: Duration = Duration::from_secs(15);
/// Places that one node may have: the next question may come before the last one's end is noticed.
const OF_ONE_MAX: usize = 2;
/// How long it may take to begin its question.
const QUESTION_LIMIT: Duration = Duration::from_secs(3);
/// How long it may take to leave once it was answered.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);

/// Who answers those who knock. Called from the link's own tasks, so it must not block.
pub trait Gate: Send + Sync + 'static {
    /// A node with a valid certificate of this cluster asks something. It may be a peer or
    /// nobody that was ever heard of: only its name and region are verified.
    fn knocked(&self, from: Identity, streams: (StreamSender, StreamReceiver)) -> Served;
}

/// The strangers that are served.
#[derive(Debug, Default)]
pub(crate) struct Places(Arc<Mutex<BTreeMap<NodeName, usize>>>);

/// One stranger that is served until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Mutex<BTreeMap<NodeName, usize>>>,
    name: NodeName,
}

impl Places {
    /// A place for a node, if it has few: one certificate can't take the places of all others.
    fn take(&self, name: &NodeName) -> Option<Place> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken: usize = places.values().sum();
        let own = places.entry(name.clone()).or_default();
        if taken >= STRANGERS_MAX || *own >= OF_ONE_MAX {
            places.retain(|_, count| *count > 0);
            return None;
        }
        *own += 1;
        Some(Place { places: Arc::clone(&self.0), name: name.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = places.get_mut(&self.name) {
            *own = own.saturating_sub(1);
        }
        places.retain(|_, count| *count > 0);
    }
}

/// A connection of somebody who knocks.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) connection: quinn::Connection,
    pub(crate) from: Identity,
}

/// Answers one question, then waits until the asker has it and leaves.
pub(crate) async fn serve(shared: &Arc<Shared>, guest: Guest) {
    let Guest { connection, from } = guest;
    let code = match (shared.gate.load_full(), shared.strangers.take(from.node())) {
        (None, _) => CloseCode::NotMember,
        (Some(_), None) => {
            shared.refusals.count(Refusal::Busy);
            CloseCode::TooMany
        }
        (Some(gate), Some(_place)) => {
            add(&shared.counters.strangers);
            tracing::info!(%from, "a node knocks");
            let stay = Instant::now() + STAY_LIMIT;
            let answering = async {
                let Ok(Ok(streams)) = timeout(QUESTION_LIMIT, connection.accept_bi()).await else {
                    return;
                };
                let streams = (StreamSender::new(streams.0), StreamReceiver::new(streams.1));
                gate.knocked(from, streams).await;
                // An error means that it has not left, and has had its time.
                drop(timeout(FAREWELL_LIMIT, connection.closed()).await);
            };
            let stopped = shared.stop.run_until_cancelled(timeout_at(stay, answering));
            // Whoever is still here has had its time.
            let _ = stopped.await;
            CloseCode::Double
        }
    };
    connection.close(code.number(), b"");
}
