//! References in a server's reply, e.g. in `Location`, resolved as browsers and clients do.

use http::uri::PathAndQuery;

/// Resolves a reference in the reply to a request for `base`. If it stays on the same server,
/// returns its path, query and fragment, without dot segments and never beginning with two slashes.
/// Returns `None` if it names a server for which `is_own` is false, or if it could be read in two
/// ways.
///
/// `is_own` gets the authority, and the scheme in lower case if the reference has one.
#[must_use]
pub fn own_target(
    reference: &str,
    base: &PathAndQuery,
    is_own: impl Fn(&str, Option<&str>) -> bool,
) -> Option<String> {
    let text = reference.trim_matches(' ');
    // Browsers read a backslash as a slash, and skip tabs and line ends.
    if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return None;
    }
    let (scheme, rest) = split_scheme(text)?;
    let Some(rest) = rest.strip_prefix("//") else {
        // Some clients read `http:path` as a path, others as a host.
        return if scheme.is_none() { absolute(rest, base) } else { None };
    };
    let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if !authority.bytes().all(is_usual) || !is_own(authority, scheme.as_deref()) {
        return None;
    }
    if rest.starts_with('/') { clean(rest) } else { clean(&format!("/{rest}")) }
}

/// Splits off the scheme, in lower case, if there is one. Returns `None` for a scheme other than
/// http and https.
fn split_scheme(text: &str) -> Option<(Option<String>, &str)> {
    match text.find([':', '/', '?', '#']) {
        Some(colon) if text[colon..].starts_with(':') => {
            let scheme = text[..colon].to_ascii_lowercase();
            let is_web = matches!(&*scheme, "http" | "https");
            is_web.then(|| (Some(scheme), &text[colon + 1..]))
        }
        _ => Some((None, text)),
    }
}

/// Resolves a reference without scheme and authority.
fn absolute(text: &str, base: &PathAndQuery) -> Option<String> {
    match text.as_bytes().first() {
        Some(b'/') => clean(text),
        Some(b'?') => clean(&format!("{}{text}", base.path())),
        None | Some(b'#') => clean(&format!("{base}{text}")),
        Some(_) => {
            let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            clean(&format!("{folder}/{text}"))
        }
    }
}

/// Removes the dot segments (RFC 3986, section 5.2.4).
fn clean(text: &str) -> Option<String> {
    let (path, rest) = text.split_at(text.find(['?', '#']).unwrap_or(text.len()));
    let mut segments = Vec::new();
    let mut coming = path.strip_prefix('/')?.split('/').peekable();
    while let Some(segment) = coming.next() {
        match segment {
            "." => {}
            // At the root, `..` has no effect.
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
        // A dot segment at the end names a folder.
        if coming.peek().is_none() && matches!(segment, "." | "..") {
            segments.push("");
        }
    }
    let path = segments.join("/");
    // Two slashes would begin the name of another server.
    (!path.starts_with('/')).then(|| format!("/{path}{rest}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(reference: &str) -> Option<String> {
        let base = PathAndQuery::from_static("/v1/chat/x?q=1");
        own_target(reference, &base, |authority, _| authority == "10.0.0.1:8000")
    }

    #[track_caller]
    fn check(reference: &str, expected: &str) {
        assert_eq!(target(reference).as_deref(), Some(expected), "{reference}");
    }

    #[test]
    fn what_lies_on_the_server_itself_is_a_path() {
        check("http://10.0.0.1:8000/v1/models?a=b#c", "/v1/models?a=b#c");
        check("HTTPS://10.0.0.1:8000", "/");
        check("http://10.0.0.1:8000?a", "/?a");
        check("//10.0.0.1:8000/v1", "/v1");
        check("/v2/../v1/./models/", "/v1/models/");
        check("/..", "/");
        check("/a/b/..", "/a/");
        check("/a/b/.", "/a/b/");
        check("y", "/v1/chat/y");
        check("../y?z", "/v1/y?z");
        check("./y:z", "/v1/chat/y:z");
        check("?z=//host", "/v1/chat/x?z=//host");
        check("#z", "/v1/chat/x?q=1#z");
        check("", "/v1/chat/x?q=1");
        check("..//..//y", "/v1//y");
        check(" /x ", "/x");
    }

    #[test]
    fn what_lies_elsewhere_or_may_lie_elsewhere_is_nothing() {
        for reference in [
            "http://10.9.8.7/v1/models",
            "http://10.0.0.1/v1/models",
            "http://10.0.0.1:8000@evil.example/",
            "http://user@10.0.0.1:8000/",
            "http://10.0.0.1:8000%2eevil.example/",
            "http://10.0.0.1:8000,evil.example/",
            "//evil.example/x",
            "///evil.example/x",
            "////evil.example/x",
            "http:evil.example",
            "http:/evil.example",
            "http:///evil.example",
            "https:10.0.0.1:8000/x",
            "/\\evil.example",
            "\\\\evil.example",
            "/\t/evil.example",
            "\t//evil.example",
            "/..//evil.example/x",
            "/.//evil.example/x",
            "/a/..//evil.example",
            "http://10.0.0.1:8000//evil.example",
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "ftp://10.0.0.1:8000/",
            "/a b",
            "/\u{fc}",
            "http://",
        ] {
            assert_eq!(target(reference), None, "{reference}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_stays_on_the_server(reference in "[a-z./:?#@\\\\%;]{0,24}") {
            if let Some(found) = target(&reference) {
                prop_assert!(found.starts_with('/') && !found.starts_with("//"), "{found}");
                let path = found.split(['?', '#']).next().unwrap();
                prop_assert!(!path.split('/').any(|part| matches!(part, "." | "..")), "{found}");
            }
        }
    }
}
