//! Remembered outcomes of requests, for their retries.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use crate::limits::{REQUEST_AGE_MS, REQUESTS_KEYED_MAX, REQUESTS_MAX};
use crate::state::table::Table;
use crate::{Actor, CommandError, Digest, Entry, Outcome, RefusalCode, RequestId};

/// Outcomes by request id of the last [`REQUEST_AGE_MS`]: the newest [`REQUESTS_KEYED_MAX`] of
/// requests that operators named, and the newest [`REQUESTS_MAX`] of the others. Each kind pushes
/// out only its own, so that writes without a name make no named request forgotten.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Frame")]
pub(crate) struct Requests {
    table: Table<RequestId, Remembered>,
    /// Requests that operators named, by index, to find the oldest.
    keyed: BTreeMap<u64, RequestId>,
    /// The other requests, by index.
    unkeyed: BTreeMap<u64, RequestId>,
}

/// Layout of [`Requests`] in a snapshot. The ids show of which kind a request is.
#[derive(Deserialize)]
struct Frame {
    table: Table<RequestId, Remembered>,
    order: BTreeMap<u64, RequestId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    stamp_ms: u64,
    /// Digest of command and actor.
    fingerprint: Digest,
    outcome: Outcome,
}

impl Requests {
    /// Forgets requests that are older than [`REQUEST_AGE_MS`] at `stamp_ms`.
    pub(crate) fn forget_old(&mut self, stamp_ms: u64) {
        let is_old =
            |request: &Remembered| stamp_ms.saturating_sub(request.stamp_ms) > REQUEST_AGE_MS;
        for is_keyed in [true, false] {
            while self.oldest(is_keyed).is_some_and(is_old) {
                self.forget_oldest(is_keyed);
            }
        }
    }

    /// Returns the remembered outcome of the entry's request, or a refusal if the id stood for
    /// another command or actor; None if the request is new or has no id.
    pub(crate) fn recall(&self, entry: &Entry) -> Option<Outcome> {
        let remembered = self.table.get(&entry.request?)?;
        if remembered.fingerprint == fingerprint(entry) {
            return Some(remembered.outcome.clone());
        }
        // The first command's outcome would hide that this command was never carried out.
        Some(Outcome::Refused(CommandError::new(
            RefusalCode::RequestIdReused,
            "the request id stood for another command",
            "use a new id for each request, the same one only for its retries",
        )))
    }

    /// Remembers the outcome of the entry's request, unless the entry has no request id or its
    /// command is routine.
    pub(crate) fn remember(&mut self, index: u64, stamp_ms: u64, entry: &Entry, outcome: &Outcome) {
        let Some(request) = entry.request.filter(|_| !entry.command.is_routine()) else { return };
        if request.is_keyed() && entry.actor == Actor::Node {
            // Only operators name requests; a node that did would push out theirs.
            return;
        }
        let outcome = outcome.clone();
        let remembered = Remembered { stamp_ms, fingerprint: fingerprint(entry), outcome };
        self.table.insert(request, index, remembered);
        self.order_mut(request.is_keyed()).insert(index, request);
        self.keep(true, REQUESTS_KEYED_MAX);
        self.keep(false, REQUESTS_MAX);
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
