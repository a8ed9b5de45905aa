//! Authentication and authorization of callers.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use spillway_cluster_state::{KeyId, KeyRole, KeyText, State, key_hash};
use spillway_types::unix_ms;
use tokio::sync::watch;

use crate::config::{AdminConfig, AdminRole};
use crate::error::ApiError;

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Name of the caller in the audit trail.
    pub(crate) name: String,
    pub(crate) role: AdminRole,
}

/// Credential of a caller, for checking it again while the request goes on.
#[derive(Clone)]
pub(crate) struct Credential {
    token: Option<Arc<str>>,
    config: watch::Receiver<Arc<AdminConfig>>,
}

/// Header of requests that the console sends, which no form and no page of another origin can send.
const CONSOLE: &str = "x-spillway-console";
/// Name of a caller that needs no token.
const LOCAL: &str = "local";

impl Credential {
    pub(crate) fn of(
        head: &Parts,
        config: watch::Receiver<Arc<AdminConfig>>,
    ) -> Result<Self, ApiError> {
        Ok(Self { token: token(&head.headers)?.map(Arc::from), config })
    }

    /// Returns true if the credential is still valid.
    pub(crate) fn holds(&self, state: Option<&State>) -> bool {
        let config = self.config.borrow();
        match &self.token {
            Some(token) => known(token, &config, state).is_some(),
            None => !config.wants_token(),
        }
    }

    /// Returns true if callers need a token.
    pub(crate) fn is_needed(&self) -> bool {
        self.config.borrow().wants_token()
    }

