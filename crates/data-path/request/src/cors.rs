//! Permission for web pages to use the gateway from a browser (CORS, as the Fetch standard defines
//! it).
//!
//! CORS keeps out no client that is not a browser: credentials do that. A browser sends some requests
//! without asking first: where no credential is needed, those of other pages are refused.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri};
use spillway_protocol::{Echo, ErrorKind, GatewayError, has_media_type};

use crate::head::METHODS;
use crate::headers::X_FORWARDED_HOST;

/// Time that a browser may cache the answer to a preflight, in seconds.
const PREFLIGHT_AGE_S: &str = "600";

/// Relation of the page that sent a request to the server, as its browser sees it.
pub static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
static SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
static SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Content types that a page may send to another origin without asking first.
const SIMPLE_TYPES: [&str; 3] =
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"];

/// Origins whose pages may use the gateway; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    origins: Vec<String>,
    /// True if every origin may.
    is_open: bool,
}

/// Error of a text that is no origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no origin")]
pub struct OriginError(pub String);

impl Cors {
    /// Allows pages of these origins, each as a browser sends it, e.g. `https://chat.example`; `*`
    /// allows all.
    ///
    /// # Errors
    /// Returns an error if a text is no scheme with a host and at most a port.
    pub fn new<'o>(origins: impl IntoIterator<Item = &'o str>) -> Result<Self, OriginError> {
        let mut cors = Self::default();
        for origin in origins {
            if origin == "*" {
                cors.is_open = true;
            } else if is_origin(origin) {
                cors.origins.push(origin.to_ascii_lowercase());
            } else {
                return Err(OriginError(origin.to_owned()));
            }
        }
        Ok(cors)
    }

    /// Returns true if no origin is allowed, so that replies stay unchanged.
    pub fn is_off(&self) -> bool {
        !self.is_open && self.origins.is_empty()
    }

    /// Answers a preflight request; `None` if the request is none. A refusal is a reply without
    /// permission headers.
    pub fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response<Bytes>> {
        let asks = headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        // A plain OPTIONS request is no preflight: a route may serve it.
        if method != Method::OPTIONS || !asks || self.is_off() {
            return None;
        }
        let origin = headers.get(header::ORIGIN)?;
        let mut reply = Response::new(Bytes::new());
        *reply.status_mut() = StatusCode::NO_CONTENT;
        let told = reply.headers_mut();
        self.mark(Some(origin), told);
        if self.leave_for(Some(origin)).is_some() {
            told.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
            if let Some(wanted) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
                // Any header may come: those that no replica may see are removed before the request
                // is sent.
                told.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
            }
            let age = HeaderValue::from_static(PREFLIGHT_AGE_S);
            told.insert(header::ACCESS_CONTROL_MAX_AGE, age);
        }
        Some(reply)
    }

    /// Adds headers to a reply that say if the page of `origin` may read it.
    pub fn mark(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        if !self.is_open {
            // A cache must not give one origin's permission, or a reply without one, to another
            // origin.
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
        if let Some(leave) = self.leave_for(origin) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, leave);
            // Scripts may read request ids, error codes and Retry-After. Cookies are never allowed,
            // so `*` works.
            let all = HeaderValue::from_static("*");
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, all);
        }
    }

    /// Checks a request to a listener without keys that a browser may have sent for a page without
    /// asking first. Clients that are no browsers send neither `Origin` nor `Sec-Fetch-Site`.
    ///
    /// # Errors
    /// Returns an error if the page is of another origin that is not allowed.
    pub fn check_page(&self, head: &Parts) -> Result<(), GatewayError> {
        let headers = &head.headers;
        if !is_sent_unasked(&head.method, headers) || is_visit(&head.method, headers) {
            return Ok(());
        }
        let said = |name: &HeaderName| headers.get(name).map(HeaderValue::as_bytes);
        let (site, origin) = (said(&SEC_FETCH_SITE), headers.get(header::ORIGIN));
        // The browser itself says that the page came from here, or that no page sent the request.
        let is_own_site = matches!(site, Some(b"same-origin" | b"none"));
        if is_own_site || (site.is_none() && origin.is_none()) {
            return Ok(());
        }
        let is_allowed = self.is_open || self.leave_for(origin).is_some();
        if is_allowed || origin.is_some_and(|origin| is_own(origin, head)) {
            return Ok(());
        }
        let page = origin.and_then(|origin| origin.to_str().ok()).unwrap_or("another origin");
        let message = format!(
            "a web page of {} may not use this listener, which asks for no key: add its origin to \
             allowed_origins in [cors], or set mode = \"keys\" in [auth]",
            Echo(page)
        );
        Err(GatewayError::new(ErrorKind::OriginNotAllowed, message))
    }

    /// Returns the allowed origin to send to a page of this origin; `None` if it has no permission.
    fn leave_for(&self, origin: Option<&HeaderValue>) -> Option<HeaderValue> {
        let origin = origin?;
        if self.is_open {
            return Some(HeaderValue::from_static("*"));
        }
        let is_known = |known: &String| origin.as_bytes().eq_ignore_ascii_case(known.as_bytes());
        self.origins.iter().any(is_known).then(|| origin.clone())
    }
}

