//! Session affinity: later requests of a client go to the replica of its earlier ones.

use std::time::Duration;

use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderName, HeaderValue};
use moka::sync::Cache;
use spillway_prefix::PrefixHasher;
use spillway_protocol::cookie;
use spillway_route::Candidate;
use spillway_types::{ModelName, RegionName, ReplicaName};

/// Most places in one cookie: a client of several models may have sessions at several replicas, and
/// a replica of another region also takes a place for that region.
const PLACES_MAX: usize = 6;
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
    /// A header that the client sends with every request of a session; this node remembers its
    /// replica.
    Header {
        /// Name of the header.
        name: HeaderName,
        /// Time without a request after which a session is forgotten.
        idle: Duration,
        /// Most sessions remembered; beyond that the least used are forgotten.
        sessions_max: u64,
    },
}

/// Sessions of one route.
#[derive(Debug)]
pub struct Sessions {
    spec: SessionSpec,
    /// Identity of the replica by the hash of header and model; empty if cookies are used.
    places: Cache<u64, u64>,
}

/// Session of one request.
#[derive(Debug, PartialEq, Eq)]
pub struct Session {
    /// Identity of the replica or region to prefer; `None` if the session has none yet.
    pub place: Option<u64>,
    token: Token,
}

/// Session information that the client sent.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    /// Identities of replicas and regions, the last that replied first.
    Cookie(Vec<u64>),
    /// Key of the remembered replica; `None` if the request belongs to no session.
    Header(Option<u64>),
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
        let places = Cache::builder().max_capacity(sessions_max).time_to_idle(idle).build();
        Self { spec, places }
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
        model: Option<&ModelName>,
        hasher: &PrefixHasher,
        is_candidate: impl Fn(u64) -> bool,
    ) -> Session {
        match &self.spec {
            SessionSpec::Cookie { name, .. } => {
                let known = cookie(headers, name).and_then(read_places).unwrap_or_default();
                let place = known.iter().copied().find(|place| is_candidate(*place));
                Session { place, token: Token::Cookie(known) }
            }
            SessionSpec::Header { name, .. } => {
                let value = headers.get(name).filter(|value| !value.is_empty());
                let key = value.map(|value| key(value.as_bytes(), model, hasher));
                let place = key.and_then(|key| self.places.get(&key));
                Session { place, token: Token::Header(key) }
            }
        }
    }

    /// Notes the replica or region that replied to a request of `session`; returns the cookie to
    /// set, if it changes. `beyond` are the places in the other region's own cookie.
    pub fn replied(&self, session: &Session, place: u64, beyond: &[u64]) -> Option<NewCookie<'_>> {
        // The client or this node knows the place already.
        if session.place == Some(place) && beyond.is_empty() {
            return None;
        }
        match (&self.spec, &session.token) {
            (SessionSpec::Cookie { name, max_age }, Token::Cookie(known)) => {
                // Earlier places stay in the cookie, since they may serve other models.
                let value = write_places(place, &[beyond, known].concat());
                Some(NewCookie { name, value, max_age: *max_age })
            }
            (SessionSpec::Header { .. }, Token::Header(Some(key))) => {
                self.places.insert(*key, place);
                None
            }
            _ => None,
        }
    }

    /// Returns true if a session continues at `place` though it belonged elsewhere. A cookie with
    /// places for other models only, as `serves_others` tells, belongs nowhere yet.
    pub fn moves(
        &self,
        session: &Session,
        place: u64,
        serves_others: impl Fn(u64) -> bool,
    ) -> bool {
        match (session.place, &session.token) {
            (Some(home), _) => home != place,
            (None, Token::Cookie(known)) => {
                !known.contains(&place) && known.iter().any(|known| !serves_others(*known))
            }
            // Nothing is remembered under this key, so nothing is left behind.
            (None, Token::Header(_)) => false,
        }
    }

    /// Removes this route's cookie from a reply of another region, and returns the places in it;
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
        let mut places = Vec::new();
        for line in lines {
            match value(&line) {
                Some(found) => places = found.unwrap_or_default(),
                None => _ = headers.append(SET_COOKIE, line),
            }
        }
        places
    }
}

/// Returns the identity of a region, distinct from those of replicas, whose names the operator
/// chooses too.
pub fn region_identity(region: &RegionName) -> u64 {
    Candidate::identity_of(&ReplicaName::from(format!("region {region}")))
}

/// Returns the key of a session: one for each model, since not every replica serves every model.
/// Keyed, or clients could make their sessions collide with those of others.
fn key(value: &[u8], model: Option<&ModelName>, hasher: &PrefixHasher) -> u64 {
    let model = model.map(ModelName::as_str).unwrap_or_default();
    let mut bytes = Vec::with_capacity(8 + model.len() + value.len());
    // The length keeps the name of the model apart from the value.
    bytes.extend_from_slice(&(model.len() as u64).to_le_bytes());
    bytes.extend_from_slice(model.as_bytes());
    bytes.extend_from_slice(value);
    hasher.hash_request_key(&bytes)
}

