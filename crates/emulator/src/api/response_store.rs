//! The responses that this replica remembers, and nobody else does.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use crate::text::Conversation;

/// Stored responses by id; the oldest goes when there are too many.
#[derive(Debug)]
pub(crate) struct ResponseStore {
    responses: BTreeMap<String, Stored>,
    /// Ids by age, oldest first. May name responses that were deleted.
    order: VecDeque<String>,
    responses_max: usize,
}

/// One response and the conversation that it ends.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) body: Value,
    pub(crate) conversation: Conversation,
}

impl ResponseStore {
    pub(crate) fn new(responses_max: usize) -> Self {
        Self { responses: BTreeMap::new(), order: VecDeque::new(), responses_max }
    }

    pub(crate) fn insert(&mut self, id: String, stored: Stored) {
        self.order.push_back(id.clone());
        self.responses.insert(id, stored);
        while self.order.len() > self.responses_max {
            if let Some(oldest) = self.order.pop_front() {
                self.responses.remove(&oldest);
            }
        }
    }

    pub(crate) fn find(&self, id: &str) -> Option<&Stored> {
        self.responses.get(id)
    }

    pub(crate) fn remove(&mut self, id: &str) -> bool {
        self.responses.remove(id).is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.responses.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Stored {
        Stored { body: Value::Null, conversation: Conversation::default() }
    }

    #[test]
    fn the_oldest_response_goes_first() {
        let mut store = ResponseStore::new(2);
        for id in ["a", "b", "c"] {
            store.insert(id.to_owned(), stored());
        }
        assert!(store.find("a").is_none());
        assert!(store.find("b").is_some() && store.find("c").is_some());
    }

    #[test]
    fn a_deleted_response_is_gone_once() {
        let mut store = ResponseStore::new(2);
        store.insert("a".to_owned(), stored());
        assert!(store.remove("a"));
        assert!(!store.remove("a"));
        assert!(store.find("a").is_none());
    }

    #[test]
    fn deleting_does_not_make_the_store_grow() {
        let mut store = ResponseStore::new(3);
        for round in 0..100 {
            store.insert(format!("{round}"), stored());
            store.remove(&format!("{round}"));
        }
        assert!(store.order.len() <= 3);
    }
}
