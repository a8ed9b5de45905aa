//! Responses that are generated in the background, without a waiting client.

use std::future::poll_fn;
use std::sync::Arc;

use super::draft::Draft;
use super::response_store::StoredResponse;
use super::responses_stream::ResponseEvents;
use super::{ApiCall, ApiError};
use crate::driver::{DriverProgress, Generation};
use crate::event_stream::{EventStream, Track};
use crate::replica::EmulatedReplica;

/// Stores a response and generates it until it is complete or cancelled, or the replica stops.
pub(crate) fn begin(replica: &Arc<EmulatedReplica>, draft: &Arc<Draft>, generation: Generation) {
    let work = work(Arc::clone(replica), draft.id.clone(), generation);
    // The lock is held until the response is stored, so that its first token finds it there.
    let mut responses = replica.responses();
    let task = replica.tasks.spawn(work).abort_handle();
    responses.insert(StoredResponse::worked_on(Arc::clone(draft), task));
}

async fn work(replica: Arc<EmulatedReplica>, id: String, mut generation: Generation) {
    let stop = replica.stop.clone();
    loop {
        let progress = tokio::select! {
            () = stop.cancelled() => return,
            progress = poll_fn(|cx| generation.poll_progress(cx)) => progress.ok(),
        };
        let goes_on = replica.responses().tell(&id, progress);
        // Every progress except a token is the last one.
        if !goes_on || progress != Some(DriverProgress::Token) {
            return;
        }
    }
}

/// Returns the events of a stored response from number `first` on, both past and future ones.
///
/// # Errors
/// Returns 404 for an unknown response, and 400 if too many streams follow it.
pub(crate) fn follow(call: &ApiCall, id: &str, first: u64) -> Result<EventStream, ApiError> {
    let mut responses = call.replica.responses();
    let stored = responses.find_mut(id).ok_or_else(|| ApiError::unknown_response(id))?;
    let too_many = || ApiError::invalid("too many streams follow this response", None);
    let receiver = stored.follow().ok_or_else(too_many)?;
    let draft = Arc::clone(&stored.draft);
    let generation = Generation::told(draft.request, receiver);
    let track = Track::new(generation, draft.answer.clone(), true);
    let format = ResponseEvents::new(draft, None).starting_at(first);
    // The stream of an earlier request has no usage of its own.
    Ok(EventStream::new(vec![track], Box::new(format), 0))
}
