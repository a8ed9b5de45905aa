//! Serves those who knock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quinn::VarInt;
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
/// How long it may take to ask.
const QUESTION_LIMIT: Duration = Duration::from_secs(5);
/// What a stranger may send before it is read: one question and no more.
const WINDOW_BYTES: u32 = 64 << 10;

/// Who answers those who knock. Called from the link's own tasks, so it must not block.
pub trait Gate: Send + Sync + 'static {
    /// A node with a valid certificate of this cluster asks something. It may be a peer or
    /// nobody that was ever heard of: only its name and region are verified.
    fn knocked(&self, from: Identity, streams: (StreamSender, StreamReceiver)) -> Served;
}

/// How many strangers are served.
#[derive(Debug, Default)]
pub(crate) struct Places(Arc<AtomicUsize>);

/// One stranger that is served until this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Places {
    fn take(&self) -> Option<Place> {
        let place = Place(Arc::clone(&self.0));
        (self.0.fetch_add(1, Ordering::Relaxed) < STRANGERS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
    connection.set_max_concurrent_uni_streams(VarInt::from_u32(0));
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(1));
    connection.set_receive_window(VarInt::from_u32(WINDOW_BYTES));
    let code = match (shared.gate.load_full(), shared.strangers.take()) {
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
                connection.closed().await;
            };
            let stopped = shared.stop.run_until_cancelled(timeout_at(stay, answering));
            // Whoever is still here has had its time.
            let _ = stopped.await;
            CloseCode::Double
        }
    };
    connection.close(code.number(), b"");
}
