//! Table of stored responses, with their replicas and tenants. Each id belongs to the tenant that
//! made it. Nodes send each other their responses, so that each of them finds all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use spillway_types::{ModelName, NodeName, RegionName, ReplicaName, TenantName};

use crate::fair_table::{Bounds, FairTable};

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
    /// A replica of another region, or one of the own region that another node has reported.
    Elsewhere {
        /// The region.
        region: RegionName,
        /// Node of the region that has the replica; other nodes of the region may have it too.
        node: Option<NodeName>,
        /// The replica; `None` until its region has reported it.
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
    /// True while this node still receives what the other nodes know.
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
    /// Sets whether this node still receives what the other nodes know.
    pub fn set_learning(&self, is_learning: bool) {
        self.is_learning.store(is_learning, Ordering::Relaxed);
    }

    /// Returns true while an unknown response may be one that this node has not received yet.
    pub fn is_learning(&self) -> bool {
        self.is_learning.load(Ordering::Relaxed)
    }

    /// Keeps the id of a reply of this node; or counts it as not kept.
    ///
    /// # Errors
    /// Returns an error if the id is too long, or belongs to another tenant or model.
    pub fn keep(&self, id: &str, response: StoredResponse, now: Instant) -> Result<(), NotKept> {
        self.counted(self.locked(|table| table.keep(id, response, now)))
    }

    /// Keeps the id of a reply that another node reports, or counts it as not kept. An id that
    /// replicas gave to several tenants is usable by none of them. So all nodes agree, whichever of
    /// the replies they received first.
    ///
    /// # Errors
    /// Returns an error if the id is too long, or belongs to another tenant or model.
    pub fn receive(&self, id: &str, response: StoredResponse, now: Instant) -> Result<(), NotKept> {
        self.counted(self.locked(|table| table.receive(id, response, now)))
    }

    /// Finds the response with this id; `None` if it is unknown or expired.
    pub fn find(&self, id: &str, now: Instant) -> Option<StoredResponse> {
        self.locked(|table| table.find(id, now))
    }

    /// Returns true if a response with this id is known, without a use of it.
    pub fn knows(&self, id: &str) -> bool {
        self.locked(|table| table.0.contains(id))
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

    fn counted(&self, kept: Result<(), NotKept>) -> Result<(), NotKept> {
        kept.inspect_err(|why| {
            let counter = match why {
                NotKept::LongId => &self.long_ids,
                NotKept::Taken => &self.taken_ids,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn locked<T>(&self, act: impl FnOnce(&mut ResponseTable) -> T) -> T {
        act(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Owner of a response.
type Owner = Option<TenantName>;

/// Responses by id.
#[derive(Debug)]
struct ResponseTable(FairTable<Owner, Arc<str>, KeptResponse>);

#[derive(Debug)]
struct KeptResponse {
    response: StoredResponse,
    /// True if nodes have reported responses of several tenants by this id. A replica that gave the
    /// id out twice may have replaced either response, so neither tenant gets the other's: no node
    /// finds a response by the id.
    is_contested: bool,
}

impl StoredResponse {
    fn bytes(&self, id: &str) -> usize {
        ENTRY_BYTES + id.len() + self.home.bytes() + self.model.as_str().len()
    }
}

impl ResponseTable {
    fn new(bytes_max: usize) -> Self {
        let bounds = Bounds { size_max: bytes_max, idle: IDLE_MAX, use_period: Duration::ZERO };
        Self(FairTable::new(bounds))
    }

    fn keep(
        &mut self,
        id: &str,
        mut response: StoredResponse,
        now: Instant,
    ) -> Result<(), NotKept> {
        if id.len() > ID_BYTES_MAX {
            return Err(NotKept::LongId);
        }
        if let Some(kept) = self.0.look(id, now) {
            let known = &kept.response;
            let is_other = known.tenant != response.tenant || known.model != response.model;
            if is_other || kept.is_contested {
                return Err(NotKept::Taken);
            }
            if known.home.is_exact() && !response.home.is_exact() {
                response.home = known.home.clone();
            }
        }
        let (bytes, owner) = (response.bytes(id), response.tenant.clone());
        let kept = KeptResponse { response, is_contested: false };
        self.0.put((owner, id.into()), kept, bytes, now);
        Ok(())
    }

    /// Keeps a response that another node reports. An id of two tenants is one of neither from then
    /// on.
    fn receive(&mut self, id: &str, response: StoredResponse, now: Instant) -> Result<(), NotKept> {
        let tenant = response.tenant.clone();
        let heard = self.keep(id, response, now);
        if heard == Err(NotKept::Taken)
            && let Some(kept) = self.0.find(id, now)
            && kept.response.tenant != tenant
        {
            kept.is_contested = true;
        }
        heard
    }

    fn find(&mut self, id: &str, now: Instant) -> Option<StoredResponse> {
        let kept = self.0.find(id, now)?;
        (!kept.is_contested).then(|| kept.response.clone())
    }

    fn latest(&self, count: usize) -> Vec<(Arc<str>, StoredResponse)> {
        let latest = self.0.latest(count).into_iter().filter(|(_, kept)| !kept.is_contested);
        latest.map(|(id, kept)| (Arc::clone(id), kept.response.clone())).collect()
    }
}

impl Default for ResponseTable {
    fn default() -> Self {
        Self::new(BYTES_MAX)
    }
}

#[cfg(test)]
#[path = "stored_responses_test.rs"]
mod stored_responses_test;
