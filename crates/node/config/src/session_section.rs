//! `session` of a route: session affinity of a client's requests to one replica.

use std::time::Duration;

use http::HeaderName;
use schemars::JsonSchema;
use serde::Deserialize;
use spillway_view::{NameSpec, SessionSpec};
use toml::Spanned;

use crate::error::ConfigError;
use crate::source::Source;
use crate::split_section::check_cookie_name;

/// Default time in seconds for which a session is remembered.
const SESSION_S: u32 = 3600;
/// Number of sessions remembered at a time: about 20 MB.
const SESSIONS_MAX: u64 = 100_000;

/// Method by which a route knows the sessions of its clients: exactly one of `cookie` and `header`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionSection {
    /// Name of a cookie that names the replica; the first reply sets it.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) cookie: Option<Spanned<String>>,
    /// Name of a header that clients send with every request of a session; the nodes remember the
    /// session's replica.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) header: Option<Spanned<String>>,
    /// Time after which a session without requests is forgotten, and for which clients keep the
    /// cookie since they got it; 3,600 s by default. A node remembers 100,000 sessions by header;
    /// beyond that, the tenant with most sessions loses its least recently used ones.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub(crate) idle_s: Option<u32>,
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
    let time = Duration::from_secs(section.idle_s.unwrap_or(SESSION_S).into());
    match (&section.cookie, &section.header) {
        (Some(cookie), None) => {
            check_cookie_name(source, cookie)?;
            let name = cookie.get_ref().clone();
            Ok(SessionSpec::Cookie { name, max_age: time })
        }
        (None, Some(header)) => {
            let name: HeaderName = header.get_ref().parse().map_err(|_| {
                let message = format!("{:?} is not a header name", header.get_ref());
                source.fault(header.span(), message, "e.g. x-session-id")
            })?;
            Ok(SessionSpec::Header { name, idle: time, sessions_max: SESSIONS_MAX })
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
