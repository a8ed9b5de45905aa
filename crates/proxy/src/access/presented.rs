//! Where a request carries its key.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use spillway_control::KeyText;

/// Where clients put keys.
pub(crate) static CLIENT_KEYS: [HeaderName; 3] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
];
/// No key is longer; more is not looked at.
const KEY_BYTES_MAX: usize = 256;

/// What a request shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Presented<'h> {
    /// No key at all.
    Nothing,
    /// Something that is none of ours, e.g. a key of somebody else's service.
    Foreign,
    /// What could be one.
    Key(&'h str),
    /// More than one: which of them counts is anybody's guess.
    Several,
}

impl<'h> Presented<'h> {
    /// The key among these headers. A key of ours counts beside one of somebody else's in another header,
    /// since a route may pass the client's own credentials on to its replicas.
    pub(super) fn of(headers: &'h HeaderMap) -> Self {
        let mut found = Self::Nothing;
        for name in &CLIENT_KEYS {
            let mut values = headers.get_all(name).iter();
            let Some(first) = values.next() else { continue };
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

/// Whether a header's value is a key for this gateway, which nobody behind it may see.
pub(crate) fn is_key_of_ours(value: &HeaderValue) -> bool {
    // One that is too long or no text is cut short here, and so is found all the same.
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

/// What stands behind `Bearer`, whatever its case; all of it where that word is not there.
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
