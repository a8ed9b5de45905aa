//! Looks at each request's credential.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use highway::{HighwayHash, HighwayHasher};
use http::HeaderMap;
use moka::sync::Cache;
use ring::rand::{SecureRandom, SystemRandom};
use spillway_control::KeyText;
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_types::{Country, TenantName};

use super::claims::claimed;
use super::counts::AccessResult;
use super::grant::Grant;
use super::presented::Presented;
use super::table::{Entry, EntryState, KeyTable};
use crate::remote::GuestTerms;

/// Verified keys that are remembered: more than are in use within seconds at one node, in about
/// 2 MB. Wrong ones are not, or whoever tries many would push the right ones out.
const VERIFIED_MAX: u64 = 16_384;

/// Lets requests in by their keys. Waits for nobody: whoever swaps the table does not stop readers.
#[derive(Debug)]
pub struct Doorkeeper {
    posted: ArcSwap<Posted>,
    versions: AtomicU64,
    verified: Cache<u128, Verified>,
    fingerprints: Fingerprints,
    /// What they may who are not asked for a key.
    anybody: Arc<Grant>,
}

/// A table and its place in the order of tables.
#[derive(Debug)]
struct Posted {
    version: u64,
    table: Arc<KeyTable>,
}

/// A key that was right when table `version` was the one to look at.
#[derive(Clone, Debug)]
struct Verified {
    version: u64,
    entry: Arc<Entry>,
}

/// Names keys in the cache by a keyed hash of 128 bits, so that no secret is kept, and nothing that
/// a client sends decides where it lies. `None` if the system has no randomness: then no key is
/// remembered.
struct Fingerprints(Option<[u64; 4]>);

impl Doorkeeper {
    /// One that knows no key.
    #[must_use]
    pub fn new() -> Self {
        Self {
            posted: ArcSwap::from_pointee(Posted { version: 0, table: Arc::default() }),
            versions: AtomicU64::new(0),
            verified: Cache::builder().max_capacity(VERIFIED_MAX).build(),
            fingerprints: Fingerprints::random(),
            anybody: Arc::default(),
        }
    }

    /// Goes by another table from now on; what was verified by an earlier one counts no more.
    pub fn replace(&self, table: KeyTable) {
        let version = self.versions.fetch_add(1, Ordering::Relaxed) + 1;
        self.posted.store(Arc::new(Posted { version, table: Arc::new(table) }));
    }

    /// The table that requests are let in by.
    pub(crate) fn table(&self) -> Arc<KeyTable> {
        Arc::clone(&self.posted.load().table)
    }

    /// What the key among these headers allows. Counts the request.
    ///
    /// # Errors
    /// If there is none, more than one, or it lets nobody in.
    pub fn admit(&self, headers: &HeaderMap) -> Result<Arc<Grant>, GatewayError> {
        let posted = self.posted.load();
        let nobody = posted.table.nobody();
        let text = match Presented::of(headers) {
            Presented::Key(text) => text,
            Presented::Nothing => {
                nobody.count(AccessResult::Missing);
                return Err(missing());
            }
            Presented::Foreign => {
                nobody.count(AccessResult::Unknown);
                return Err(unknown());
            }
            Presented::Several => {
                nobody.count(AccessResult::Unknown);
                let message = "the request has several keys, or says a header for keys twice";
                return Err(GatewayError::new(ErrorKind::BadRequest, message));
            }
        };
        let Some(entry) = self.verify(&posted, text) else {
            nobody.count(AccessResult::Unknown);
            return Err(unknown());
        };
        let result = entry.result(now_ms);
        entry.grant.count(result);
        match result {
            AccessResult::Ok => Ok(Arc::clone(&entry.grant)),
            AccessResult::Expired => Err(invalid("the key has expired")),
            _ if entry.state == EntryState::Suspended => Err(invalid("the tenant is suspended")),
            _ => Err(invalid("the key was revoked")),
        }
    }

    /// What those may who are not asked for a key: everything.
    pub(crate) fn anybody(&self) -> Arc<Grant> {
        Arc::clone(&self.anybody)
    }

    /// What a trusted proxy's headers allow. Counts the request.
    ///
    /// # Errors
    /// If the proxy is not trusted, or does not say in one way whose the request is.
    pub(crate) fn believe(
        &self,
        headers: &HeaderMap,
        is_trusted: bool,
    ) -> Result<Arc<Grant>, GatewayError> {
        let table = self.table();
        let claims = if is_trusted { claimed(headers, &table) } else { Ok(None) };
        let grant = claims.inspect_err(|_| table.nobody().count(AccessResult::Unknown))?;
        let Some(grant) = grant else {
            table.nobody().count(AccessResult::Missing);
            let message = "this listener takes requests of its trusted proxies alone, which say \
                           whose a request is in x-spillway-tenant";
            return Err(GatewayError::new(ErrorKind::KeyMissing, message));
        };
        if table.terms(grant.tenant.as_ref().map_or("", TenantName::as_str)).is_suspended {
            grant.count(AccessResult::Revoked);
            return Err(invalid("the tenant is suspended"));
        }
        grant.count(AccessResult::Ok);
        Ok(Arc::new(grant))
    }

