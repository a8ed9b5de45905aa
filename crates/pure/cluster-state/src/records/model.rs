//! Models: aliases, fallbacks and prices.

use serde::{Deserialize, Serialize};
use spillway_types::ModelName;

/// A model's name, with its alias, fallbacks and price.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ModelLayout", into = "ModelLayout")]
pub struct Model {
    /// The model that this name is an alias of; None if it is no alias.
    pub alias_of: Option<ModelName>,
    /// Models to try in this order when no replica of this one takes a request.
    pub fallbacks: Vec<ModelName>,
    /// Price of the model's tokens, as a `[[price]]` of a config file has it; None for that of all
    /// models. From wire version 2 on.
    pub price: Option<TokenPrice>,
}

/// Price of a million tokens, in millionths of the currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenPrice {
    /// Prompt tokens.
    pub prompt: u64,
    /// Prompt tokens that a replica had in its cache; None for the price of prompt tokens.
    pub cached: Option<u64>,
    /// Generated tokens.
    pub completion: u64,
}

impl Model {
    /// Name of the record whose price is that of all models without one of their own.
    pub const EVERY: &str = "*";

    /// Returns the first wire version that has such a record.
    pub(crate) fn since(&self) -> u16 {
        if self.price.is_none() { 1 } else { 2 }
    }
}

/// Layout of a model on the wire. One without a price has the bytes of wire version 1, where it began
/// with an option, whose tags are these numbers of variants. Nodes of both versions have equal
/// digests.
#[derive(Serialize, Deserialize)]
enum ModelLayout {
    Model(Vec<ModelName>),
    Alias(ModelName, Vec<ModelName>),
    Priced { alias_of: Option<ModelName>, fallbacks: Vec<ModelName>, price: Option<TokenPrice> },
}

impl From<ModelLayout> for Model {
    fn from(layout: ModelLayout) -> Self {
        let (alias_of, fallbacks, price) = match layout {
            ModelLayout::Model(fallbacks) => (None, fallbacks, None),
            ModelLayout::Alias(alias_of, fallbacks) => (Some(alias_of), fallbacks, None),
            ModelLayout::Priced { alias_of, fallbacks, price } => (alias_of, fallbacks, price),
        };
        Self { alias_of, fallbacks, price }
    }
}

impl From<Model> for ModelLayout {
    fn from(Model { alias_of, fallbacks, price }: Model) -> Self {
        match (alias_of, price) {
            (None, None) => Self::Model(fallbacks),
            (Some(alias_of), None) => Self::Alias(alias_of, fallbacks),
            (alias_of, price) => Self::Priced { alias_of, fallbacks, price },
        }
    }
}
