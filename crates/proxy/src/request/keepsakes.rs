//! What a client is told of the choices made for its request, and what it is to bring back.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use spillway_route::Candidate;

use crate::gateway::Gateway;
use crate::moves::{Kept, MovedTo};
use crate::place::Place;
use crate::request::prepare::Prepared;
use crate::session::{Session, region_identity};

static ARM: HeaderName = HeaderName::from_static("x-spillway-arm");
static MODEL: HeaderName = HeaderName::from_static("x-spillway-model");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Headers to add to a reply.
#[derive(Debug, Default)]
pub(crate) struct Keepsakes {
    facts: Vec<(HeaderName, HeaderValue)>,
    cookies: Vec<HeaderValue>,
}

/// Finds the session of a request, whose replica or region the plan then prefers.
///
/// To be called before headers are changed for the replica.
pub(crate) fn begin_session(
    gateway: &Gateway,
    prepared: &mut Prepared,
    headers: &HeaderMap,
) -> Option<Session> {
    let sessions = prepared.route.sessions.as_ref()?;
    let model = prepared.inquiry.model.as_ref();
    let group = prepared.route.group_for(model, prepared.target.pin.as_ref()).ok().flatten();
    let regions = gateway.regions();
    let region = |place: u64| {
        let mut others = regions.others.iter();
        others.find(|other| region_identity(&other.name) == place)
    };
    let session = sessions.find(headers, model, &gateway.key_hasher, |place| {
        let candidates = group.map(|group| group.group.candidates()).unwrap_or_default();
        candidates.iter().any(|candidate| candidate.identity == place) || region(place).is_some()
    });
    match session.place.and_then(region) {
        Some(other) => prepared.target.session_region = Some(other.name.clone()),
        None => prepared.inquiry.session = session.place,
    }
    Some(session)
}

impl Keepsakes {
    /// What a reply from this place with this status brings, `forwarded` being the request's headers as
    /// sent on. `beyond` are the places that a cookie of the place's own region named.
    pub(crate) fn of(
        gateway: &Gateway,
        prepared: &Prepared,
        forwarded: &HeaderMap,
        session: Option<&Session>,
        (place, status, beyond): (&Place, StatusCode, &[u64]),
    ) -> Self {
        let mut keepsakes = Self::default();
        if gateway.exposes_routing() {
            let arm = prepared.target.arm.as_ref().map(|chosen| chosen.arm.arm.as_str());
            let model = prepared.inquiry.model.as_ref().map(|model| model.as_str());
            keepsakes.fact(&ARM, arm);
            keepsakes.fact(&MODEL, model);
        }
        // Its own proxies have told the client's scheme already, or it is the connection's.
        let is_secure = forwarded.get(&X_FORWARDED_PROTO).is_some_and(|scheme| scheme == "https");
        if let Some(chosen) = &prepared.target.arm
            && let Some(sticky) = &chosen.remember
        {
            let arm = chosen.arm.arm.as_str();
            keepsakes.cookie(&sticky.name, arm, sticky.max_age, is_secure);
        }
        if let (Some(session), Some(sessions)) = (session, &prepared.route.sessions)
            && starts_session(prepared, status)
        {
            let identity = match place {
                Place::Replica(lease) => Candidate::identity_of(&lease.replica().spec().name),
                Place::Region(place) => region_identity(&place.region),
            };
            if sessions.moves(session, identity, |known| serves_others(gateway, prepared, known)) {
                let to = match place {
                    Place::Replica(_) => MovedTo::Replica,
                    Place::Region(_) => MovedTo::Region,
                };
                gateway.counters.moves.count(Kept::Session, to);
            }
            if let Some(new) = sessions.replied(session, identity, beyond) {
                keepsakes.cookie(new.name, &new.value, new.max_age, is_secure);
            }
        }
        keepsakes
    }

    /// Adds them to the reply's headers. A replica's own cookies stay.
    pub(crate) fn put(self, headers: &mut HeaderMap) {
        for (name, value) in self.facts {
            headers.insert(name, value);
        }
        for cookie in self.cookies {
            headers.append(header::SET_COOKIE, cookie);
        }
    }

    fn fact(&mut self, name: &HeaderName, value: Option<&str>) {
        // A model may be called something that no header can hold.
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            self.facts.push((name.clone(), value));
        }
    }

    fn cookie(&mut self, name: &str, value: &str, max_age: Duration, is_secure: bool) {
        let secure = if is_secure { "; Secure" } else { "" };
        let max_age_s = max_age.as_secs();
        let text =
            format!("{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Lax{secure}");
        // Names and values are made of what a header can hold.
        self.cookies.extend(HeaderValue::try_from(text));
    }
}

/// Whether a replica that a session has been to serves other models than the one asked for now. Looked up
/// only where a session has to find a new place.
fn serves_others(gateway: &Gateway, prepared: &Prepared, known: u64) -> bool {
    let Some(model) = prepared.inquiry.model.as_ref() else { return false };
    let view = gateway.view();
    let mut replicas = view.replicas().iter();
    let is_it = |name| Candidate::identity_of(name) == known;
    let found = replicas.find(|replica| is_it(&replica.spec().name));
    found.is_some_and(|replica| !replica.spec().models.contains(model))
}

/// Whether a session may stay with the replica that gave this reply: not with one that is busy or
/// broken, and not with one that only stood in for the session's own model.
fn starts_session(prepared: &Prepared, status: StatusCode) -> bool {
    let is_refusal = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    !is_refusal && prepared.fell_back_from().is_none()
}
