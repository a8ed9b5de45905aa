//! Finds the key in a request's headers.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use spillway_cluster_state::KeyText;

/// Headers in which clients send keys.
pub static CLIENT_KEYS: [HeaderName; 3] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
];
/// Longest key, in bytes; longer values are not examined.
const KEY_BYTES_MAX: usize = 256;

/// Credential found in a request's headers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Presented<'h> {
    /// The request has no key.
    Nothing,
    /// The request has a credential of another service, but no key of this gateway.
    Foreign,
    /// The request has a text in the form of a key; its secret is not checked yet.
    Key(&'h str),
    /// The request has several keys: which of them counts is ambiguous.
    Several,
}

impl<'h> Presented<'h> {
    /// Finds the key in these headers. A key of this gateway counts even if another header has a
    /// foreign credential, since a route may pass the client's own credentials on to its replicas.
    pub(super) fn of(headers: &'h HeaderMap) -> Self {
        let mut found = Self::Nothing;
        for name in &CLIENT_KEYS {
            let mut values = headers.get_all(name).iter();
            let Some(first) = values.next() else { continue };
            // A header repeated with the same value is unambiguous.
            if values.any(|other| other != first) {
                return Self::Several;
            }
            match (token(first).filter(|token| KeyText::is_marked(token)), found) {
                (Some(token), Self::Key(known)) if token != known => return Self::Several,
                (Some(token), _) => found = Self::Key(token),
                (None, Self::Nothing) => found = Self::Foreign,
                (None, _) => {}
            }
        }
        found
    }
}

/// Returns true if a header's value is a key of this gateway, which replicas must not see.
pub fn is_key_of_ours(value: &HeaderValue) -> bool {
    // Only the beginning is tested, so that a value that is too long or not text is found too.
    let bytes = value.as_bytes();
    let token = after_scheme(bytes).trim_ascii();
    token.starts_with(b"sw_") || bytes.trim_ascii().starts_with(b"sw_")
}

fn token(value: &HeaderValue) -> Option<&str> {
    let bytes = value.as_bytes();
    if bytes.len() > KEY_BYTES_MAX {
        return None;
    }
    std::str::from_utf8(after_scheme(bytes).trim_ascii()).ok()
}

/// Returns the text after `Bearer`, in any letter case; all of it without that word.
fn after_scheme(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.trim_ascii_start();
    match bytes.split_first_chunk::<7>() {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"bearer ") => rest,
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::try_from(*value).expect("a value"));
        }
        headers
    }

    #[track_caller]
    fn check(pairs: &[(&'static str, &str)], expected: Presented<'_>) {
        assert!(Presented::of(&headers(pairs)) == expected, "{pairs:?}");
    }

    #[test]
    fn a_key_is_found_in_each_of_its_places() {
        for (name, value) in [
            ("authorization", "Bearer sw_a_1"),
            ("authorization", "bearer   sw_a_1 "),
            ("authorization", "sw_a_1"),
            ("x-api-key", "sw_a_1"),
            ("api-key", "sw_a_1"),
        ] {
            check(&[(name, value)], Presented::Key("sw_a_1"));
        }
    }

    #[test]
    fn a_key_of_ours_counts_beside_another_s() {
        let pairs = [("authorization", "Bearer sk-other"), ("x-api-key", "sw_a_1")];
        check(&pairs, Presented::Key("sw_a_1"));
        check(&pairs[..1], Presented::Foreign);
        check(&[("authorization", "Basic sw_a_1")], Presented::Foreign);
        check(&[("accept", "sw_a_1")], Presented::Nothing);
        check(&[("authorization", &format!("Bearer sw_{}", "a".repeat(300)))], Presented::Foreign);
    }

    #[test]
    fn of_several_keys_none_counts() {
        for pairs in [
            [("authorization", "Bearer sw_a_1"), ("authorization", "Bearer sw_b_1")],
            [("authorization", "Bearer sw_a_1"), ("x-api-key", "sw_b_1")],
            [("x-api-key", "sw_a_1"), ("api-key", "sw_b_1")],
            [("authorization", "Bearer sk-other"), ("authorization", "Bearer sw_a_1")],
            [("x-api-key", "k"), ("x-api-key", "sw_a_1")],
        ] {
            check(&pairs, Presented::Several);
        }
        let same = [("authorization", "Bearer sw_a_1"), ("x-api-key", "sw_a_1")];
        check(&same, Presented::Key("sw_a_1"));
        check(&[same[1], same[1]], Presented::Key("sw_a_1"));
    }

    #[test]
    fn whatever_begins_like_a_key_of_ours_is_one_to_be_kept_here() {
        let is_ours = |text: &str| is_key_of_ours(&HeaderValue::try_from(text).expect("a value"));
        for text in ["sw_a", "Bearer sw_a", "BEARER  sw_a", &format!("sw_{}", "a".repeat(300))] {
            assert!(is_ours(text), "{text}");
        }
        assert!(!is_ours("Bearer sk-sw_") && !is_ours("Basic sw_"));
    }
}
