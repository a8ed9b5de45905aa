//! Money that an overflow replica costs and may cost.

use spillway_usage::{Budget, Price};

/// Money that an overflow replica costs and may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverflowTerms {
    /// Price of its tokens.
    pub price: Price,
    /// Most money that may be spent on it.
    pub budget: Budget,
}
