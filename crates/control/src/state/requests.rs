//! What came of requests that may be repeated.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use crate::limits::{REQUEST_AGE_MS, REQUESTS_KEYED_MAX, REQUESTS_MAX};
use crate::state::table::{Table, Valued};
use crate::{Actor, Digest, Entry, Outcome, Refusal, RefusalCode, RequestId};

/// Outcomes by request id of the last [`REQUEST_AGE_MS`]: the newest [`REQUESTS_KEYED_MAX`] of those
/// that operators named, and the newest [`REQUESTS_MAX`] of the others. Each kind pushes out its own,
/// so that a name that an operator gave is not forgotten because of writes without one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Frame")]
pub(crate) struct Requests {
    table: Table<RequestId, Remembered>,
    /// Those that operators named by index, so that the oldest is found.
    keyed: BTreeMap<u64, RequestId>,
    /// The others by index.
    unkeyed: BTreeMap<u64, RequestId>,
}

/// How it is written: both kinds are told apart by their ids.
#[derive(Deserialize)]
struct Frame {
    table: Table<RequestId, Remembered>,
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
        for is_keyed in [true, false] {
            while self.oldest(is_keyed).is_some_and(is_old) {
                self.forget_oldest(is_keyed);
            }
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

    /// Remembers what came of the entry's request, if it may be repeated. As long as older nodes are
    /// in the cluster (`is_guarded` is false), both kinds push each other out, as they do there.
    pub(crate) fn remember(
        &mut self,
        (index, stamp_ms): (u64, u64),
        entry: &Entry,
        outcome: &Outcome,
        is_guarded: bool,
    ) {
        let Some(request) = entry.request.filter(|_| !entry.command.is_routine()) else { return };
        if is_guarded && request.is_keyed() && entry.actor == Actor::Node {
            // No node names requests as operators do; it would take their places.
            return;
        }
        let outcome = outcome.clone();
        let remembered = Remembered { stamp_ms, fingerprint: fingerprint(entry), outcome };
        self.table.insert(request, index, remembered);
        self.order_mut(request.is_keyed()).insert(index, request);
        if is_guarded {
            self.keep(true, REQUESTS_KEYED_MAX);
            self.keep(false, REQUESTS_MAX);
        } else if self.table.len() > REQUESTS_MAX {
            self.forget_oldest(self.is_keyed_older());
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    pub(crate) fn digest(&self) -> Digest {
        self.table.digest()
    }

    fn keep(&mut self, is_keyed: bool, max: usize) {
        while self.order(is_keyed).len() > max {
            self.forget_oldest(is_keyed);
        }
    }

    fn order(&self, is_keyed: bool) -> &BTreeMap<u64, RequestId> {
        if is_keyed { &self.keyed } else { &self.unkeyed }
    }

    fn order_mut(&mut self, is_keyed: bool) -> &mut BTreeMap<u64, RequestId> {
        if is_keyed { &mut self.keyed } else { &mut self.unkeyed }
    }

    /// Whether the oldest of all is one that an operator named.
    fn is_keyed_older(&self) -> bool {
        let first = |order: &BTreeMap<u64, RequestId>| {
            order.first_key_value().map_or(u64::MAX, |(index, _)| *index)
        };
        first(&self.keyed) < first(&self.unkeyed)
    }

    fn oldest(&self, is_keyed: bool) -> Option<&Remembered> {
        let oldest = self.order(is_keyed).first_key_value();
        oldest.and_then(|(_, request)| self.table.get(request))
    }

    fn forget_oldest(&mut self, is_keyed: bool) {
        if let Some((_, request)) = self.order_mut(is_keyed).pop_first() {
            self.table.remove(&request);
        }
    }
}

impl From<Frame> for Requests {
    fn from(Frame { table, order }: Frame) -> Self {
        let (keyed, unkeyed) = order.into_iter().partition(|(_, request)| request.is_keyed());
        Self { table, keyed, unkeyed }
    }
}

impl Serialize for Requests {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let order: BTreeMap<_, _> = self.keyed.iter().chain(&self.unkeyed).collect();
        (&self.table, order).serialize(serializer)
    }
}

fn fingerprint(entry: &Entry) -> Digest {
    Digest::of(&(&entry.actor, &entry.command)).0
}