    /// What a request of another node may, which looked at its credential. What this node knows of the
    /// tenant may be newer than what that one knew: it has to be allowed by both.
    pub(crate) fn vouched_by(&self, guest: &GuestTerms) -> Grant {
        let grant = self.vouched(guest.tenant.as_ref(), guest.priority);
        Grant { residency: guest.residency.and(&grant.residency), ..grant }
    }

    /// What a request of this tenant may.
    pub(crate) fn vouched(&self, tenant: Option<&TenantName>, priority: u8) -> Grant {
        let posted = self.posted.load();
        let terms = tenant.map(|tenant| posted.table.terms(tenant.as_str())).unwrap_or_default();
        Grant {
            tenant: tenant.cloned(),
            priority,
            is_isolated: terms.is_isolated,
            residency: terms.residency,
            ..Grant::default()
        }
    }

    /// Whether any tenant's prompts must not look like those of others.
    pub(crate) fn isolates_any(&self) -> bool {
        self.posted.load().table.isolates_any()
    }

    /// Whether a tenant's requests may be served there, by what is known of it now.
    pub(crate) fn allows(
        &self,
        tenant: &TenantName,
        (region, country): (&str, Option<Country>),
    ) -> bool {
        self.posted.load().table.allows(tenant.as_str(), region, country)
    }

    /// The key of this text, if there is one and its secret is right.
    fn verify(&self, posted: &Posted, text: &str) -> Option<Arc<Entry>> {
        let fingerprint = self.fingerprints.of(text);
        let known = fingerprint.and_then(|fingerprint| self.verified.get(&fingerprint));
        if let Some(known) = known.filter(|known| known.version == posted.version) {
            return Some(known.entry);
        }
        let key = KeyText::read(text)?;
        let entry = posted.table.entry(key.id)?;
        // In constant time: how far a guess was right must not show.
        if !key.hash(&entry.salt).matches(&entry.hash) {
            return None;
        }
        let entry = Arc::new(entry.clone());
        if let Some(fingerprint) = fingerprint {
            let verified = Verified { version: posted.version, entry: Arc::clone(&entry) };
            self.verified.insert(fingerprint, verified);
        }
        Some(entry)
    }
}

impl Default for Doorkeeper {
    fn default() -> Self {
        Self::new()
    }
}

impl Entry {
    /// Whether who holds the key is let in.
    fn result(&self, now_ms: impl FnOnce() -> u64) -> AccessResult {
        match self.state {
            EntryState::Revoked | EntryState::Suspended => AccessResult::Revoked,
            EntryState::Good if self.expires_ms.is_some_and(|expires| expires <= now_ms()) => {
                AccessResult::Expired
            }
            EntryState::Good => AccessResult::Ok,
        }
    }
}

impl Fingerprints {
    fn random() -> Self {
        let mut bytes = [0; 32];
        let key = SystemRandom::new().fill(&mut bytes).ok().map(|()| {
            let (words, _) = bytes.as_chunks::<8>();
            std::array::from_fn(|index| u64::from_le_bytes(words[index]))
        });
        Self(key)
    }

    fn of(&self, text: &str) -> Option<u128> {
        let hasher = HighwayHasher::new(highway::Key(self.0?));
        let [low, high] = hasher.hash128(text.as_bytes());
        Some(u128::from(high) << 64 | u128::from(low))
    }
}

// By hand: its key must never reach a log.
impl std::fmt::Debug for Fingerprints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fingerprints").field(&self.0.is_some()).finish()
    }
}

/// A clock before 1970 is taken for the end of all time: a key that should have ended is not let in.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(u64::MAX, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn missing() -> GatewayError {
    let message = "a key is needed: send it as Authorization: Bearer sw_..., or as x-api-key";
    GatewayError::new(ErrorKind::KeyMissing, message)
}

fn unknown() -> GatewayError {
    invalid("the key is not known here")
}

fn invalid(message: &str) -> GatewayError {
    GatewayError::new(ErrorKind::KeyInvalid, message)
}

#[cfg(test)]
#[path = "doorkeeper_test.rs"]
mod doorkeeper_test;
