//! Kinds of units that a limit counts.

use std::fmt;
use std::ops::{Index, IndexMut};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Highest number of units of a kind: a trillion, which no limit needs. Higher numbers count as
/// this one, so that a charge fits beside its tag in one atomic number.
pub const UNITS_MAX: u64 = (1 << 40) - 1;

/// Time over which a limit counts requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestWindow {
    /// Requests per second.
    #[default]
    Second,
    /// Requests per minute.
    Minute,
}

/// Kind of units that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Requests per second or minute.
    RequestRate,
    /// Tokens per minute.
    TokenRate,
    /// Requests in flight.
    Concurrency,
}

impl LimitKind {
    /// All kinds, in the order of [`Units`].
    pub const ALL: [Self; 3] = [Self::RequestRate, Self::TokenRate, Self::Concurrency];

    /// Returns how long a charge counts; None where it counts until the request ends.
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

    /// Returns the name of the kind in records, metrics and answers.
    #[must_use]
    pub fn name(self, requests: RequestWindow) -> &'static str {
        match (self, requests) {
            (Self::RequestRate, RequestWindow::Second) => "requests_per_s",
            (Self::RequestRate, RequestWindow::Minute) => "requests_per_min",
            (Self::TokenRate, _) => "tokens_per_min",
            (Self::Concurrency, _) => "concurrency",
        }
    }

    /// Returns the unit of the kind in messages to clients, e.g. `tokens/min`.
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

/// Number of units of each kind, in the order of [`LimitKind::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Units(pub [u64; 3]);

impl Units {
    /// No units of any kind.
    pub const NONE: Self = Self([0; 3]);

    /// Creates units by calling `of` for each kind.
    pub fn each(mut of: impl FnMut(LimitKind) -> u64) -> Self {
        Self(LimitKind::ALL.map(&mut of))
    }

    /// Returns true if there are no units of any kind.
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
