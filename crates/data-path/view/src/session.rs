//! Session affinity: later requests of a client go to the replica of its earlier ones.

use std::time::{Duration, Instant};

use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderName, HeaderValue};
use spillway_prefix::PrefixHasher;
use spillway_protocol::cookie;
use spillway_route::Candidate;
use spillway_transport::coarse_clock;
use spillway_types::{ModelName, RegionName, ReplicaName, TenantName};

use crate::session_homes::{SessionHome, SessionHomes, SessionKey};

/// Most targets in one cookie: a client of several models may have sessions at several replicas, and
/// a replica of another region also takes a target for that region.
const TARGETS_MAX: usize = 6;
/// Digits of a replica's identity in a cookie.
const PLACE_DIGITS: usize = 16;

/// Kinds of session affinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSpec {
    /// A cookie that names the replica: the client keeps it, and every node can read it.
    Cookie {
        /// Name of the cookie.
        name: String,
        /// Time that clients keep the cookie.
        max_age: Duration,
    },
    /// A header that the client sends with every request of a session; the nodes remember its
    /// replica.
    Header {
        /// Name of the header.
        name: HeaderName,
        /// Time without a request after which a session is forgotten.
        idle: Duration,
        /// Most sessions remembered; beyond that the tenant with the most loses those that it used
        /// longest ago.
        sessions_max: u64,
    },
}

/// Sessions of one route.
#[derive(Debug)]
pub struct Sessions {
    spec: SessionSpec,
    /// Homes by the hash of header and model; empty if cookies are used.
    homes: SessionHomes,
}

/// Session of one request.
#[derive(Debug, PartialEq, Eq)]
pub struct Session {
    /// Identity of the replica or region to prefer; `None` if the session has none yet.
    pub target: Option<u64>,
    token: Token,
}

/// Session information that the client sent.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    /// Identities of replicas and regions, the last that replied first.
    Cookie(Vec<u64>),
    /// Key of the remembered replica; `None` if the request belongs to no session.
    Header(Option<SessionKey>),
}

/// Target that replied to a request of a session, by its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionTarget {
    /// A replica of the own region.
    Replica(u64),
    /// Another region.
    Region(u64),
}

/// Consequence of a reply for its session.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionChange<'s> {
    /// The client is to keep another cookie.
    Cookie(NewCookie<'s>),
    /// The other nodes are to keep the home of the session with this key.
    Home(SessionKey, SessionHome),
}

/// Cookie to set at the client.
#[derive(Debug, PartialEq, Eq)]
pub struct NewCookie<'s> {
    /// Name of the cookie.
    pub name: &'s str,
    /// Value of the cookie.
    pub value: String,
    /// Time after which the client forgets the cookie.
    pub max_age: Duration,
}

impl Sessions {
    /// Returns sessions by `spec`.
    pub fn new(spec: SessionSpec) -> Self {
        let (idle, sessions_max) = match &spec {
            SessionSpec::Cookie { .. } => (Duration::ZERO, 0),
            SessionSpec::Header { idle, sessions_max, .. } => (*idle, *sessions_max),
        };
        Self { spec, homes: SessionHomes::new(idle, sessions_max) }
    }

    /// Returns the settings.
    pub fn spec(&self) -> &SessionSpec {
        &self.spec
    }

    /// Finds the session that a request names. `is_candidate` returns true if a replica or region
    /// can serve the request.
    pub fn find(
        &self,
        headers: &HeaderMap,
        (model, tenant): (Option<&ModelName>, Option<&TenantName>),
        hasher: &PrefixHasher,
        is_candidate: impl Fn(u64) -> bool,
    ) -> Session {
        match &self.spec {
            SessionSpec::Cookie { name, .. } => {
                let known = cookie(headers, name).and_then(read_places).unwrap_or_default();
                let target = known.iter().copied().find(|target| is_candidate(*target));
                Session { target, token: Token::Cookie(known) }
            }
            SessionSpec::Header { name, .. } => {
                let value = headers.get(name).filter(|value| !value.is_empty());
                let key = value.map(|value| key(value.as_bytes(), model, tenant, hasher));
                let target =
                    key.and_then(|key| self.homes.find(key, coarse_clock::now())?.target());
                Session { target, token: Token::Header(key) }
            }
        }
    }

    /// Returns the key of a session by header that has no home yet.
    pub fn new_key(&self, session: &Session) -> Option<SessionKey> {
        match session.token {
            Token::Header(key) if session.target.is_none() => key,
            _ => None,
        }
    }

    /// Notes that a replica is asked for the first request of the session with this key. Returns the
    /// home if other nodes are to keep it: they may get the next request as soon as the reply ends.
    pub fn begun(&self, key: SessionKey, replica: u64, now: Instant) -> Option<SessionHome> {
        match self.homes.find(key, now).and_then(|home| home.target()) {
            // Another request of the session was faster.
            Some(_) => None,
            None => self.homes.served(key, None, Some(replica), now),
        }
    }

