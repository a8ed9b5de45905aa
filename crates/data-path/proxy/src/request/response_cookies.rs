//! Headers and cookies that show a client which arm, model, replica or region was chosen for it.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use spillway_request::gateway::{Gateway, RoutingState};
use spillway_request::prepared::Prepared;
use spillway_route::Candidate;
use spillway_transport::coarse_clock;
use spillway_view::{
    AffinityMove, HeldSlot, HomeNews, Session, SessionChange, SessionTarget, View, region_identity,
};

static ARM: HeaderName = HeaderName::from_static("x-spillway-arm");
static MODEL: HeaderName = HeaderName::from_static("x-spillway-model");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Headers to add to a reply.
#[derive(Debug, Default)]
pub(crate) struct ResponseCookies {
    facts: Vec<(HeaderName, HeaderValue)>,
    cookies: Vec<HeaderValue>,
}

/// Finds the session of a request, whose replica or region the plan then prefers.
///
/// Call it before headers are changed for the replica.
pub(crate) fn begin_session(
    routing: &RoutingState,
    prepared: &mut Prepared,
    headers: &HeaderMap,
) -> Option<Session> {
    let sessions = prepared.route.sessions.as_ref()?;
    let model = prepared.inquiry.model.as_ref();
    let group = prepared.route.group_for(model, prepared.target.pin.as_ref()).ok().flatten();
    let regions = routing.regions();
    let region = |target: u64| {
        let mut others = regions.others.iter();
        others.find(|other| region_identity(&other.name) == target)
    };
    let whose = (model, prepared.inquiry.tenant.as_ref());
    let session = sessions.find(headers, whose, &routing.key_hasher, |target| {
        let candidates = group.map(|group| group.group.candidates()).unwrap_or_default();
        candidates.iter().any(|candidate| candidate.identity == target) || region(target).is_some()
    });
    match session.target.and_then(region) {
        Some(other) => prepared.target.session_region = Some(other.name.clone()),
        None => prepared.inquiry.session = session.target,
    }
    prepared.target.new_session = sessions.new_key(&session);
    Some(session)
}

impl ResponseCookies {
    /// Returns the headers for a reply from `target` with `status`. `forwarded` are the request's
    /// headers as sent on; `beyond` are the targets in a cookie that the serving region set.
    pub(crate) fn of(
        gateway: &Gateway,
        prepared: &Prepared,
        forwarded: &HeaderMap,
        session: Option<&Session>,
        (target, status, beyond): (&HeldSlot, StatusCode, &[u64]),
    ) -> Self {
        let mut cookies = Self::default();
        if gateway.switches.exposes_routing() {
            let arm = prepared.target.arm.as_ref().map(|chosen| chosen.arm.arm.as_str());
            let model = prepared.inquiry.model.as_ref().map(|model| model.as_str());
            cookies.fact(&ARM, arm);
            cookies.fact(&MODEL, model);
        }
        // The client's scheme: as its proxies reported it, or that of the connection.
        let is_secure = forwarded.get(&X_FORWARDED_PROTO).is_some_and(|scheme| scheme == "https");
        if let Some(chosen) = &prepared.target.arm
            && let Some(sticky) = &chosen.remember
        {
            let arm = chosen.arm.arm.as_str();
            cookies.cookie(&sticky.name, arm, sticky.max_age, is_secure);
        }
        // A session goes on at a replica of one's own.
        let is_overflow = target.replica().is_some_and(|replica| replica.is_overflow());
        if let (Some(session), Some(sessions)) = (session, &prepared.route.sessions)
            && starts_session(prepared, status)
            && !is_overflow
        {
            let served = match target {
                HeldSlot::Replica(lease) => {
                    SessionTarget::Replica(Candidate::identity_of(&lease.replica().spec().name))
                }
                HeldSlot::Region(target) => SessionTarget::Region(region_identity(&target.region)),
            };
            let serves_others = |known| serves_others(&gateway.routing.view(), prepared, known);
            // The node that sent a guest counts a move to another region.
            let is_counted = prepared.inquiry.hop == 0 || prepared.target.session_region.is_none();
            if is_counted && sessions.moves(session, served.identity(), serves_others) {
                gateway.counters.affinity_moves.count(match target {
                    HeldSlot::Replica(_) => AffinityMove::SessionToReplica,
                    HeldSlot::Region(_) => AffinityMove::SessionToRegion,
                });
            }
            match sessions.replied(session, served, beyond, coarse_clock::now()) {
                Some(SessionChange::Cookie(new)) => {
                    cookies.cookie(new.name, &new.value, new.max_age, is_secure);
                }
                Some(SessionChange::Home(key, home)) => gateway.homes.outbox.push(|| {
                    HomeNews::Session { route: prepared.route.spec.name.clone(), key, home }
                }),
                None => {}
            }
        }
        cookies
    }

    /// Adds the headers to a reply. A replica's own cookies stay.
    pub(crate) fn put(self, headers: &mut HeaderMap) {
        for (name, value) in self.facts {
            headers.insert(name, value);
        }
        for cookie in self.cookies {
            headers.append(header::SET_COOKIE, cookie);
        }
    }

    fn fact(&mut self, name: &HeaderName, value: Option<&str>) {
        // A model's name may contain characters that are invalid in a header.
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            self.facts.push((name.clone(), value));
        }
    }

    fn cookie(&mut self, name: &str, value: &str, max_age: Duration, is_secure: bool) {
        let secure = if is_secure { "; Secure" } else { "" };
        let max_age_s = max_age.as_secs();
        let text =
            format!("{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Lax{secure}");
        // Names and values consist of characters that are valid in a header.
        self.cookies.extend(HeaderValue::try_from(text));
    }
}

/// Returns true if the replica of a session serves models, but not the one asked for now. Called
/// only if the session needs a new target.
fn serves_others(view: &View, prepared: &Prepared, known: u64) -> bool {
    let Some(model) = prepared.inquiry.model.as_ref() else { return false };
    let mut replicas = view.replicas().iter();
    let is_it = |name| Candidate::identity_of(name) == known;
    let found = replicas.find(|replica| is_it(&replica.spec().name));
    found.is_some_and(|replica| !replica.spec().models.contains(model))
}

/// Returns true if a session may stay with the replica that gave this reply: not if it is busy or
/// broken, and not if it served a fallback model.
fn starts_session(prepared: &Prepared, status: StatusCode) -> bool {
    let is_refusal = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    !is_refusal && prepared.fell_back_from().is_none()
}
