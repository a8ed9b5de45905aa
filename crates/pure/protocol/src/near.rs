//! Suggestion of a known path for an unknown one.

/// Fixed paths of the built-in endpoints that clients may mistype.
const KNOWN: &[&str] = &[
    "/v1/chat/completions",
    "/v1/chat/completions/batch",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/models",
    "/v1/moderations",
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/images/variations",
    "/v1/score",
    "/v1/classify",
    "/v1/pooling",
    "/v1/tokenize",
    "/v1/detokenize",
    "/v2/embed",
    "/invocations",
    "/generative_scoring",
    "/v2/health/live",
    "/v2/health/ready",
    "/livez",
    "/readyz",
    "/steering",
    "/health",
    "/ping",
];

/// Longest path in bytes that is compared.
const PATH_BYTES_MAX: usize = 64;
/// Number of characters per tolerated wrong character.
const CHARACTERS_PER_EDIT: usize = 4;
/// Largest number of wrong characters in a path.
const EDITS_MAX: usize = 3;

/// Returns the known path that is most similar to `path`; `None` if none is near. A base URL that
/// is repeated, missing, or put before another one counts as near, and so do a few wrong
/// characters.
#[must_use]
pub fn nearest_path(path: &str) -> Option<&'static str> {
    let path = path.trim_end_matches('/').to_ascii_lowercase();
    if path.len() < 2 || path.len() > PATH_BYTES_MAX {
        return None;
    }
    let known = || KNOWN.iter().copied();
    // If two known paths are both an end of `path`, one ends with the other: the longer one is
    // meant.
    let inner = known().filter(|known| path.ends_with(known)).max_by_key(|known| known.len());
    // A client with a wrong base URL sends the end of a known path.
    let below = || known().filter(|known| known.starts_with("/v1/"));
    let outer = || below().filter(|known| known.ends_with(&path)).min_by_key(|known| known.len());
    inner.or_else(outer).or_else(|| {
        let edits = |known: &&'static str| edits_between(path.as_bytes(), known.as_bytes());
        let nearest = known().min_by_key(edits)?;
        let edits = edits(&nearest);
        (edits <= EDITS_MAX && edits * CHARACTERS_PER_EDIT <= path.len()).then_some(nearest)
    })
}

/// Counts the bytes that must be inserted, removed or replaced to turn one text into the other.
fn edits_between(from: &[u8], to: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, byte) in from.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for column in 0..to.len() {
            let replaced = diagonal + usize::from(to[column] != *byte);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_paths_lead_to_what_was_meant() {
        for (path, expected) in [
            ("/v1/chat/completion", "/v1/chat/completions"),
            ("/v1/chat/completions2", "/v1/chat/completions"),
            ("/v1/v1/chat/completions", "/v1/chat/completions"),
            ("/api/v1/models", "/v1/models"),
            ("/chat/completions", "/v1/chat/completions"),
            ("/completions", "/v1/completions"),
            ("/models/", "/v1/models"),
            ("//v1/models", "/v1/models"),
            ("/V1/Models", "/v1/models"),
            ("/v1/embedding", "/v1/embeddings"),
            ("/v1/rank", "/v1/rerank"),
            ("/healthz", "/health"),
            ("/ready", "/readyz"),
        ] {
            assert_eq!(nearest_path(path), Some(expected), "{path}");
        }
    }

    #[test]
    fn every_known_path_is_an_endpoint() {
        for path in KNOWN {
            assert_ne!(crate::Endpoint::classify(path), crate::Endpoint::Other, "{path}");
        }
    }

    #[test]
    fn what_is_like_nothing_known_leads_nowhere() {
        let long = format!("/{}/v1/models", "x".repeat(64));
        for path in
            ["", "/", "/s", "/v1/messages", "/api/chat", "/metrics", "/v1/x", "/v1/files", &long]
        {
            assert_eq!(nearest_path(path), None, "{path}");
        }
    }

    #[test]
    fn edits_are_counted() {
        for (from, to, edits) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3)] {
            assert_eq!(edits_between(from.as_bytes(), to.as_bytes()), edits);
            assert_eq!(edits_between(to.as_bytes(), from.as_bytes()), edits);
        }
    }
}
