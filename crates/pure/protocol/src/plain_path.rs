//! Paths that every server reads in the same way.

use percent_encoding::percent_decode_str;

use crate::endpoint::decode_name;

/// Returns true if no server reads the path as another one, so that it stays below each of its
/// folders. One slash at the end is tolerated; encoded slashes and double encoding are not.
#[must_use]
pub fn is_confined(path: &str) -> bool {
    let path = path.strip_suffix('/').unwrap_or(path);
    let is_single = |escape: &[u8; 3]| !matches!(escape, b"%25" | b"%2f" | b"%2F");
    path.is_empty()
        || is_plain(path)
            && path.as_bytes().windows(3).all(|three| three.try_into().is_ok_and(is_single))
            // Some servers strip spaces.
            && !path.split('/').any(|segment| {
                let text = decode_name(segment).unwrap_or_default();
                text.trim_ascii() != text || text.ends_with('.') && text.trim_matches('.').is_empty()
            })
}

/// Returns true if `path` is `prefix`, or lies below it as a folder.
#[must_use]
pub fn lies_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/'))
}

/// Returns true if every server reads the path's segments as they stand here.
pub(crate) fn is_plain(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_plain_segment))
}

fn is_plain_segment(segment: &str) -> bool {
    // An encoded slash may hide a dot segment, so both of its sides are checked.
    escapes_are_complete(segment)
        && percent_decode_str(segment).decode_utf8().is_ok_and(|text| {
            text.bytes().all(is_plain_byte)
                && text.split('/').all(|part| !matches!(part, "" | "." | ".."))
        })
}

/// Returns true for harmless bytes. Control characters end lines or strings in some servers; a
/// backslash is a slash to some; decoded `?`, `#` and `;` end the path for some.
fn is_plain_byte(byte: u8) -> bool {
    !byte.is_ascii_control() && !matches!(byte, b'\\' | b'?' | b'#' | b';')
}

fn escapes_are_complete(segment: &str) -> bool {
    segment.split('%').skip(1).all(|after| {
        let digits = after.as_bytes();
        digits.len() >= 2 && digits[..2].iter().all(u8::is_ascii_hexdigit)
    })
}

/// Returns true if some servers may split the segment at an encoded slash.
pub(crate) fn has_encoded_slash(text: &str) -> bool {
    text.as_bytes().windows(3).any(|escape| escape.eq_ignore_ascii_case(b"%2f"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_covers_itself_and_its_folder_only() {
        assert!(lies_below("/v1/predict", "/v1/predict"));
        assert!(lies_below("/v1/predict/x", "/v1/predict"));
        assert!(lies_below("/v1/predict/x", "/v1/predict/"));
        assert!(!lies_below("/v1/predictor", "/v1/predict"));
        assert!(!lies_below("/v1", "/v1/predict"));
    }

    #[test]
    fn a_path_is_confined_if_no_server_reads_it_as_another() {
        for path in [
            "",
            "/",
            "/a",
            "/a/",
            "/a/b%20c",
            "/a/m:predict",
            "/a/b..c/.d",
            "/a/%C3%BC",
            "/a/b=c,d@e",
        ] {
            assert!(is_confined(path), "{path}");
        }
        for path in [
            "/a/../b",
            "/a/..",
            "/a/.",
            "/a/./b",
            "/a/.../b",
            "/a/%2e%2e/b",
            "/a/.%2E/b",
            "/a/%252e%252e/b",
            "/a/%25%32%65/b",
            "/a/..%2fb",
            "/a/b%2Fc",
            "/a/..%5cb",
            "/a/..\\b",
            "/a/..;/b",
            "/a/b;c=d",
            "/a/b%3bc",
            "/a//b",
            "/a/b//",
            "//a",
            "/a/%00",
            "/a/b%0d%0a",
            "/a/%2e%2e%20/b",
            "/a/..%09/b",
            "/a/%c0%ae%c0%ae/b",
            "/a/%",
            "/a/%2",
            "/a/%3fb",
            "a",
            "*",
        ] {
            assert!(!is_confined(path), "{path}");
        }
    }
}
