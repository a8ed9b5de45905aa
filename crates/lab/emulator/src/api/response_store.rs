//! Responses that this replica stores; no other replica knows them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::draft::Draft;
use crate::driver::DriverProgress;

/// Largest number of bytes of all stored responses together.
const BYTES_MAX: usize = 64 << 20;
/// Largest number of streams that follow one response at the same time.
const FOLLOWERS_MAX: usize = 16;

/// Stored responses by id. Beyond the limits, the oldest is removed.
#[derive(Debug)]
pub(crate) struct ResponseStore {
    responses: BTreeMap<String, StoredResponse>,
    /// Ids by age, oldest first. Some may belong to deleted responses.
    order: VecDeque<String>,
    responses_max: usize,
    /// Bytes of all `responses`.
    bytes: usize,
}

/// State of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreState {
    // Working => (Done | Cancelled | Failed)
    /// The response is being generated; `tokens` exist so far.
    Working { tokens: u32 },
    /// The response is complete; `cached_tokens` of its prompt were cached.
    Done { cached_tokens: u32 },
    /// A client cancelled the response.
    Cancelled,
    /// The engine lost the response.
    Failed,
}

/// Stored response. Dropping the value stops its generation.
#[derive(Debug)]
pub(crate) struct StoredResponse {
    pub(crate) draft: Arc<Draft>,
    pub(crate) state: StoreState,
    followers: Vec<mpsc::Sender<DriverProgress>>,
    task: Option<AbortHandle>,
}

impl Drop for StoredResponse {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl StoredResponse {
    /// Creates a stored response in a given state.
    pub(crate) fn new(draft: Arc<Draft>, state: StoreState) -> Self {
        Self { draft, state, followers: Vec::new(), task: None }
    }

    /// Creates a stored response that `task` generates.
    pub(crate) fn worked_on(draft: Arc<Draft>, task: AbortHandle) -> Self {
        let mut stored = Self::new(draft, StoreState::Working { tokens: 0 });
        stored.task = Some(task);
        stored
    }

    /// Returns the response in its current state.
    pub(crate) fn body(&self) -> Value {
        match self.state {
            StoreState::Working { tokens: 0 } => self.draft.body("queued"),
            StoreState::Working { .. } => self.draft.body("in_progress"),
            StoreState::Done { cached_tokens } => self.draft.completed(cached_tokens),
            StoreState::Cancelled => self.draft.body("cancelled"),
            StoreState::Failed => {
                let mut body = self.draft.body("failed");
                body["error"] =
                    json!({ "code": "server_error", "message": "the engine lost the response" });
                body
            }
        }
    }

    /// Returns a stream of all past and future progress; `None` if too many streams follow the
    /// response.
    pub(crate) fn follow(&mut self) -> Option<mpsc::Receiver<DriverProgress>> {
        self.followers.retain(|follower| !follower.is_closed());
        let tokens = self.draft.answer.tokens;
        let (sender, receiver) = mpsc::channel(tokens as usize + 1);
        let (said, end) = match self.state {
            StoreState::Working { tokens } => (tokens, None),
            StoreState::Done { cached_tokens } => {
                (tokens, Some(DriverProgress::Finished { cached_tokens }))
            }
            StoreState::Cancelled => (0, Some(DriverProgress::Cancelled)),
            // The sender is dropped, so the stream breaks off.
            StoreState::Failed => return Some(receiver),
        };
        // The channel has room for all of it.
        let past = (0..said).map(|_| DriverProgress::Token).chain(end);
        past.for_each(|progress| sender.try_send(progress).unwrap_or_default());
        if end.is_none() {
            if self.followers.len() >= FOLLOWERS_MAX {
                return None;
            }
            self.followers.push(sender);
        }
        Some(receiver)
    }

    /// Changes the state and informs the followers. Without `progress`, their streams break off.
    fn tell(&mut self, state: StoreState, progress: Option<DriverProgress>) {
        self.state = state;
        if let Some(progress) = progress {
            // Fails only if the follower has disconnected.
            let tell = |follower: &mpsc::Sender<_>| follower.try_send(progress).unwrap_or_default();
            self.followers.iter().for_each(tell);
        }
        if !matches!(state, StoreState::Working { .. }) {
            self.followers.clear();
        }
    }
}

impl ResponseStore {
    pub(crate) fn new(responses_max: usize) -> Self {
        Self { responses: BTreeMap::new(), order: VecDeque::new(), responses_max, bytes: 0 }
    }

    pub(crate) fn insert(&mut self, stored: StoredResponse) {
        let id = stored.draft.id.clone();
        self.bytes += stored.draft.bytes;
        self.order.push_back(id.clone());
        self.responses.insert(id, stored);
        // Deleted responses still count in `order` until they are the oldest.
        while self.order.len() > self.responses_max || self.bytes > BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            self.remove(&oldest);
        }
    }

    pub(crate) fn find(&self, id: &str) -> Option<&StoredResponse> {
        self.responses.get(id)
    }

