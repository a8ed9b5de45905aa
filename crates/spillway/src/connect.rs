//! Address of a node's admin listener, and access to it.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use http::HeaderValue;

/// Heading of these options in the help, below those of the command itself.
pub(crate) const HEADING: &str = "Connection";
/// Position in the help of options that many commands have, after the command's own.
pub(crate) const BEHIND_OWN: usize = 900;

/// Where the admin API is.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connect {
    /// The admin listener of any node of the cluster.
    #[arg(long, global = true, env = "SPILLWAY_ADMIN", default_value = "http://127.0.0.1:9900")]
    #[arg(value_parser = parse_admin, help_heading = HEADING)]
    pub(crate) admin: AdminUrl,
    /// The CA of the listener's certificate, PEM; the system's CAs by default.
    #[arg(long, global = true, env = "SPILLWAY_CA", help_heading = HEADING)]
    pub(crate) ca: Option<PathBuf>,
    /// The file with the token, if the listener needs one.
    #[arg(long, global = true, env = "SPILLWAY_TOKEN_FILE", help_heading = HEADING)]
    pub(crate) token_file: Option<PathBuf>,
    /// Prints JSON.
    #[arg(long, global = true, display_order = BEHIND_OWN)]
    pub(crate) json: bool,
}

impl Connect {
    /// Returns the token as a header value; None without a token file.
    ///
    /// # Errors
    /// Returns an error if the file can't be read, or holds no token.
    pub(crate) fn authorization(&self) -> Result<Option<HeaderValue>> {
        let Some(file) = &self.token_file else { return Ok(None) };
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("the token file {} can't be read", file.display()))?;
        let token = text.trim();
        let is_one = !token.is_empty() && !token.contains(char::is_whitespace);
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value = value.ok().filter(|_| is_one).with_context(|| {
            format!("the token file {} has to hold one token and nothing else", file.display())
        })?;
        // Keeps the token out of debug output.
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// Address of an admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminUrl {
    /// `host:port`.
    pub(crate) authority: String,
    pub(crate) is_tls: bool,
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)
    }
}

/// Parses `http://host:port`, `https://host:port`, or `host:port` alone.
pub(crate) fn parse_admin(text: &str) -> Result<AdminUrl, String> {
    let tls = text.strip_prefix("https://");
    let rest = tls.unwrap_or_else(|| text.strip_prefix("http://").unwrap_or(text));
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let parsed: Result<http::uri::Authority, _> = authority.parse();
    match parsed {
        Ok(parsed) if parsed.port_u16().is_some() && !parsed.host().is_empty() => {
            Ok(AdminUrl { authority: authority.to_owned(), is_tls: tls.is_some() })
        }
        _ => Err("write it as http://host:port or https://host:port".to_owned()),
    }
}

/// Runs a command that talks to a node to its end.
///
/// # Errors
/// Returns the error of the command, or an error if no runtime can be started.
pub(crate) fn wait_for<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_listener_is_a_url_or_an_address() {
        for (text, is_tls) in [
            ("http://127.0.0.1:9900", false),
            ("http://127.0.0.1:9900/", false),
            ("127.0.0.1:9900", false),
            ("https://127.0.0.1:9900", true),
        ] {
            let authority = "127.0.0.1:9900".to_owned();
            assert_eq!(parse_admin(text), Ok(AdminUrl { authority, is_tls }), "{text}");
        }
        assert!(parse_admin("http://[::1]:9900").is_ok());
        for wrong in ["127.0.0.1", "ftp://127.0.0.1:9900", "http://h:1/v1", "", ":9900/"] {
            assert!(parse_admin(wrong).is_err(), "{wrong}");
        }
    }
}
