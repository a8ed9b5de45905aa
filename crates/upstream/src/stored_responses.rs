//! Table of stored responses, with their replicas and tenants. Each id belongs to the tenant that
//! made it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use spillway_types::{ModelName, NodeName, RegionName, ReplicaName, TenantName};

use crate::place::Place;

/// Longest id that is kept, in bytes: engines use about 40.
const ID_BYTES_MAX: usize = 128;
/// Most bytes of all entries together: about 100,000 responses.
const BYTES_MAX: usize = 32 << 20;
/// Bytes that an entry takes besides its texts, in all maps together.
const ENTRY_BYTES: usize = 256;
/// Time that an entry is kept after its last use.
const IDLE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Server that stores a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// A replica of the own region.
    Replica(ReplicaName),
    /// A replica of another region, which this node of that region knows.
    Node(RegionName, NodeName),
}

/// A stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// Replica or region that stores the response.
    pub home: Home,
    /// Tenant that alone may ask for the response.
    pub tenant: Option<TenantName>,
    /// Model as the client named it. A key must allow it to ask for the response again.
    pub model: ModelName,
}

/// Reasons why an id is not kept. The client has its answer, but cannot ask for it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// The id is longer than 128 bytes.
    LongId,
    /// The id already belongs to another tenant or to an answer of another model.
    Taken,
}

/// Stored responses that this node knows. A short lock guards the table, which only requests to
/// `/v1/responses` take.
#[derive(Debug, Default)]
pub struct StoredResponses {
    table: Mutex<ResponseTable>,
    long_ids: AtomicU64,
    taken_ids: AtomicU64,
}

impl Home {
    /// Returns the server of a reply from this place.
    pub fn of(place: &Place) -> Self {
        match place {
            Place::Replica(lease) => Self::Replica(lease.replica().spec().name.clone()),
            Place::Region(place) => Self::Node(place.region.clone(), place.node.clone()),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Replica(replica) => replica.as_str().len(),
            Self::Node(region, node) => region.as_str().len() + node.as_str().len(),
        }
    }
}