    pub(crate) fn find_mut(&mut self, id: &str) -> Option<&mut StoredResponse> {
        self.responses.get_mut(id)
    }

    pub(crate) fn remove(&mut self, id: &str) -> bool {
        let removed = self.responses.remove(id);
        self.bytes -= removed.as_ref().map_or(0, |stored| stored.draft.bytes);
        removed.is_some()
    }

    /// Applies the engine's progress of a response; `None` means that the engine lost it. Returns
    /// false if the response is no longer being generated.
    pub(crate) fn tell(&mut self, id: &str, progress: Option<DriverProgress>) -> bool {
        let Some(stored) = self.responses.get_mut(id) else { return false };
        // Progress after a cancellation is late and has no effect.
        let StoreState::Working { tokens } = stored.state else { return false };
        let state = match progress {
            Some(DriverProgress::Token) => StoreState::Working { tokens: tokens + 1 },
            Some(DriverProgress::Finished { cached_tokens }) => StoreState::Done { cached_tokens },
            Some(DriverProgress::Cancelled) => StoreState::Cancelled,
            None => StoreState::Failed,
        };
        stored.tell(state, progress);
        true
    }

    /// Cancels a response that is still being generated.
    pub(crate) fn cancel(&mut self, id: &str) {
        let Some(stored) = self.responses.get_mut(id) else { return };
        if matches!(stored.state, StoreState::Working { .. }) {
            stored.tell(StoreState::Cancelled, Some(DriverProgress::Cancelled));
            if let Some(task) = stored.task.take() {
                task.abort();
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.responses.clear();
        self.order.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(id: &str, bytes: usize) -> StoredResponse {
        StoredResponse::new(Arc::new(Draft::example(id, bytes)), StoreState::Working { tokens: 0 })
    }

    fn heard(receiver: &mut mpsc::Receiver<DriverProgress>) -> Vec<DriverProgress> {
        std::iter::from_fn(|| receiver.try_recv().ok()).collect()
    }

    #[test]
    fn the_oldest_response_goes_first() {
        let mut store = ResponseStore::new(2);
        for id in ["a", "b", "c"] {
            store.insert(stored(id, 1));
        }
        assert!(store.find("a").is_none());
        assert!(store.find("b").is_some() && store.find("c").is_some());
    }

    #[test]
    fn large_responses_push_out_others_until_all_fit() {
        let mut store = ResponseStore::new(100);
        for id in ["a", "b", "c"] {
            store.insert(stored(id, BYTES_MAX / 2));
        }
        assert!(store.find("a").is_none() && store.find("b").is_some());
        store.insert(stored("d", BYTES_MAX + 1));
        assert_eq!((store.responses.len(), store.bytes), (0, 0));
    }

    #[test]
    fn a_deleted_response_is_gone_once() {
        let mut store = ResponseStore::new(2);
        store.insert(stored("a", 1));
        assert!(store.remove("a"));
        assert!(!store.remove("a"));
        assert!(store.find("a").is_none());
    }

    #[test]
    fn deleting_does_not_make_the_store_grow() {
        let mut store = ResponseStore::new(3);
        for round in 0..100 {
            store.insert(stored(&format!("{round}"), 1));
            store.remove(&format!("{round}"));
        }
        assert!(store.order.len() <= 3);
    }

    #[test]
    fn who_comes_late_hears_all_that_happened() {
        let mut store = ResponseStore::new(3);
        store.insert(stored("a", 1));
        store.tell("a", Some(DriverProgress::Token));
        let mut early = store.find_mut("a").unwrap().follow().unwrap();
        store.tell("a", Some(DriverProgress::Token));
        let end = DriverProgress::Finished { cached_tokens: 3 };
        assert_eq!(store.find("a").unwrap().body()["status"], "in_progress");
        assert!(store.tell("a", Some(end)));
        assert_eq!(heard(&mut early), [DriverProgress::Token, DriverProgress::Token, end]);
        let mut late = store.find_mut("a").unwrap().follow().unwrap();
        assert_eq!(heard(&mut late), [DriverProgress::Token, DriverProgress::Token, end]);
        assert!(!store.tell("a", Some(DriverProgress::Token)), "it is over");
    }

    #[test]
    fn what_was_called_off_stays_so() {
        let mut store = ResponseStore::new(3);
        store.insert(stored("a", 1));
        let mut follower = store.find_mut("a").unwrap().follow().unwrap();
        store.cancel("a");
        assert_eq!(heard(&mut follower), [DriverProgress::Cancelled]);
        assert!(!store.tell("a", Some(DriverProgress::Token)));
        assert_eq!(store.find("a").unwrap().body()["status"], "cancelled");
    }

    #[test]
    fn only_so_many_follow_one_response() {
        let mut stored = stored("a", 1);
        let all: Vec<_> = (0..FOLLOWERS_MAX).map(|_| stored.follow()).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(stored.follow().is_none());
        drop(all);
        assert!(stored.follow().is_some());
    }
}
