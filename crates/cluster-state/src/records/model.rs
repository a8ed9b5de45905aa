//! Models: aliases and fallbacks.

use serde::{Deserialize, Serialize};
use spillway_types::ModelName;

/// A model's name, with its alias and fallbacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// The model that this name is an alias of; None if it is no alias.
    pub alias_of: Option<ModelName>,
    /// Models to try in this order when no replica of this one takes a request.
    pub fallbacks: Vec<ModelName>,
}