    /// Returns once the config's tokens have changed; never if they cannot change any more.
    pub(crate) async fn changed(&mut self) {
        if self.config.changed().await.is_err() {
            // The sender is gone, so the tokens stay as they are.
            std::future::pending::<()>().await;
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}

/// Authenticates a caller by the tokens of the config and the keys of `state`.
pub(crate) fn caller(
    head: &Parts,
    config: &AdminConfig,
    state: Option<&State>,
) -> Result<Caller, ApiError> {
    check_host(head, config)?;
    match token(&head.headers)? {
        Some(token) => known(token, config, state)
            .ok_or_else(|| unauthorized("the token is unknown, revoked or expired")),
        None if config.wants_token() => Err(unauthorized("there is no token")),
        None => local(head),
    }
}

fn known(token: &str, config: &AdminConfig, state: Option<&State>) -> Option<Caller> {
    // Tokens of the config need no state, so they work without a cluster.
    of_config(token, config).or_else(|| of_state(token, state?))
}

/// Refuses requests that name another host, against DNS rebinding: a web page can point its own
/// name at this machine. Every `Host` header counts, and the host of the target. A request without
/// any comes from no browser.
pub(crate) fn check_host(head: &Parts, config: &AdminConfig) -> Result<(), ApiError> {
    let mut hosts = head.headers.get_all(header::HOST).iter().map(|host| host.to_str().ok());
    let target = head.uri.authority().map(|authority| authority.as_str());
    let is_ours = |host: &str| is_local(host) || is_named(host, &config.names);
    if hosts.all(|host| host.is_some_and(is_ours)) && target.is_none_or(is_ours) {
        return Ok(());
    }
    let cause = "the request names a host that is not this listener";
    let remedy = "name the listener by its IP address, or add the name to names in [admin]";
    Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", cause, remedy))
}

/// Returns an error if the caller's role is lower than `role`.
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
    // HTTP compares the scheme's name without regard to case.
    let token = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let unreadable = || unauthorized("the authorization can't be read");
    token.map(|(_, token)| Some(token.trim())).ok_or_else(unreadable)
}

fn of_config(token: &str, config: &AdminConfig) -> Option<Caller> {
    if config.tokens.is_empty() {
        return None;
    }
    // Without a salt, so that operators can make the hash with `sha256sum`.
    let hash = key_hash(&[], token.as_bytes());
    let found = config.tokens.iter().find(|known| known.hash.matches(&hash))?;
    Some(Caller { name: found.name.clone(), role: found.role })
}

fn of_state(token: &str, state: &State) -> Option<Caller> {
    let shown = KeyText::read(token)?;
    let key = state.records().keys.get(&KeyId::from(shown.id));
    // Hashed without a key, too, so that timing does not reveal which ids exist.
    let hash = shown.hash(&key.map_or([0; 16], |key| key.salt));
    let key = key.filter(|key| key.hash.matches(&hash))?;
    let now_ms = unix_ms(SystemTime::now());
    if key.is_revoked || key.expires_ms.is_some_and(|ends_ms| ends_ms <= now_ms) {
        return None;
    }
    let role = match key.role {
        // A client's key is for models, never for the admin API.
        KeyRole::Client => return None,
        KeyRole::Read => AdminRole::Read,
        KeyRole::Operate => AdminRole::Operate,
        KeyRole::Admin => AdminRole::Admin,
    };
    Some(Caller { name: format!("key:{}", shown.id), role })
}

/// Authenticates a caller at a listener without tokens: it may do everything, unless the request
/// comes from a web page other than the console, for which a browser adds an `Origin`.
fn local(head: &Parts) -> Result<Caller, ApiError> {
    // Without a host, nothing shows by which name the sender came here.
    let has_host = head.headers.contains_key(header::HOST) || head.uri.authority().is_some();
    if is_from_other_page(head) || !has_host {
        let cause = "the request seems to come from a web page";
        let remedy = "name the listener by its IP address, or set a token file";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", cause, remedy));
    }
    Ok(Caller { name: LOCAL.to_owned(), role: AdminRole::Admin })
}

/// Returns true for requests of web pages that this listener has not served. A browser adds the
/// page's `Origin`, which no script can change, and asks for permission before it sends a header of
/// the page's own to another origin. This listener never gives that permission. For a GET it may
/// send only `Sec-Fetch-Site`.
fn is_from_other_page(head: &Parts) -> bool {
    let mut origins = head.headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else { return is_from_other_site(head) };
    let page = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    // `check_host` has made sure that this host is the listener.
    let is_own =
        page.is_some_and(|(_, page)| host.is_some_and(|host| page.eq_ignore_ascii_case(host)));
    !is_own || origins.next().is_some() || !head.headers.contains_key(CONSOLE)
}

/// Paths that a link of another page does not lead to: they take one of few places, or the state.
const NO_VISITS: [&str; 3] = ["/v1/live", "/v1/watch", "/v1/backup"];

/// Returns true if a browser reports that a page of another origin sent the request. A link that
/// opens a page of its own does not count: no other page can read it.
fn is_from_other_site(head: &Parts) -> bool {
    let said = |name: &str| head.headers.get(name).map(HeaderValue::as_bytes);
    let is_visit = said("sec-fetch-mode") == Some(b"navigate".as_slice())
        && said("sec-fetch-dest") == Some(b"document".as_slice())
        && head.method == Method::GET
        && !NO_VISITS.contains(&head.uri.path());
    said("sec-fetch-site").is_some_and(|site| !matches!(site, b"same-origin" | b"none"))
        && !is_visit
}

fn is_named(host: &str, names: &[String]) -> bool {
    // Parsed because of the port, which does not matter here.
    let Ok(authority) = host.parse::<http::uri::Authority>() else { return false };
    names.iter().any(|name| name.eq_ignore_ascii_case(authority.host()))
}

fn is_local(host: &str) -> bool {
    let Ok(authority) = host.parse::<http::uri::Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

pub(crate) fn unauthorized(cause: &str) -> ApiError {
    let remedy = "send `Authorization: Bearer TOKEN`, as in the node's token file";
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", cause, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_that_a_request_names_has_to_be_the_listener() {
        let config =
            AdminConfig { names: vec!["Node-1.internal".to_owned()], ..Default::default() };
        let check = |uri: &str, hosts: &[&str]| {
            let mut request = http::Request::get(uri);
            for host in hosts {
                request = request.header("host", *host);
            }
            check_host(&request.body(()).unwrap().into_parts().0, &config).is_ok()
        };
        for host in ["127.0.0.1", "[::1]:9900", "localhost:1", "node-1.internal:9900"] {
            assert!(check("/metrics", &[host]), "{host}");
        }
        assert!(check("/metrics", &[]), "as checks over HTTP/1.0 are");
        assert!(check("http://127.0.0.1:9900/metrics", &["127.0.0.1:9900"]));
        for hosts in [
            &["evil.example"][..],
            &["127.0.0.1", "evil.example"],
            &["node-1.internal.evil.example"],
            &[""],
        ] {
            assert!(!check("/metrics", hosts), "{hosts:?}");
        }
        assert!(!check("http://evil.example/metrics", &["127.0.0.1"]));
    }

    #[test]
    fn without_a_token_whoever_names_no_host_or_comes_from_a_page_is_nobody() {
        let of = |headers: &[(&str, &str)]| {
            let mut request = http::Request::get("/metrics");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let head = request.body(()).unwrap().into_parts().0;
            caller(&head, &AdminConfig::default(), None).is_ok()
        };
        assert!(of(&[("host", "127.0.0.1")]));
        assert!(!of(&[]));
        assert!(!of(&[("host", "127.0.0.1"), ("origin", "http://127.0.0.1")]));
        let sent = |site, mode, dest| {
            let of_browser =
                [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            of(&[&[("host", "127.0.0.1")][..], &of_browser].concat())
        };
        for site in ["cross-site", "same-site"] {
            assert!(!sent(site, "no-cors", "image") && !sent(site, "navigate", "iframe"), "{site}");
            assert!(sent(site, "navigate", "document"), "a link in a page of {site}");
        }
        for site in ["same-origin", "none"] {
            assert!(sent(site, "cors", "empty"), "{site}");
        }
    }

    /// Each takes one of few places, or makes the node encode its whole state.
    #[test]
    fn a_link_of_another_page_opens_no_stream_and_no_backup() {
        let visited = |path: &str, site: &str| {
            let request = http::Request::get(path)
                .header("host", "127.0.0.1")
                .header("sec-fetch-site", site)
                .header("sec-fetch-mode", "navigate")
                .header("sec-fetch-dest", "document");
            let head = request.body(()).unwrap().into_parts().0;
            caller(&head, &AdminConfig::default(), None).is_ok()
        };
        for path in NO_VISITS {
            assert!(!visited(path, "cross-site") && !visited(path, "same-site"), "{path}");
            assert!(visited(path, "none"), "{path}: as typed by a person");
        }
        assert!(visited("/v1/status", "cross-site"));
    }

    #[test]
    fn without_a_token_only_the_own_console_is_let_in_of_all_pages() {
        let of = |origins: &[&str], marks: usize| {
            let mut request = http::Request::post("/v1/leader").header("host", "127.0.0.1:9900");
            for origin in origins {
                request = request.header("origin", *origin);
            }
            for _ in 0..marks {
                request = request.header(CONSOLE, "1");
            }
            let head = request.body(()).unwrap().into_parts().0;
            caller(&head, &AdminConfig::default(), None).is_ok()
        };
        assert!(of(&["http://127.0.0.1:9900"], 1));
        assert!(!of(&["http://127.0.0.1:9900"], 0), "as a form of that page would be");
        for other in [
            "http://127.0.0.1:8080",
            "http://127.0.0.1",
            "http://localhost:9900",
            "https://evil.example",
            "http://127.0.0.1:9900.evil.example",
            "null",
            "",
        ] {
            assert!(!of(&[other], 1), "{other}");
            assert!(!of(&["http://127.0.0.1:9900", other], 1), "{other}");
        }
    }

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
