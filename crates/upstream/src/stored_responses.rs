//! Table of stored responses, with their replicas and tenants. Each id belongs to the tenant that
//! made it. Nodes tell each other of their responses, so that each of them finds all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use spillway_types::{ModelName, NodeName, RegionName, ReplicaName, TenantName};

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
    /// A replica of another region, or one of the own region that another node has told of.
    Elsewhere {
        /// The region.
        region: RegionName,
        /// Node of the region that has the replica; other nodes of the region may have it too.
        node: Option<NodeName>,
        /// The replica; `None` until its region has told.
        replica: Option<ReplicaName>,
    },
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
    /// True while this node still hears from others what they know.
    is_learning: AtomicBool,
    long_ids: AtomicU64,
    taken_ids: AtomicU64,
}

impl Home {
    /// Returns true if the replica is known.
    fn is_exact(&self) -> bool {
        match self {
            Self::Replica(_) => true,
            Self::Elsewhere { replica, .. } => replica.is_some(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Replica(replica) => replica.as_str().len(),
            Self::Elsewhere { region, node, replica } => {
                let node = node.as_ref().map_or(0, |node| node.as_str().len());
                let replica = replica.as_ref().map_or(0, |replica| replica.as_str().len());
                region.as_str().len() + node + replica
            }
        }
    }
}

impl StoredResponses {
    /// Sets whether this node still hears from others what they know.
    pub fn set_learning(&self, is_learning: bool) {
        self.is_learning.store(is_learning, Ordering::Relaxed);
    }

    /// Returns true while an unknown response may be one that this node has not heard of yet.
    pub fn is_learning(&self) -> bool {
        self.is_learning.load(Ordering::Relaxed)
    }

    /// Keeps the id of a reply, or of one that another node tells of; or counts it as not kept.
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

    /// Returns true if a response with this id is known, without a use of it.
    pub fn knows(&self, id: &str) -> bool {
        self.locked(|table| table.entries.contains_key(id))
    }

    /// Returns up to `count` responses, the last used ones.
    pub fn latest(&self, count: usize) -> Vec<(Arc<str>, StoredResponse)> {
        self.locked(|table| table.latest(count))
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
        mut response: StoredResponse,
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
            if known.home.is_exact() && !response.home.is_exact() {
                response.home = known.home.clone();
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

    fn latest(&self, count: usize) -> Vec<(Arc<str>, StoredResponse)> {
        let order = |(_, entry): &(&Arc<str>, &ResponseEntry)| Reverse(entry.use_number);
        let mut latest: Vec<_> = self.entries.iter().collect();
        // Sorted only as far as needed, since requests may wait for the table.
        if count < latest.len() {
            latest.select_nth_unstable_by_key(count, order);
            latest.truncate(count);
        }
        latest.sort_unstable_by_key(order);
        let latest = latest.into_iter();
        latest.map(|(id, entry)| (Arc::clone(id), entry.response.clone())).collect()
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
#[path = "stored_responses_test.rs"]
mod stored_responses_test;
