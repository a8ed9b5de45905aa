//! Configuration of the admin API.

use std::fmt;
use std::time::Duration;

use spillway_cluster_state::Hidden;

/// Configuration of the admin API.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// Tokens that are valid even without a quorum, so that operators get in. Without any, every
    /// client that reaches the listener may do everything: see [`crate::check_listener`].
    pub tokens: Vec<ConfigToken>,
    /// True if a token is needed even if `tokens` is empty, since a token file is set. Removing the
    /// last token from the file then locks all clients out, instead of letting all in.
    pub requires_token: bool,
    /// Host names by which clients may reach the listener, besides IP addresses and `localhost`.
    /// Others are refused: a web page can point its own name at this machine.
    pub names: Vec<String>,
    /// Time limit of a write or a linearizable read. Longer than an election takes, so that a write
    /// during the loss of a leader is settled.
    pub time_limit: Duration,
    /// Time limit for a request's body to arrive.
    pub body_limit: Duration,
    /// Most watches at a time. Each holds a connection and reads the last changes.
    pub watchers_max: usize,
    /// Most streams of `/v1/live` at a time: one for each page of the console that is open.
    pub live_max: usize,
    /// Silence after which an event shows a watcher that its connection is alive. Shorter than the
    /// idle time-out of proxies, which is often 60 s.
    pub watch_alive: Duration,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            requires_token: false,
            names: Vec::new(),
            time_limit: Duration::from_secs(10),
            body_limit: Duration::from_secs(10),
            watchers_max: 64,
            live_max: 32,
            watch_alive: Duration::from_secs(15),
        }
    }
}

impl AdminConfig {
    /// Returns true if every client needs a token.
    #[must_use]
    pub fn wants_token(&self) -> bool {
        self.requires_token || !self.tokens.is_empty()
    }
}

/// A token of the config file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigToken {
    /// Name of the token's owner in the audit trail.
    pub name: String,
    /// Role of the token.
    pub role: AdminRole,
    /// SHA-256 of the token.
    pub hash: Hidden,
}

/// Rights of a caller; each role has those of the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdminRole {
    /// Read.
    Read,
    /// Read, drain, set weights, hand over the leadership.
    Operate,
    /// Everything.
    Admin,
}

impl AdminRole {
    /// Returns the name in token files and in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    pub(crate) fn find(name: &str) -> Option<Self> {
        [Self::Read, Self::Operate, Self::Admin].into_iter().find(|role| role.name() == name)
    }
}

impl fmt::Display for AdminRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