    /// Notes the target that replied to a request of `session`; returns the consequence, if there is
    /// one. `beyond` are the targets in the other region's own cookie.
    pub fn replied(
        &self,
        session: &Session,
        target: SessionTarget,
        beyond: &[u64],
        now: Instant,
    ) -> Option<SessionChange<'_>> {
        match (&self.spec, &session.token) {
            (SessionSpec::Cookie { name, max_age }, Token::Cookie(known)) => {
                let target = target.identity();
                // The client knows the target already.
                if session.target == Some(target) && beyond.is_empty() {
                    return None;
                }
                // Earlier targets stay in the cookie, since they may serve other models.
                let value = write_targets(target, &[beyond, known].concat());
                Some(SessionChange::Cookie(NewCookie { name, value, max_age: *max_age }))
            }
            (SessionSpec::Header { .. }, Token::Header(Some(key))) => {
                let (region, replica) = match target {
                    SessionTarget::Replica(replica) => (None, Some(replica)),
                    SessionTarget::Region(region) => (Some(region), None),
                };
                let home = self.homes.served(*key, region, replica, now);
                home.map(|home| SessionChange::Home(*key, home))
            }
            _ => None,
        }
    }

    /// Takes in the home of a session that another node reports. Returns the home that this node
    /// gives up for it, if both had chosen one at the same time.
    pub fn receive(&self, key: SessionKey, home: SessionHome, now: Instant) -> Option<SessionHome> {
        match self.spec {
            SessionSpec::Header { .. } => self.homes.receive(key, home, now),
            SessionSpec::Cookie { .. } => None,
        }
    }

    /// Returns up to `count` homes of sessions by header, each with its key.
    pub fn some_homes(&self, count: usize) -> Vec<(SessionKey, SessionHome)> {
        self.homes.some(count, coarse_clock::now())
    }

    /// Returns true if a session continues at `target` though it belonged elsewhere. `serves_others`
    /// returns whether a target serves other models only. A cookie with only such targets belongs
    /// nowhere yet.
    pub fn moves(
        &self,
        session: &Session,
        target: u64,
        serves_others: impl Fn(u64) -> bool,
    ) -> bool {
        match (session.target, &session.token) {
            (Some(home), _) => home != target,
            (None, Token::Cookie(known)) => {
                !known.contains(&target) && known.iter().any(|known| !serves_others(*known))
            }
            // Nothing is remembered under this key, so nothing is left behind.
            (None, Token::Header(_)) => false,
        }
    }

    /// Removes this route's cookie from a reply of another region, and returns the targets in it;
    /// empty without such a cookie.
    pub fn take_cookie(&self, headers: &mut HeaderMap) -> Vec<u64> {
        let SessionSpec::Cookie { name, .. } = &self.spec else { return Vec::new() };
        let value = |line: &HeaderValue| {
            let pair = line.as_bytes().split(|byte| *byte == b';').next()?;
            pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(read_places)
        };
        if !headers.get_all(SET_COOKIE).iter().any(|line| value(line).is_some()) {
            return Vec::new();
        }
        // All other cookies of the reply stay.
        let lines: Vec<HeaderValue> = headers.get_all(SET_COOKIE).iter().cloned().collect();
        headers.remove(SET_COOKIE);
        let mut targets = Vec::new();
        for line in lines {
            match value(&line) {
                Some(found) => targets = found.unwrap_or_default(),
                None => _ = headers.append(SET_COOKIE, line),
            }
        }
        targets
    }
}

impl SessionTarget {
    /// Returns the identity of the replica or region.
    pub fn identity(self) -> u64 {
        match self {
            Self::Replica(identity) | Self::Region(identity) => identity,
        }
    }
}

/// Returns the identity of a region, distinct from those of replicas, whose names the operator
/// chooses too.
pub fn region_identity(region: &RegionName) -> u64 {
    Candidate::identity_of(&ReplicaName::from(format!("region {region}")))
}

/// Returns the key of a session: one for each model, since not every replica serves every model, and
/// one for each tenant, so that none moves another's session by its name. Keyed, or clients could make
/// their sessions collide with those of others.
fn key(
    value: &[u8],
    model: Option<&ModelName>,
    tenant: Option<&TenantName>,
    hasher: &PrefixHasher,
) -> SessionKey {
    let model = model.map(ModelName::as_str).unwrap_or_default();
    let tenant = tenant.map(TenantName::as_str).unwrap_or_default();
    let mut bytes = Vec::with_capacity(16 + model.len() + tenant.len() + value.len());
    // The lengths keep the names apart from each other and from the value.
    for name in [model, tenant] {
        bytes.extend_from_slice(&(name.len() as u64).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
    }
    bytes.extend_from_slice(value);
    let session = hasher.hash_request_key(&bytes);
    SessionKey { session, tenant: hasher.hash_request_key(tenant.as_bytes()) }
}

/// Returns the targets in a cookie's value; `None` if the gateway did not write it.
fn read_places(value: &[u8]) -> Option<Vec<u64>> {
    // The gateway never sets longer values; the bound limits the work.
    if value.len() > TARGETS_MAX * (PLACE_DIGITS + 1) {
        return None;
    }
    let text = std::str::from_utf8(value).ok()?;
    let target = |part: &str| {
        let is_place = part.len() == PLACE_DIGITS && part.bytes().all(|b| b.is_ascii_hexdigit());
        u64::from_str_radix(part, 16).ok().filter(|_| is_place)
    };
    text.split('.').map(target).collect()
}

fn write_targets(latest: u64, known: &[u64]) -> String {
    let mut targets = vec![latest];
    for target in known {
        if targets.len() < TARGETS_MAX && !targets.contains(target) {
            targets.push(*target);
        }
    }
    targets.iter().map(|target| format!("{target:016x}")).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
#[path = "session_test.rs"]
mod session_test;
