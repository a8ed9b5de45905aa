//! Prices of tokens.

use std::collections::BTreeMap;

use spillway_types::{ModelName, Outcome, TokenCounts};

use crate::money::Money;

/// Price of a model's tokens, in millionths of a unit of the currency for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Price of prompt tokens that were read.
    pub prompt: u64,
    /// Price of prompt tokens that were found in a cache.
    pub cached: u64,
    /// Price of generated tokens.
    pub completion: u64,
}

/// Prices of all models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceList {
    /// Price of the models that have none of their own; `None` if they are free.
    pub default: Option<Price>,
    /// Prices of models.
    pub models: BTreeMap<ModelName, Price>,
}

impl Price {
    /// Returns what these tokens cost.
    #[must_use]
    pub fn cost(&self, tokens: TokenCounts) -> Money {
        // A reply may claim more cached tokens than its prompt had.
        let cached = tokens.cached.min(tokens.prompt);
        let counts = [
            (tokens.prompt - cached, self.prompt),
            (cached, self.cached),
            (tokens.completion, self.completion),
        ];
        // A millionth of a unit for a million tokens is 10⁻¹² of a unit for each.
        let parts = |(count, price)| u128::from(count) * u128::from(price);
        counts.into_iter().map(parts).map(Money::of_parts).sum()
    }
}

impl PriceList {
    /// Returns the cost of a request by these prices. The price is that of the model that served,
    /// not of the one that it replaced.
    #[must_use]
    pub fn cost(&self, outcome: &Outcome) -> Money {
        let model = outcome.model.as_ref();
        let price = model.and_then(|model| self.models.get(model)).or(self.default.as_ref());
        price.map(|price| price.cost(outcome.tokens)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price { prompt: 150_000, cached: 75_000, completion: 600_000 };

    fn tokens(prompt: u64, cached: u64, completion: u64) -> TokenCounts {
        TokenCounts { prompt, completion, cached }
    }

    fn money(text: &str) -> Money {
        text.parse().unwrap()
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        assert_eq!(PRICE.cost(tokens(1_000_000, 0, 0)), money("0.15"));
        assert_eq!(PRICE.cost(tokens(1_000_000, 1_000_000, 0)), money("0.075"));
        assert_eq!(PRICE.cost(tokens(0, 0, 1_000_000)), money("0.6"));
        assert_eq!(PRICE.cost(tokens(1_001, 1_000, 3)), money("0.00007695"));
        assert_eq!(PRICE.cost(tokens(1, 0, 0)), money("0.00000015"), "a single token costs, too");
    }

    #[test]
    fn more_cached_tokens_than_the_prompt_has_cost_no_more_than_the_prompt() {
        assert_eq!(PRICE.cost(tokens(10, 99, 0)), PRICE.cost(tokens(10, 10, 0)));
    }

    #[test]
    fn the_largest_counts_do_not_overflow() {
        let price = Price { prompt: u64::MAX, cached: u64::MAX, completion: u64::MAX };
        assert!(price.cost(tokens(u64::MAX, 0, u64::MAX)) > money("1"));
    }

    #[test]
    fn the_model_that_served_has_the_price_and_others_have_the_default() {
        let of = |model: Option<&str>| Outcome {
            model: model.map(ModelName::from),
            fallback_for: Some("dear".into()),
            tokens: tokens(1_000_000, 0, 0),
            ..Outcome::begun()
        };
        let dear = Price { prompt: 9_000_000, ..PRICE };
        let list = PriceList { default: Some(PRICE), models: [("dear".into(), dear)].into() };
        assert_eq!(list.cost(&of(Some("dear"))), money("9"));
        assert_eq!(list.cost(&of(Some("other"))), money("0.15"));
        assert_eq!(list.cost(&of(None)), money("0.15"));
        let list = PriceList { default: None, ..list };
        assert_eq!(list.cost(&of(Some("other"))), Money::ZERO);
    }
}
