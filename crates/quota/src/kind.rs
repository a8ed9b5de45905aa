//! What a limit counts.

use std::fmt;
use std::ops::{Index, IndexMut};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The most units of a kind: a trillion, which no limit needs. Higher ones count as this, so that a
/// charge fits beside its tag in one atomic number.
pub const UNITS_MAX: u64 = (1 << 40) - 1;

/// Over which time a limit counts requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestWindow {
    /// Requests a second.
    #[default]
    Second,
    /// Requests a minute.
    Minute,
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Requests a second, or a minute.
    RequestRate,
    /// Tokens a minute.
    TokenRate,
    /// Requests at a time.
    Concurrency,
}

impl LimitKind {
    /// All of them, in the order of [`Units`].
    pub const ALL: [Self; 3] = [Self::RequestRate, Self::TokenRate, Self::Concurrency];

    /// For how long a charge counts; none where it counts until the request ends.
    #[must_use]
    pub fn window(self, requests: RequestWindow) -> Option<Duration> {
        match (self, requests) {
            (Self::RequestRate, RequestWindow::Second) => Some(Duration::from_secs(1)),
            (Self::RequestRate, RequestWindow::Minute) | (Self::TokenRate, _) => {
                Some(Duration::from_secs(60))
            }
            (Self::Concurrency, _) => None,
        }
    }

    /// Its name in records, metrics and answers.
    #[must_use]
    pub fn name(self, requests: RequestWindow) -> &'static str {
        match (self, requests) {
            (Self::RequestRate, RequestWindow::Second) => "requests_per_s",
            (Self::RequestRate, RequestWindow::Minute) => "requests_per_min",
            (Self::TokenRate, _) => "tokens_per_min",
            (Self::Concurrency, _) => "concurrency",
        }
    }

    /// Its unit in messages to clients, e.g. `tokens/min`.
    #[must_use]
    pub fn unit(self, requests: RequestWindow) -> &'static str {
        match (self, requests) {
            (Self::RequestRate, RequestWindow::Second) => "requests/s",
            (Self::RequestRate, RequestWindow::Minute) => "requests/min",
            (Self::TokenRate, _) => "tokens/min",
            (Self::Concurrency, _) => "requests at a time",
        }
    }
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name(RequestWindow::default()))
    }
}

/// A number of units of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Units(pub [u64; 3]);

impl Units {
    /// None of any.
    pub const NONE: Self = Self([0; 3]);

    /// Made of what `of` says for each kind.
    pub fn each(mut of: impl FnMut(LimitKind) -> u64) -> Self {
        Self(LimitKind::ALL.map(&mut of))
    }

    /// Whether there is nothing of any kind.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

impl Index<LimitKind> for Units {
    type Output = u64;

    fn index(&self, kind: LimitKind) -> &u64 {
        &self.0[kind as usize]
    }
}

impl IndexMut<LimitKind> for Units {
    fn index_mut(&mut self, kind: LimitKind) -> &mut u64 {
        &mut self.0[kind as usize]
    }
}
