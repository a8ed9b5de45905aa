//! What came of requests that may be repeated.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::{REQUEST_AGE_MS, REQUESTS_MAX};
use crate::state::table::{Table, Valued};
use crate::{Digest, Entry, Outcome, Refusal, RefusalCode, RequestId};

/// Outcomes by request id: the newest [`REQUESTS_MAX`] of the last [`REQUEST_AGE_MS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Requests {
    table: Table<RequestId, Remembered>,
    /// The same by index, so that the oldest is found.
    order: BTreeMap<u64, RequestId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    stamp_ms: u64,
    /// Of the command and the actor.
    fingerprint: Digest,
    outcome: Outcome,
}

impl Valued for Remembered {}

impl Requests {
    /// Forgets what is too old at `stamp_ms`.
    pub(crate) fn forget_old(&mut self, stamp_ms: u64) {
        let is_old =
            |request: &Remembered| stamp_ms.saturating_sub(request.stamp_ms) > REQUEST_AGE_MS;
        while self.oldest().is_some_and(is_old) {
            self.forget_oldest();
        }
    }

    /// What came of the entry's request when it came before.
    pub(crate) fn recall(&self, entry: &Entry) -> Option<Outcome> {
        let remembered = self.table.get(&entry.request?)?;
        if remembered.fingerprint == fingerprint(entry) {
            return Some(remembered.outcome.clone());
        }
        Some(Outcome::Refused(Refusal::new(
            RefusalCode::RequestIdReused,
            "the request id stood for another command",
            "use a new id for each request, the same one only for its retries",
        )))
    }

    /// Remembers what came of the entry's request, if it may be repeated.
    pub(crate) fn remember(&mut self, index: u64, stamp_ms: u64, entry: &Entry, outcome: &Outcome) {
        let Some(request) = entry.request.filter(|_| !entry.command.is_routine()) else { return };
        let outcome = outcome.clone();
        let remembered = Remembered { stamp_ms, fingerprint: fingerprint(entry), outcome };
        self.table.insert(request, index, remembered);
        self.order.insert(index, request);
        if self.table.len() > REQUESTS_MAX {
            self.forget_oldest();
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    pub(crate) fn digest(&self) -> Digest {
        self.table.digest()
    }

    fn oldest(&self) -> Option<&Remembered> {
        self.order.first_key_value().and_then(|(_, request)| self.table.get(request))
    }

    fn forget_oldest(&mut self) {
        if let Some((_, request)) = self.order.pop_first() {
            self.table.remove(&request);
        }
    }
}

fn fingerprint(entry: &Entry) -> Digest {
    Digest::of(&(&entry.actor, &entry.command)).0
}
