//! Authenticates each request by its credential.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use highway::{HighwayHash, HighwayHasher};
use http::HeaderMap;
use moka::sync::Cache;
use ring::rand::{SecureRandom, SystemRandom};
use spillway_cluster_state::KeyText;
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_types::{Country, Residency, TenantName};
use tokio::time::Instant;

use super::claims::claimed;
use super::counts::AccessResult;
use super::grant::Grant;
use super::key_news::{KEY_WAIT_MAX, KeyNews};
use super::presented::Presented;
use super::table::{EntryState, KeyEntry, KeyTable};

/// Size of the cache of verified keys: more than one node sees within seconds, in about 2 MB. Wrong
/// keys are not cached, so that a client that tries many of them cannot push the valid ones out.
const VERIFIED_MAX: u64 = 16_384;

/// Time after which a client should retry with a key that this node is not sure of: balancers take
/// a node that is not ready out of service within a few seconds.
const UNSURE_RETRY: Duration = Duration::from_secs(2);

/// Salt of the hash that is computed for ids without a key.
const UNKNOWN_SALT: [u8; 16] = [0; 16];

/// Authenticator of requests, by their keys. Never blocks: a swap of the table does not stop
/// readers.
#[derive(Debug)]
pub struct Authenticator {
    posted: ArcSwap<Posted>,
    versions: AtomicU64,
    verified: Cache<u128, Verified>,
    fingerprints: Fingerprints,
    /// Grant of requests that need no key.
    anybody: Arc<Grant>,
    /// Waits of requests whose key may be known in a moment.
    pub news: KeyNews,
}

/// A key table with its version.
#[derive(Debug)]
struct Posted {
    version: u64,
    table: Arc<KeyTable>,
}

/// A key that was verified against table `version`.
#[derive(Clone, Debug)]
struct Verified {
    version: u64,
    entry: Arc<KeyEntry>,
}

/// Keyed 128-bit hash that names keys in the cache, so that no secret is kept and a client cannot
/// choose its slot. `None` if the system has no randomness: then no key is cached.
struct Fingerprints(Option<[u64; 4]>);

impl Authenticator {
    /// Returns an authenticator that knows no key.
    #[must_use]
    pub fn new() -> Self {
        Self {
            posted: ArcSwap::from_pointee(Posted { version: 0, table: Arc::default() }),
            versions: AtomicU64::new(0),
            verified: Cache::builder().max_capacity(VERIFIED_MAX).build(),
            fingerprints: Fingerprints::random(),
            anybody: Arc::default(),
            news: KeyNews::new(),
        }
    }

    /// Replaces the key table. Cached verifications of earlier tables no longer count.
    pub fn replace(&self, table: KeyTable) {
        let version = self.versions.fetch_add(1, Ordering::Relaxed) + 1;
        self.posted.store(Arc::new(Posted { version, table: Arc::new(table) }));
        self.news.tell(version);
    }

    /// Returns the current key table.
    pub fn table(&self) -> Arc<KeyTable> {
        Arc::clone(&self.posted.load().table)
    }

