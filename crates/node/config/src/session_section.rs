//! `session` of a route: session affinity of a client's requests to one replica.

use std::num::NonZero;
use std::time::Duration;

use http::HeaderName;
use schemars::JsonSchema;
use serde::Deserialize;
use spillway_upstream::names::NameSpec;
use spillway_upstream::session::SessionSpec;
use toml::Spanned;

use crate::error::ConfigError;
use crate::source::Source;
use crate::split_section::check_cookie_name;

/// Default duration of a session in seconds.
const SESSION_S: u32 = 3600;
/// Default number of sessions remembered at a time: about 20 MB.
const SESSIONS: u32 = 100_000;
/// Maximum number of sessions remembered at a time: about 2 GB.
const SESSIONS_MAX: u32 = 10_000_000;

/// Method by which a route knows the sessions of its clients: exactly one of `cookie` and `header`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionSection {
    /// Name of a cookie that names the replica; the first reply sets it.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) cookie: Option<Spanned<String>>,
    /// Time for which clients keep the cookie; 3,600 s by default.
    #[serde(default)]
    pub(crate) max_age_s: Option<NonZero<u32>>,
    /// Name of a header that clients send with every request of a session; the nodes remember the
    /// session's replica.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) header: Option<Spanned<String>>,
    /// Time after which a session without requests is forgotten; 3,600 s by default.
    #[serde(default)]
    pub(crate) idle_s: Option<NonZero<u32>>,
    /// Maximum number of remembered sessions; beyond it the tenant with most sessions loses its
    /// least recently used ones. 100,000 by default.
    #[serde(default)]
    pub(crate) sessions_max: Option<NonZero<u32>>,
}

/// Checks the section.
///
/// # Errors
/// Returns the first fault, with its line.
pub(crate) fn lower_session(
    source: &Source,
    section: &Spanned<SessionSection>,
) -> Result<SessionSpec, ConfigError> {
    let span = section.span();
    let fault = |message: &str, remedy: &str| source.fault(span.clone(), message, remedy);
    let section = section.get_ref();
    let seconds = |given: Option<NonZero<u32>>| {
        Duration::from_secs(given.map_or(SESSION_S, NonZero::get).into())
    };
    match (&section.cookie, &section.header) {
        (Some(cookie), None) => {
            // With a cookie the client remembers the replica: no session fills up or idles in this
            // node.
            if section.idle_s.is_some() || section.sessions_max.is_some() {
                let remedy = "set max_age_s, or use header instead of cookie";
                return Err(fault("idle_s and sessions_max are for sessions by header", remedy));
            }
            check_cookie_name(source, cookie)?;
            let name = cookie.get_ref().clone();
            Ok(SessionSpec::Cookie { name, max_age: seconds(section.max_age_s) })
        }
        (None, Some(header)) => {
            if section.max_age_s.is_some() {
                let remedy = "set idle_s, or use cookie instead of header";
                return Err(fault("max_age_s is for sessions by cookie", remedy));
            }
            let name: HeaderName = header.get_ref().parse().map_err(|_| {
                let message = format!("{:?} is not a header name", header.get_ref());
                source.fault(header.span(), message, "e.g. x-session-id")
            })?;
            let sessions_max = section.sessions_max.map_or(SESSIONS, NonZero::get);
            if sessions_max > SESSIONS_MAX {
                let remedy = format!("use {SESSIONS_MAX} at most");
                return Err(fault("sessions_max is more than a node can hold", &remedy));
            }
            let sessions_max = sessions_max.into();
            Ok(SessionSpec::Header { name, idle: seconds(section.idle_s), sessions_max })
        }
        _ => Err(fault(
            "a session is identified by a cookie or by a header",
            "give exactly one of cookie and header",
        )),
    }
}

/// Checks that a session's cookie is not a split's.
///
/// # Errors
/// Returns an error if a split remembers its arms by this cookie.
pub(crate) fn check_session_cookie(
    source: &Source,
    section: &Spanned<SessionSection>,
    names: &NameSpec,
) -> Result<(), ConfigError> {
    let Some(cookie) = &section.get_ref().cookie else { return Ok(()) };
    for split in &names.splits {
        if split.sticky.as_ref().is_some_and(|sticky| sticky.name == *cookie.get_ref()) {
            let message = format!("the split {} remembers its arms by this cookie", split.name);
            return Err(source.fault(cookie.span(), message, "give them different names"));
        }
    }
    Ok(())
}
