//! Path below which a server has its API.

/// Path below which a server has its API, e.g. `/openai/v1` of `https://api.example.com/openai/v1`.
///
/// Base URLs of hosted APIs end in a version, to which clients append `/chat/completions`. Clients of
/// the gateway ask for `/v1/chat/completions`. So a base path with a version replaces `/v1`; any other
/// base path stands before the whole path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasePath {
    given: String,
    /// Replacement of a path's `/v1`.
    api: String,
    /// Text before all other paths: the base without a version at its end.
    root: String,
}

impl BasePath {
    /// Returns the base path; `None` for `/` and an empty text.
    #[must_use]
    pub fn new(path: &str) -> Option<Self> {
        let given = path.trim_end_matches('/');
        let (root, last) = given.rsplit_once('/')?;
        let has_version = given.split('/').any(is_version);
        Some(Self {
            given: given.to_owned(),
            api: if has_version { given.to_owned() } else { format!("{given}/v1") },
            root: if is_version(last) { root } else { given }.to_owned(),
        })
    }

    /// Returns the text of the base path, without a slash at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.given
    }

    /// Returns the path at the server for a path of the gateway, which may have a query.
    #[must_use]
    pub fn join(&self, path: &str) -> String {
        match below(path, "/v1") {
            Some(rest) => format!("{}{rest}", self.api),
            None => format!("{}{path}", self.root),
        }
    }

    /// Returns the path of the gateway for a path at the server; `None` if that lies outside of the
    /// base.
    #[must_use]
    pub fn strip(&self, path: &str) -> Option<String> {
        match below(path, &self.api) {
            Some(rest) => Some(format!("/v1{rest}")),
            None => below(path, &self.root).filter(|rest| rest.starts_with('/')).map(str::to_owned),
        }
    }
}

/// Returns the rest of a path that lies below `prefix` or is the prefix itself.
fn below<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with(['/', '?'])).then_some(rest)
}

/// Returns true for `v1`, `v4`, `v1beta` and the like.
fn is_version(segment: &str) -> bool {
    let rest = segment.strip_prefix('v').unwrap_or_default();
    rest.starts_with(|first: char| first.is_ascii_digit())
        && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str) -> BasePath {
        BasePath::new(text).unwrap_or_else(|| panic!("{text} is a base path"))
    }

    #[test]
    fn base_urls_of_hosted_apis_lead_where_their_own_clients_go() {
        for (given, chat) in [
            ("/v1", "/v1/chat/completions"),
            ("/v1/", "/v1/chat/completions"),
            ("/openai/v1", "/openai/v1/chat/completions"),
            ("/api/v1", "/api/v1/chat/completions"),
            ("/api/paas/v4/", "/api/paas/v4/chat/completions"),
            ("/v1beta/openai/", "/v1beta/openai/chat/completions"),
            ("/v1/account/gateway/openai", "/v1/account/gateway/openai/chat/completions"),
            ("/inference", "/inference/v1/chat/completions"),
            ("/vllm-v1", "/vllm-v1/v1/chat/completions"),
        ] {
            assert_eq!(base(given).join("/v1/chat/completions"), chat, "{given}");
            assert_eq!(base(given).strip(chat).as_deref(), Some("/v1/chat/completions"), "{given}");
        }
    }

    #[test]
    fn other_paths_stand_beside_the_version() {
        for (given, path, joined) in [
            ("/team/v1", "/metrics", "/team/metrics"),
            ("/team", "/metrics", "/team/metrics"),
            ("/team/v1", "/v1/models?limit=2", "/team/v1/models?limit=2"),
            ("/team/v1", "/v1", "/team/v1"),
            ("/team/v1", "/v12/x", "/team/v12/x"),
            ("/v1", "/tokenize", "/tokenize"),
        ] {
            assert_eq!(base(given).join(path), joined, "{given} {path}");
            assert_eq!(base(given).strip(joined).as_deref(), Some(path), "{given} {path}");
        }
        assert_eq!(base("/team").strip("/other/v1"), None);
        assert_eq!(base("/team").strip("/teams"), None);
    }

    #[test]
    fn the_root_is_no_base_path() {
        assert_eq!(
            (BasePath::new(""), BasePath::new("/"), BasePath::new("//")),
            (None, None, None)
        );
        assert_eq!(base("/a/b/").as_str(), "/a/b");
    }
}
