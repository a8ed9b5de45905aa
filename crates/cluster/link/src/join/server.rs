//! Service for nodes that ask to join.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::code::CloseCode;
use crate::counters::add;
use crate::identity::Identity;
use crate::rpc::{StreamReceiver, StreamSender};
use crate::shared::LinkShared;
use crate::tls::HandshakeError;

/// Time limit for a joining node: a write to the log takes up to 10 s, and paths are long.
const STAY_LIMIT: Duration = Duration::from_secs(15);
/// Time limit for the node to begin its question.
const QUESTION_LIMIT: Duration = Duration::from_secs(3);
/// Time limit for the node to close the connection once it has its answer.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);

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
            tracing::info!(%from, "a node asks to join");
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
            // A normal end: this code means that the connection is not needed any more.
            CloseCode::Double
        }
    };
    connection.close(code.number(), b"");
}