impl StoredResponses {
    /// Keeps an id, or counts it as not kept.
    ///
    /// # Errors
    /// Returns an error if the id is too long, or belongs to another tenant or model.
    pub fn keep(&self, id: &str, response: StoredResponse, now: Instant) -> Result<(), NotKept> {
        let kept = self.locked(|table| table.keep(id, response, now, BYTES_MAX));
        let (counter, why) = match kept {
            Ok(()) => return Ok(()),
            Err(NotKept::LongId) => (&self.long_ids, NotKept::LongId),
            Err(NotKept::Taken) => (&self.taken_ids, NotKept::Taken),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Err(why)
    }

    /// Finds the response with this id; `None` if it is unknown or expired.
    pub fn find(&self, id: &str, now: Instant) -> Option<StoredResponse> {
        self.locked(|table| table.find(id, now))
    }

    /// Returns the number of ids that were not kept since start, by reason.
    pub fn not_kept(&self) -> Vec<(&'static str, u64)> {
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![("id_too_long", total(&self.long_ids)), ("id_taken", total(&self.taken_ids))]
    }

    fn locked<T>(&self, act: impl FnOnce(&mut ResponseTable) -> T) -> T {
        act(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

type Owner = Option<TenantName>;

/// Entries by id, and by owner in the order of their last use.
#[derive(Debug, Default)]
struct ResponseTable {
    entries: HashMap<Arc<str>, ResponseEntry>,
    shelves: HashMap<Owner, Shelf>,
    /// Owners by the bytes of their entries, to find the largest.
    sizes: BTreeSet<(usize, Owner)>,
    bytes: usize,
    uses: u64,
}

#[derive(Debug)]
struct ResponseEntry {
    response: StoredResponse,
    used_at: Instant,
    /// Position in the owner's order of use.
    use_number: u64,
}

/// Entries of one owner.
#[derive(Debug, Default)]
struct Shelf {
    by_use: BTreeMap<u64, Arc<str>>,
    bytes: usize,
}

impl ResponseEntry {
    fn bytes(&self, id: &str) -> usize {
        ENTRY_BYTES + id.len() + self.response.home.bytes() + self.response.model.as_str().len()
    }

    fn is_expired(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used_at) > IDLE_MAX
    }
}

impl ResponseTable {
    fn keep(
        &mut self,
        id: &str,
        response: StoredResponse,
        now: Instant,
        bytes_max: usize,
    ) -> Result<(), NotKept> {
        if id.len() > ID_BYTES_MAX {
            return Err(NotKept::LongId);
        }
        if let Some(known) = self.entries.get(id).filter(|entry| !entry.is_expired(now)) {
            let known = &known.response;
            if known.tenant != response.tenant || known.model != response.model {
                return Err(NotKept::Taken);
            }
        }
        // Added again, so that it counts as used last.
        self.remove(id);
        self.add(id.into(), response, now);
        while self.bytes > bytes_max && self.evict() {}
        Ok(())
    }

    fn find(&mut self, id: &str, now: Instant) -> Option<StoredResponse> {
        // Added again, so that it counts as used last.
        let entry = self.remove(id).filter(|entry| !entry.is_expired(now))?;
        self.add(id.into(), entry.response.clone(), now);
        Some(entry.response)
    }

    fn add(&mut self, id: Arc<str>, response: StoredResponse, now: Instant) {
        self.uses += 1;
        let entry = ResponseEntry { response, used_at: now, use_number: self.uses };
        let (owner, bytes) = (entry.response.tenant.clone(), entry.bytes(&id));
        let shelf = self.shelves.entry(owner.clone()).or_default();
        // The size is part of the set's order, so it can't be changed in place.
        self.sizes.remove(&(shelf.bytes, owner.clone()));
        shelf.bytes += bytes;
        shelf.by_use.insert(self.uses, Arc::clone(&id));
        self.sizes.insert((shelf.bytes, owner));
        self.bytes += bytes;
        self.entries.insert(id, entry);
    }

    fn remove(&mut self, id: &str) -> Option<ResponseEntry> {
        let entry = self.entries.remove(id)?;
        let (owner, bytes) = (entry.response.tenant.clone(), entry.bytes(id));
        self.bytes -= bytes;
        if let Some(shelf) = self.shelves.get_mut(&owner) {
            self.sizes.remove(&(shelf.bytes, owner.clone()));
            shelf.bytes -= bytes;
            shelf.by_use.remove(&entry.use_number);
            if shelf.by_use.is_empty() {
                self.shelves.remove(&owner);
            } else {
                self.sizes.insert((shelf.bytes, owner));
            }
        }
        Some(entry)
    }

    /// Removes the least recently used entry of the owner with the most bytes: a large owner cannot
    /// displace the entries of smaller ones. Returns `false` if the table is empty.
    fn evict(&mut self) -> bool {
        let largest = self.sizes.last().and_then(|(_, owner)| self.shelves.get(owner));
        let oldest = largest.and_then(|shelf| shelf.by_use.values().next().cloned());
        oldest.is_some_and(|id| self.remove(&id).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tenant: &str, model: &str) -> StoredResponse {
        StoredResponse {
            home: Home::Replica("a".into()),
            tenant: Some(tenant.into()),
            model: model.into(),
        }
    }

    fn keep(table: &mut ResponseTable, id: &str, tenant: &str) -> Result<(), NotKept> {
        table.keep(id, of(tenant, "m"), Instant::now(), BYTES_MAX)
    }

    #[test]
    fn an_id_stays_with_the_tenant_and_model_that_made_it() {
        let (mut table, now) = (ResponseTable::default(), Instant::now());
        assert_eq!(keep(&mut table, "resp_1", "acme"), Ok(()));
        assert_eq!(keep(&mut table, "resp_1", "evil"), Err(NotKept::Taken));
        let other_model = table.keep("resp_1", of("acme", "other"), now, BYTES_MAX);
        assert_eq!(other_model, Err(NotKept::Taken));
        assert_eq!(keep(&mut table, "resp_1", "acme"), Ok(()), "again by the same");
        assert_eq!(table.find("resp_1", now), Some(of("acme", "m")));
        assert_eq!(table.find("resp_2", now), None);
    }

    #[test]
    fn an_id_is_forgotten_a_day_after_its_last_use() {
        let (mut table, start) = (ResponseTable::default(), Instant::now());
        table.keep("resp_1", of("acme", "m"), start, BYTES_MAX).unwrap();
        let later = start + IDLE_MAX;
        assert!(table.find("resp_1", later).is_some(), "which is a use");
        assert!(table.find("resp_1", later + IDLE_MAX).is_some());
        let end = later + IDLE_MAX + IDLE_MAX + Duration::from_secs(1);
        table.keep("resp_2", of("acme", "m"), later + IDLE_MAX, BYTES_MAX).unwrap();
        assert_eq!(table.find("resp_2", end), None);
        assert_eq!(table.keep("resp_1", of("evil", "m"), end, BYTES_MAX), Ok(()));
        assert_eq!(table.find("resp_1", end), Some(of("evil", "m")));
    }

    #[test]
    fn long_ids_are_not_kept() {
        let mut table = ResponseTable::default();
        assert_eq!(keep(&mut table, &"r".repeat(ID_BYTES_MAX + 1), "acme"), Err(NotKept::LongId));
        assert_eq!(keep(&mut table, &"r".repeat(ID_BYTES_MAX), "acme"), Ok(()));
        assert_eq!(table.entries.len(), 1);
    }

    #[test]
    fn memory_is_bounded_and_the_tenant_with_most_loses_what_it_used_longest_ago() {
        let (mut table, now) = (ResponseTable::default(), Instant::now());
        let bytes_max = 20 * (ENTRY_BYTES + 16);
        for number in 0..5 {
            table.keep(&format!("resp_a{number}"), of("acme", "m"), now, bytes_max).unwrap();
        }
        for number in 0..1_000 {
            table.keep(&format!("resp_e{number}"), of("evil", "m"), now, bytes_max).unwrap();
            assert!(table.bytes <= bytes_max, "{}", table.bytes);
        }
        for number in 0..5 {
            assert!(table.find(&format!("resp_a{number}"), now).is_some(), "{number}");
        }
        assert!(table.find("resp_e0", now).is_none());
        assert!(table.find("resp_e999", now).is_some());
        let held: usize = table.entries.iter().map(|(id, entry)| entry.bytes(id)).sum();
        let shelved: usize = table.shelves.values().map(|shelf| shelf.bytes).sum();
        assert_eq!((held, shelved), (table.bytes, table.bytes));
        assert_eq!(table.sizes.len(), 2);
    }
}