    /// Returns the grant of the key in these headers, and counts the result.
    ///
    /// # Errors
    /// Returns an error if there is no key or more than one, if the key is unknown, expired or
    /// revoked, or if its tenant is suspended.
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
            AccessResult::Unsure => Err(unsure()),
            _ if entry.state == EntryState::Suspended => Err(invalid("the tenant is suspended")),
            _ => Err(invalid("the key was revoked")),
        }
    }

    /// Returns the grant of the key in these headers, which is not known yet, once it is. Waits a
    /// moment, as far as there is hope that another node has made the key; `None` if it stays
    /// unknown. A wrong secret of a known key waits like an unknown key: otherwise the time of an
    /// answer would show which ids exist.
    pub async fn admit_soon(
        &self,
        headers: &HeaderMap,
        client: IpAddr,
    ) -> Option<Result<Arc<Grant>, GatewayError>> {
        let Presented::Key(text) = Presented::of(headers) else { return None };
        KeyText::read(text)?;
        let is_known = || self.verify(&self.posted.load(), text).is_some();
        // The key is refused for its state, which no news of a moment ago changes.
        if is_known() {
            return None;
        }
        let fingerprint = self.fingerprints.of(text)? as u64;
        let mut wait = self.news.begin(client, fingerprint)?;
        let until = Instant::now() + KEY_WAIT_MAX;
        // Looked up after the wait has begun, so that no news is missed.
        while !is_known() {
            let left = until.saturating_duration_since(Instant::now());
            if wait.changed(left).await.is_err() {
                self.news.was_in_vain(fingerprint);
                return None;
            }
        }
        Some(self.admit(headers))
    }

    /// Returns the grant of requests that need no key: everything is allowed.
    pub fn anybody(&self) -> Arc<Grant> {
        Arc::clone(&self.anybody)
    }

    /// Returns the grant that a trusted proxy's headers claim, and counts the result.
    ///
    /// # Errors
    /// Returns an error if the proxy is not trusted, or its headers name no tenant or are
    /// malformed.
    pub fn believe(
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

    /// Returns the grant of a request that another node has authenticated. This node may know newer
    /// terms of the tenant than the other one, so the residency rules of both apply.
    pub fn vouched_by(
        &self,
        tenant: Option<&TenantName>,
        priority: u8,
        residency: &Residency,
    ) -> Grant {
        let grant = self.vouched(tenant, priority);
        Grant { residency: residency.and(&grant.residency), ..grant }
    }

    /// Returns the grant of a request of this tenant, by the tenant's current terms.
    pub fn vouched(&self, tenant: Option<&TenantName>, priority: u8) -> Grant {
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

    /// Returns true if any tenant's prompts must not share cache entries with other tenants.
    pub fn isolates_any(&self) -> bool {
        self.posted.load().table.isolates_any()
    }

    /// Returns true if the tenant's current terms allow its requests to be served in this region.
    pub fn may_serve(&self, tenant: &TenantName, region: &str, country: Option<Country>) -> bool {
        self.posted.load().table.may_serve(tenant.as_str(), region, country)
    }

    /// Returns the entry of this key text if the key exists and its secret is right.
    fn verify(&self, posted: &Posted, text: &str) -> Option<Arc<KeyEntry>> {
        let fingerprint = self.fingerprints.of(text);
        let known = fingerprint.and_then(|fingerprint| self.verified.get(&fingerprint));
        // An earlier table may have verified a key that is revoked by now.
        if let Some(known) = known.filter(|known| known.version == posted.version) {
            return Some(known.entry);
        }
        let key = KeyText::read(text)?;
        let Some(entry) = posted.table.entry(key.id) else {
            // Hashed all the same, so that timing does not reveal which ids exist.
            std::hint::black_box(key.hash(&UNKNOWN_SALT));
            return None;
        };
        // Compared in constant time, so that timing does not reveal how much of a guess was right.
        if !key.hash(&entry.salt).matches(&entry.hash) {
            return None;
        }
        // Cloned, so that the cache does not keep an old table in memory.
        let entry = Arc::new(entry.clone());
        if let Some(fingerprint) = fingerprint {
            let verified = Verified { version: posted.version, entry: Arc::clone(&entry) };
            self.verified.insert(fingerprint, verified);
        }
        Some(entry)
    }
}

impl Default for Authenticator {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyEntry {
    /// Returns the result of a request with this key. Reads the clock only for keys that expire.
    fn result(&self, now_ms: impl FnOnce() -> u64) -> AccessResult {
        match self.state {
            EntryState::Revoked | EntryState::Suspended => AccessResult::Revoked,
            EntryState::Unsure => AccessResult::Unsure,
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

// Written by hand: the hash key must never reach a log.
impl std::fmt::Debug for Fingerprints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fingerprints").field(&self.0.is_some()).finish()
    }
}

/// Returns the milliseconds since 1970; `u64::MAX` if the clock shows an earlier time, so that
/// every key with an end is refused. `spillway_types::unix_ms` is not used, since it returns 0
/// then.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(u64::MAX, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn unsure() -> GatewayError {
    let message = "this node can't follow its cluster now, so it can't tell whether the key counts";
    GatewayError::new(ErrorKind::KeyUnsure, message).with_retry_after(UNSURE_RETRY)
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
#[path = "authenticator_test.rs"]
mod authenticator_test;
