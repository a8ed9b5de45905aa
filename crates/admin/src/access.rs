//! Who asks, and what they may.

use std::time::{SystemTime, UNIX_EPOCH};

use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use spillway_control::{KeyId, KeyRole, KeyText, State, key_hash};

use crate::config::{AdminConfig, AdminRole};
use crate::error::ApiError;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// As it stands in the audit trail.
    pub(crate) name: String,
    pub(crate) role: AdminRole,
}

/// The name of whoever needs no token.
const LOCAL: &str = "local";

/// Who asks, by the tokens of the config and the keys of `state`.
pub(crate) fn caller(
    head: &Parts,
    config: &AdminConfig,
    state: Option<&State>,
) -> Result<Caller, ApiError> {
    match token(&head.headers)? {
        Some(token) => {
            let known = of_config(token, config).or_else(|| of_state(token, state?));
            known.ok_or_else(|| unauthorized("the token is unknown, revoked or expired"))
        }
        None if config.tokens.is_empty() => local(head),
        None => Err(unauthorized("there is no token")),
    }
}

/// Whether the caller may do what needs `role`.
pub(crate) fn check_role(caller: &Caller, role: AdminRole) -> Result<(), ApiError> {
    if caller.role >= role {
        return Ok(());
    }
    let cause = format!("{} has the role {}, this needs {role}", caller.name, caller.role);
    let remedy = "use a token of that role";
    Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", cause, remedy))
}

fn token(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let token = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let unreadable = || unauthorized("the authorization can't be read");
    token.map(|(_, token)| Some(token.trim())).ok_or_else(unreadable)
}

fn of_config(token: &str, config: &AdminConfig) -> Option<Caller> {
    if config.tokens.is_empty() {
        return None;
    }
    let hash = key_hash(&[], token.as_bytes());
    let found = config.tokens.iter().find(|known| known.hash.matches(&hash))?;
    Some(Caller { name: found.name.clone(), role: found.role })
}

fn of_state(token: &str, state: &State) -> Option<Caller> {
    let shown = KeyText::read(token)?;
    let key = state.records().keys.get(&KeyId::from(shown.id))?;
    if key.is_revoked || key.expires_ms.is_some_and(|ends_ms| ends_ms <= now_ms()) {
        return None;
    }
    let is_right = shown.hash(&key.salt).matches(&key.hash);
    let role = match key.role {
        KeyRole::Client => return None,
        KeyRole::Read => AdminRole::Read,
        KeyRole::Operate => AdminRole::Operate,
        KeyRole::Admin => AdminRole::Admin,
    };
    is_right.then(|| Caller { name: format!("key:{}", shown.id), role })
}

/// Whoever reaches a listener without tokens may do everything, except web pages: a browser would
/// carry their requests here, with an `Origin`, or with the page's own name as `Host` if that name
/// was pointed at this machine.
fn local(head: &Parts) -> Result<Caller, ApiError> {
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| head.uri.authority().map(|authority| authority.as_str()));
    if head.headers.contains_key(header::ORIGIN) || !host.is_some_and(is_local) {
        let cause = "the request seems to come from a web page";
        let remedy = "name the listener by its IP address, or set a token file";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", cause, remedy));
    }
    Ok(Caller { name: LOCAL.to_owned(), role: AdminRole::Admin })
}

fn is_local(host: &str) -> bool {
    let Ok(authority) = host.parse::<http::uri::Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

/// By this node's own clock, as keys want it.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn unauthorized(cause: &str) -> ApiError {
    let remedy = "send `Authorization: Bearer TOKEN`, as in the node's token file";
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", cause, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_local() {
        for host in ["127.0.0.1", "127.0.0.1:9900", "[::1]:9900", "localhost:9900", "LOCALHOST"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "", "a b", "127.0.0.1.evil.example"]
        {
            assert!(!is_local(host), "{host}");
        }
    }
}
