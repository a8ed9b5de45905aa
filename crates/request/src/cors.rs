//! Permission for web pages to use the gateway from a browser (CORS, as the Fetch standard defines
//! it).
//!
//! CORS keeps out no client that is not a browser: credentials do that.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode, Uri};

use crate::head::METHODS;

/// Time that a browser may cache the answer to a preflight, in seconds.
const PREFLIGHT_AGE_S: &str = "600";

/// CORS headers of replicas. They are removed where the gateway has origins of its own.
static OF_REPLICAS: [HeaderName; 6] = [
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_EXPOSE_HEADERS,
    header::ACCESS_CONTROL_MAX_AGE,
];

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
        OF_REPLICAS.iter().for_each(|name| drop(headers.remove(name)));
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
        let of_replica = HeaderValue::from_static("https://replica.example");
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, of_replica);
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
