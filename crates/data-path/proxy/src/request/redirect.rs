//! Confines references in a replica's reply to this gateway.
//!
//! A client that follows a replica's own address would bypass keys and limits, and one that follows
//! a reference to any other host takes its key along.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Response, StatusCode};
use spillway_protocol::{ErrorKind, GatewayError, own_target};
use spillway_request::headers::X_FORWARDED_HOST;
use spillway_request::path::Prefixes;
use spillway_request::prepared::Prepared;
use spillway_types::BasePath;

use crate::request::dispatch::Dispatched;
use crate::request::sending::path_at;

static REFRESH: HeaderName = HeaderName::from_static("refresh");

/// Origin of a reply.
#[derive(Clone, Copy, Debug)]
struct ReplyOrigin<'a> {
    /// Path prefixes of the route here and at the replica; `None` if paths are the same.
    prefixes: Option<Prefixes<'a>>,
    /// Path below which the server has its API; `None` for the root.
    base: Option<&'a BasePath>,
    /// Path that was requested there.
    path: &'a PathAndQuery,
    /// Hosts by which the server may refer to itself: its address, and the host that the client
    /// requested.
    hosts: [Option<&'a HeaderValue>; 2],
}

/// Rewrites or removes references of a reply, so that the client does not follow a replica to
/// another server.
///
/// # Errors
/// Returns an error if the reply redirects to another server.
pub(super) fn confine_reply(
    dispatched: &mut Dispatched,
    prepared: &Prepared,
    asked: &Parts,
) -> Result<(), GatewayError> {
    let line =
        dispatched.target.replica().map(|replica| replica.connections().line(prepared.traffic()));
    // Without a base path nothing is copied.
    let joined = line.as_ref().and_then(|line| line.base.map(|_| path_at(line, &prepared.path)));
    let source = match &line {
        Some(line) => ReplyOrigin {
            prefixes: Prefixes::of(&prepared.route.spec),
            base: line.base,
            path: joined.as_ref().unwrap_or(&prepared.path),
            hosts: [Some(line.authority), asked.headers.get(&X_FORWARDED_HOST)],
        },
        // The other node has already rewritten references to its client's paths.
        None => {
            let Some(path) = asked.uri.path_and_query() else { return Ok(()) };
            ReplyOrigin { prefixes: None, base: None, path, hosts: [None, None] }
        }
    };
    confine(&mut dispatched.reply, source)
}

/// Rewrites references to the server itself into paths of this gateway, and removes others.
///
/// # Errors
/// Returns an error if the reply redirects its client to another server.
fn confine<B>(reply: &mut Response<B>, source: ReplyOrigin<'_>) -> Result<(), GatewayError> {
    if !reply.headers().keys().any(is_reference) {
        return Ok(());
    }
    let status = reply.status();
    let headers = reply.headers_mut();
    let is_led = rewrite(headers, &header::LOCATION, |text| source.own_path(text));
    // 304 is no redirect.
    if !is_led && status.is_redirection() && status != StatusCode::NOT_MODIFIED {
        let message = "the replica's reply leads to another server, or nowhere";
        return Err(GatewayError::new(ErrorKind::ReplicaRedirect, message));
    }
    rewrite(headers, &header::CONTENT_LOCATION, |text| source.own_path(text));
    rewrite(headers, &REFRESH, |text| source.own_refresh(text));
    source.rewrite_links(headers);
    Ok(())
}

fn is_reference(name: &HeaderName) -> bool {
    matches!(name.as_str(), "location" | "content-location" | "refresh" | "link")
}

/// Replaces a header's single value, or removes the header if there is no replacement or several
/// values. Returns `false` if it was removed.
fn rewrite(
    headers: &mut HeaderMap,
    name: &HeaderName,
    replace: impl FnOnce(&str) -> Option<String>,
) -> bool {
    let mut values = headers.get_all(name).iter();
    // A redirect that names no target leads no client away.
    let Some(first) = values.next() else { return true };
    let is_one = values.next().is_none();
    let text = first.to_str().ok().filter(|_| is_one);
    let value = text.and_then(replace).and_then(|text| HeaderValue::try_from(text).ok());
    match value {
        Some(value) => drop(headers.insert(name, value)),
        None => {
            headers.remove(name);
            return false;
        }
    }
    true
}

impl ReplyOrigin<'_> {
    /// Returns the gateway's path for `reference`; `None` if it points elsewhere.
    fn own_path(self, reference: &str) -> Option<String> {
        let target = own_target(reference, self.path, |authority, scheme| {
            self.hosts.iter().flatten().any(|host| is_same(host, authority, scheme))
        })?;
        let target = match self.base {
            Some(base) => base.strip(&target)?,
            None => target,
        };
        match self.prefixes {
            Some(prefixes) => prefixes.client_path(&target),
            None => Some(target),
        }
    }

    /// Rewrites the value of a `Refresh` header: `5; url=/x`, or seconds alone.
    fn own_refresh(self, text: &str) -> Option<String> {
        let (seconds, rest) = text.split_once([';', ',']).unwrap_or((text, ""));
        let seconds: u32 = seconds.trim().parse().ok()?;
        if rest.trim().is_empty() {
            return Some(seconds.to_string());
        }
        let (name, reference) = rest.split_once('=')?;
        let reference = reference.trim().trim_matches(['"', '\'']);
        let path = self.own_path(reference).filter(|_| name.trim().eq_ignore_ascii_case("url"))?;
        Some(format!("{seconds}; url={path}"))
    }

    fn rewrite_links(self, headers: &mut HeaderMap) {
        let header::Entry::Occupied(links) = headers.entry(header::LINK) else { return };
        let (name, values) = links.remove_entry_mult();
        let values: Vec<HeaderValue> = values.collect();
        for value in values {
            let text = value.to_str().ok().and_then(|text| self.own_links(text));
            if let Some(Ok(value)) = text.map(HeaderValue::try_from) {
                headers.append(&name, value);
            }
        }
    }

    /// Rewrites each reference in a `Link` header: a list of `<reference>; parameters`.
    fn own_links(self, text: &str) -> Option<String> {
        let (mut rest, mut links) = (text, String::with_capacity(text.len()));
        let (mut is_quoted, mut is_any) = (false, false);
        while let Some(at) = rest.find(['<', '"']) {
            let (before, mark) = rest.split_at(at);
            links.push_str(before);
            let (mark, behind) = mark.split_at(1);
            rest = behind;
            is_quoted ^= mark == "\"";
            // A quoted parameter may contain `<`.
            if mark == "\"" || is_quoted {
                links.push_str(mark);
                continue;
            }
            let (reference, behind) = rest.split_once('>')?;
            links.extend(["<", &self.own_path(reference)?, ">"]);
            rest = behind;
            is_any = true;
        }
        links.push_str(rest);
        // An escaped quote would be misread above, so such a header is removed.
        (is_any && !is_quoted && !links.contains('\\')).then_some(links)
    }
}

/// Returns true if an authority is that of the server. Many servers know only the name by which
/// they were requested, and not if it was by TLS.
fn is_same(host: &HeaderValue, authority: &str, scheme: Option<&str>) -> bool {
    let Ok(host) = host.to_str() else { return false };
    let default = match scheme {
        Some("http") => ":80",
        Some("https") => ":443",
        _ => "",
    };
    let bare = authority.strip_suffix(default).unwrap_or(authority);
    let is_equal = |text: &str| !text.is_empty() && host.eq_ignore_ascii_case(text);
    is_equal(authority) || is_equal(bare) || is_equal(&format!("{authority}{default}"))
}

#[cfg(test)]
mod redirect_test;