/// Returns the places in a cookie's value; `None` if the gateway did not write it.
fn read_places(value: &[u8]) -> Option<Vec<u64>> {
    // The gateway never sets longer values; the bound limits the work.
    if value.len() > PLACES_MAX * (PLACE_DIGITS + 1) {
        return None;
    }
    let text = std::str::from_utf8(value).ok()?;
    let place = |part: &str| {
        let is_place = part.len() == PLACE_DIGITS && part.bytes().all(|b| b.is_ascii_hexdigit());
        u64::from_str_radix(part, 16).ok().filter(|_| is_place)
    };
    text.split('.').map(place).collect()
}

fn write_places(latest: u64, known: &[u64]) -> String {
    let mut places = vec![latest];
    for place in known {
        if places.len() < PLACES_MAX && !places.contains(place) {
            places.push(*place);
        }
    }
    places.iter().map(|place| format!("{place:016x}")).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use spillway_prefix::PrefixConfig;

    use super::*;

    const MAX_AGE: Duration = Duration::from_secs(60);

    fn by_cookie() -> Sessions {
        Sessions::new(SessionSpec::Cookie { name: "home".to_owned(), max_age: MAX_AGE })
    }

    fn by_header(idle: Duration, sessions_max: u64) -> Sessions {
        let name = HeaderName::from_static("x-session");
        Sessions::new(SessionSpec::Header { name, idle, sessions_max })
    }

    fn find(sessions: &Sessions, line: (&'static str, &str), candidates: &[u64]) -> Session {
        find_for(sessions, line, "tiny", candidates)
    }

    fn find_for(
        sessions: &Sessions,
        (name, value): (&'static str, &str),
        model: &str,
        candidates: &[u64],
    ) -> Session {
        let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).expect("a hasher");
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).expect("a value"));
        let model = ModelName::from(model);
        sessions.find(&headers, Some(&model), &hasher, |place| candidates.contains(&place))
    }

    #[test]
    fn a_cookie_leads_to_the_replica_that_set_it() {
        let sessions = by_cookie();
        let fresh = find(&sessions, ("cookie", "a=b"), &[1, 2]);
        assert_eq!(fresh.place, None);
        let set = sessions.replied(&fresh, 2, &[]).expect("a cookie");
        let expected = NewCookie { name: "home", value: format!("{:016x}", 2), max_age: MAX_AGE };
        assert_eq!(set, expected);
        let back = find(&sessions, ("cookie", &format!("home={}", set.value)), &[1, 2]);
        assert_eq!(back.place, Some(2));
        assert_eq!(sessions.replied(&back, 2, &[]), None, "nothing new to tell");
    }

    #[test]
    fn a_session_that_moved_stays_where_it_went() {
        let sessions = by_cookie();
        let cookie = |places: &[u64]| format!("home={}", write_places(places[0], &places[1..]));
        let moved = find(&sessions, ("cookie", &cookie(&[1])), &[1, 2]);
        let set = sessions.replied(&moved, 2, &[]).expect("a cookie");
        assert_eq!(set.value, write_places(2, &[1]));
        let again = find(&sessions, ("cookie", &format!("home={}", set.value)), &[1, 2]);
        assert_eq!(again.place, Some(2));
        // Another model of the same client, which only the first replica serves.
        let other = find(&sessions, ("cookie", &format!("home={}", set.value)), &[1, 3]);
        assert_eq!((other.place, sessions.replied(&other, 1, &[])), (Some(1), None));
        let swapped = find(&sessions, ("cookie", &cookie(&[1, 2])), &[1, 2]);
        assert_eq!(sessions.replied(&swapped, 2, &[]).expect("one").value, write_places(2, &[1]));
        assert_eq!(write_places(2, &[1, 2]), write_places(2, &[1]), "each is named once");
        let full = find(&sessions, ("cookie", &cookie(&[1, 2, 3, 4, 6, 7])), &[5]);
        assert_eq!(full.place, None);
        let set = sessions.replied(&full, 5, &[]).expect("one").value;
        assert_eq!(set, write_places(5, &[1, 2, 3, 4, 6]));
    }

    #[test]
    fn a_session_moves_when_it_is_served_elsewhere_than_before() {
        let none = |_| false;
        let sessions = by_cookie();
        let cookie = format!("home={}", write_places(1, &[9]));
        let known = find(&sessions, ("cookie", &cookie), &[1, 2]);
        assert!(!sessions.moves(&known, 1, none) && sessions.moves(&known, 2, none));
        let fresh = find(&sessions, ("cookie", "a=b"), &[1, 2]);
        assert!(!sessions.moves(&fresh, 2, none), "it begins");
        // Its replica is no candidate any more.
        let lost = find(&sessions, ("cookie", &cookie), &[2]);
        assert!(sessions.moves(&lost, 2, none));
        assert!(!sessions.moves(&lost, 2, |_| true), "its first request for this model");
        let sessions = by_header(MAX_AGE, 10);
        let line = ("x-session", "s-1");
        let fresh = find(&sessions, line, &[]);
        sessions.replied(&fresh, 7, &[]);
        let known = find(&sessions, line, &[]);
        assert!(!sessions.moves(&fresh, 7, none));
        assert!(!sessions.moves(&known, 7, none) && sessions.moves(&known, 8, none));
    }

    #[test]
    fn a_cookie_of_another_region_becomes_one_that_names_the_region_and_its_replica() {
        const REGION: u64 = 100;
        let sessions = by_cookie();
        let fresh = find(&sessions, ("cookie", "a=b"), &[REGION]);
        let mut headers = HeaderMap::new();
        let there = write_places(2, &[]);
        for line in ["mine=1; Path=/", &format!("home={there}; Path=/; HttpOnly"), "homes=x"] {
            headers.append(SET_COOKIE, HeaderValue::from_str(line).expect("a value"));
        }
        let beyond = sessions.take_cookie(&mut headers);
        assert_eq!(beyond, [2]);
        let left: Vec<_> = headers.get_all(SET_COOKIE).iter().collect();
        assert_eq!(left, ["mine=1; Path=/", "homes=x"], "others are the replica's own");
        assert!(sessions.take_cookie(&mut headers).is_empty());
        let set = sessions.replied(&fresh, REGION, &beyond).expect("a cookie");
        assert_eq!(set.value, write_places(REGION, &[2]));
        // In this region the cookie leads to the other region, and there to the replica.
        let line = format!("home={}", set.value);
        assert_eq!(find(&sessions, ("cookie", &line), &[1, REGION]).place, Some(REGION));
        let there = find(&sessions, ("cookie", &line), &[2, 3]);
        assert_eq!((there.place, sessions.replied(&there, 2, &[])), (Some(2), None));
        let back = find(&sessions, ("cookie", &line), &[1, REGION]);
        assert_eq!(sessions.replied(&back, REGION, &[]), None, "nothing new to tell");
        let moved = sessions.replied(&back, REGION, &[3]).expect("a cookie");
        assert_eq!(moved.value, write_places(REGION, &[3, 2]), "another replica there");
    }

    #[test]
    fn a_cookie_that_was_never_set_here_counts_for_nothing() {
        let sessions = by_cookie();
        let valid = format!("{:016x}", 1);
        let long = [valid.as_str(); PLACES_MAX + 2].join(".");
        for value in ["", "1", "x", "000000000000000g", "+000000000000001", &long, "0.1"] {
            for value in [value.to_owned(), format!("{valid}.{value}")] {
                let found = find(&sessions, ("cookie", &format!("home={value}")), &[1]);
                assert_eq!(found, Session { place: None, token: Token::Cookie(Vec::new()) });
            }
        }
    }

    #[test]
    fn a_header_is_remembered_for_each_model() {
        let sessions = by_header(MAX_AGE, 100);
        let line = ("x-session", "s-1");
        let fresh = find(&sessions, line, &[]);
        assert_eq!(fresh.place, None);
        assert_eq!(sessions.replied(&fresh, 7, &[]), None, "nothing to tell the client");
        let back = find(&sessions, line, &[]);
        assert_eq!(back.place, Some(7));
        assert_eq!(find(&sessions, ("x-session", "s-2"), &[]).place, None);
        assert_eq!(find_for(&sessions, line, "other", &[]).place, None);
        sessions.replied(&back, 8, &[]);
        assert_eq!(find(&sessions, line, &[]).place, Some(8), "it moved");
        for line in [("x-session", ""), ("x-other", "s-1")] {
            let none = find(&sessions, line, &[]);
            assert_eq!(none, Session { place: None, token: Token::Header(None) });
            sessions.replied(&none, 9, &[]);
        }
    }

    #[test]
    fn only_so_many_sessions_are_remembered() {
        let sessions = by_header(MAX_AGE, 10);
        for number in 0..1_000 {
            let found = find(&sessions, ("x-session", &format!("s-{number}")), &[]);
            sessions.replied(&found, 1, &[]);
        }
        sessions.places.run_pending_tasks();
        assert!(sessions.places.entry_count() <= 10, "{}", sessions.places.entry_count());
    }

    #[test]
    fn an_idle_session_is_forgotten() {
        let sessions = by_header(Duration::from_millis(1), 10);
        let line = ("x-session", "s-1");
        sessions.replied(&find(&sessions, line, &[]), 1, &[]);
        // wait: for the session's own idle time, which moka takes from the real clock.
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(find(&sessions, line, &[]).place, None);
    }
}
