//! Baselines: the strongest published ways to route, to compare the gateway with.
//!
//! Each is a rule that chooses; a common driver gives all of them the same knowledge of caches and
//! loads, retries what a replica rejects, and never sheds. Where a source leaves something open,
//! the better choice is taken, and named at the rule.
//!
//! Where no prompts repeat, none does worse than round robin at moderate load. Near full load some
//! do: those that choose by chance or by the session (`random`, `session-hash`, `chwbl`), since
//! they ignore load or bound it loosely, and `gorgo-central`, which counts prompts that were read
//! long ago.

mod driver;
mod dynamo;
mod dynamo_pools;
mod forwards;
mod gke;
mod gorgo;
mod hash;
mod ledger;
mod llmd;
mod llmd_hub;
mod lmetric;
mod plain;
mod preble;
mod prequal;
mod rates;
mod ring;
mod rule;
mod seen_curve;
mod sglang;
mod skywalker;
mod smetric;
mod view;
mod way;

use super::{NodePosition, Router};
use driver::Driver;
use way::{Published, WAYS};

/// Published router.
#[derive(Clone, Copy, Debug)]
pub struct Baseline {
    /// Name in tables, e.g. `lmetric-central`.
    pub name: &'static str,
    /// Rule in one sentence.
    pub about: &'static str,
    /// Paper or repository.
    pub source: &'static str,
    /// True if one group of nodes routes for all regions.
    pub is_central: bool,
    way: &'static Published,
}

impl Baseline {
    /// Returns all baselines, in the order of tables.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let baselines = |way: &'static Published| {
            let named = [(way.names.0, false), (way.names.1, true)].into_iter();
            named.filter(|(name, _)| !name.is_empty()).map(move |(name, is_central)| Self {
                name,
                about: way.about,
                source: way.source,
                is_central,
                way,
            })
        };
        WAYS.iter().flat_map(baselines).collect()
    }

    /// Returns the baseline of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|baseline| baseline.name == name)
    }

    /// Returns the router of a node at `position`. Each replica's cache holds `kv_tokens` tokens.
    #[must_use]
    pub fn make(&self, position: &NodePosition, kv_tokens: f32) -> Box<dyn Router> {
        let rule = (self.way.rule)(position, kv_tokens);
        Box::new(Driver::new(rule, self.way.knowledge, position, kv_tokens))
    }
}

#[cfg(test)]
mod local_test;
#[cfg(test)]
mod region_test;
#[cfg(test)]
mod test_case;