/// Returns true for requests that browsers send to other origins without asking first: the replies are
/// kept from the page, but the work is done.
fn is_sent_unasked(method: &Method, headers: &HeaderMap) -> bool {
    let is_simple = || {
        !headers.contains_key(header::CONTENT_TYPE)
            || SIMPLE_TYPES.iter().any(|simple| has_media_type(headers, simple))
    };
    match *method {
        Method::GET | Method::HEAD => true,
        Method::POST => is_simple(),
        _ => false,
    }
}

/// Returns true for a visit: a link or an address that opens in a tab of its own.
fn is_visit(method: &Method, headers: &HeaderMap) -> bool {
    let is = |name: &HeaderName, text: &str| headers.get(name).is_some_and(|value| value == text);
    *method == Method::GET && is(&SEC_FETCH_MODE, "navigate") && is(&SEC_FETCH_DEST, "document")
}

/// Returns true if a page's origin is the host that it asked for. No page can set either header.
fn is_own(origin: &HeaderValue, head: &Parts) -> bool {
    let page = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let is_page = |host: &str| page.is_some_and(|(_, page)| page.eq_ignore_ascii_case(host));
    let named = [&header::HOST, &X_FORWARDED_HOST].map(|name| head.headers.get(name));
    named.into_iter().flatten().filter_map(|host| host.to_str().ok()).any(is_page)
        || head.uri.authority().is_some_and(|authority| is_page(authority.as_str()))
}

