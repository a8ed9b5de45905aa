//! What the admin API is told when it starts.

use std::fmt;
use std::time::Duration;

use spillway_control::Hidden;

/// What the admin API is told when it starts.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// Tokens that hold whatever the cluster says, so that operators get in when it has no quorum.
    /// Without any, whoever reaches the listener may do everything: see
    /// [`crate::check_listener`].
    pub tokens: Vec<ConfigToken>,
    /// Whether a token is needed even if `tokens` is empty: a token file is set. Whoever takes the last
    /// token out of it lets nobody in, instead of everybody.
    pub requires_token: bool,
    /// Names by which clients may reach the listener, besides IP addresses and `localhost`. A web page
    /// can point a name of its own at this machine.
    pub names: Vec<String>,
    /// How long a write or a linearizable read may take. Longer than it takes to elect a leader, so
    /// that a write that met with its loss is settled.
    pub time_limit: Duration,
    /// How long a request's body may take to arrive.
    pub body_limit: Duration,
    /// Watches at a time. Each holds a connection and looks at the last changes.
    pub watchers_max: usize,
    /// After so much silence a watcher is told that it is still connected. Shorter than what
    /// proxies take for a dead connection, which is often 60 s.
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
            watch_alive: Duration::from_secs(15),
        }
    }
}

impl AdminConfig {
    /// Whether nobody gets in without a token.
    #[must_use]
    pub fn wants_token(&self) -> bool {
        self.requires_token || !self.tokens.is_empty()
    }
}

/// A token of the config file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigToken {
    /// Whose it is: stands in the audit trail.
    pub name: String,
    /// What it is good for.
    pub role: AdminRole,
    /// SHA-256 of the token.
    pub hash: Hidden,
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdminRole {
    /// Read.
    Read,
    /// Read, drain, weigh, hand over the lead.
    Operate,
    /// Everything.
    Admin,
}

impl AdminRole {
    /// Its name in token files and in the API.
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