/// Returns true if the text is a scheme, a host and at most a port.
fn is_origin(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let is_bare = uri.scheme_str().is_some_and(|scheme| text == format!("{scheme}://{authority}"));
    // An origin has no user name.
    is_bare && !authority.is_empty() && !authority.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "https://chat.example";

    fn marked(cors: &Cors, origin: Option<&'static str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let origin = origin.map(HeaderValue::from_static);
        cors.mark(origin.as_ref(), &mut headers);
        headers
    }

    fn leave(headers: &HeaderMap) -> Option<&str> {
        headers.get(header::ACCESS_CONTROL_ALLOW_ORIGIN)?.to_str().ok()
    }

    #[test]
    fn known_origins_alone_have_leave_and_caches_are_told() {
        let cors = Cors::new([PAGE, "http://localhost:3000"]).expect("origins");
        for origin in [PAGE, "http://localhost:3000"] {
            assert_eq!(leave(&marked(&cors, Some(origin))), Some(origin));
        }
        for origin in [Some("https://evil.example"), Some("http://localhost"), Some("null"), None] {
            assert_eq!(leave(&marked(&cors, origin)), None, "{origin:?}");
        }
        assert_eq!(marked(&cors, None)[header::VARY], "Origin");
    }

    #[test]
    fn a_star_gives_leave_to_every_page() {
        let cors = Cors::new(["*"]).expect("origins");
        let headers = marked(&cors, Some("https://any.example"));
        assert_eq!((leave(&headers), headers.get(header::VARY)), (Some("*"), None));
        assert_eq!(leave(&marked(&cors, None)), None);
    }

    #[test]
    fn preflights_are_told_what_they_asked_for() {
        let cors = Cors::new([PAGE]).expect("origins");
        let mut asked = HeaderMap::new();
        asked.insert(header::ORIGIN, HeaderValue::from_static(PAGE));
        assert!(cors.preflight(&Method::OPTIONS, &asked).is_none(), "no preflight");
        asked.insert(header::ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("POST"));
        let wanted = HeaderValue::from_static("authorization,content-type");
        asked.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, wanted.clone());
        assert!(cors.preflight(&Method::POST, &asked).is_none(), "no preflight");
        assert!(Cors::default().preflight(&Method::OPTIONS, &asked).is_none(), "off");
        let reply = cors.preflight(&Method::OPTIONS, &asked).expect("a preflight");
        assert_eq!((reply.status(), leave(reply.headers())), (StatusCode::NO_CONTENT, Some(PAGE)));
        assert_eq!(reply.headers()[header::ACCESS_CONTROL_ALLOW_HEADERS], wanted);
        asked.insert(header::ORIGIN, HeaderValue::from_static("https://evil.example"));
        let reply = cors.preflight(&Method::OPTIONS, &asked).expect("a preflight");
        assert_eq!(leave(reply.headers()), None);
        assert!(!reply.headers().contains_key(header::ACCESS_CONTROL_ALLOW_METHODS));
    }

    /// Returns true if a request with these headers is refused.
    fn is_refused(cors: &Cors, method: Method, headers: &[(&str, &str)]) -> bool {
        let mut request = http::Request::builder().method(method).uri("/v1/chat/completions");
        for (name, value) in [&[("host", "127.0.0.1:8080")][..], headers].concat() {
            request = request.header(name, value);
        }
        let head = request.body(()).expect("a request").into_parts().0;
        cors.check_page(&head).is_err()
    }

    #[test]
    fn what_a_browser_sends_for_another_page_without_asking_is_refused() {
        let off = Cors::default();
        let evil = ("origin", "https://evil.example");
        for (name, value) in [
            ("content-type", "text/plain"),
            ("content-type", "Text/Plain; charset=utf-8"),
            ("content-type", "application/x-www-form-urlencoded"),
            ("content-type", "multipart/form-data; boundary=x"),
            ("x-other", "no type"),
        ] {
            assert!(is_refused(&off, Method::POST, &[evil, (name, value)]), "{value}");
            assert!(!is_refused(&off, Method::POST, &[(name, value)]), "no browser: {value}");
            let known = Cors::new(["https://evil.example"]).expect("an origin");
            assert!(!is_refused(&known, Method::POST, &[evil, (name, value)]), "{value}");
            let open = Cors::new(["*"]).expect("origins");
            assert!(!is_refused(&open, Method::POST, &[evil, (name, value)]), "{value}");
        }
        let json = ("content-type", "application/json");
        assert!(
            !is_refused(&off, Method::POST, &[evil, json]),
            "a browser asks before it sends this"
        );
        for origin in ["null", "http://127.0.0.1", "http://127.0.0.1:9900", "https://x"] {
            assert!(is_refused(&off, Method::POST, &[("origin", origin)]), "{origin}");
        }
        let site = |site| ("sec-fetch-site", site);
        for other in ["cross-site", "same-site"] {
            assert!(is_refused(&off, Method::GET, &[site(other)]), "{other}");
            assert!(is_refused(&off, Method::POST, &[site(other)]), "{other}");
        }
    }

    #[test]
    fn own_pages_visits_and_other_clients_are_served() {
        let off = Cors::default();
        let own = ("origin", "http://127.0.0.1:8080");
        assert!(!is_refused(&off, Method::POST, &[own]));
        let behind = [("origin", "https://chat.example"), ("x-forwarded-host", "chat.example")];
        assert!(!is_refused(&off, Method::POST, &behind));
        for site in ["same-origin", "none"] {
            let said = [("origin", "https://chat.example"), ("sec-fetch-site", site)];
            assert!(!is_refused(&off, Method::POST, &said), "{site}");
        }
        let visit = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert!(!is_refused(&off, Method::GET, &visit), "a link");
        assert!(is_refused(&off, Method::POST, &visit), "a form");
        let frame = [visit[0], visit[1], ("sec-fetch-dest", "iframe")];
        assert!(is_refused(&off, Method::GET, &frame));
        assert!(!is_refused(&off, Method::POST, &[]) && !is_refused(&off, Method::GET, &[]));
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for text in
            ["", "chat.example", "https://", "https://a/", "https://a/b", "https://u@a", "**"]
        {
            assert_eq!(Cors::new([text]), Err(OriginError(text.to_owned())), "{text}");
        }
        for text in ["https://a", "http://[::1]:80", "chrome-extension://abc", "*"] {
            assert!(Cors::new([text]).is_ok_and(|cors| !cors.is_off()), "{text}");
        }
    }
}
