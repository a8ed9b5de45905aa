//! `role`, `price` and `overflow` of a `[[replica]]`: overflow to a hosted API.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_types::Country;
use spillway_usage::{Budget, Money, Price};
use spillway_view::OverflowSpec;
use toml::Spanned;

use crate::error::{ConfigError, ConfigErrors};
use crate::overflow_terms::OverflowTerms;
use crate::replica_section::ReplicaSection;
use crate::source::Source;
use crate::usage_section::millionths;

/// Part that a replica plays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RoleSection {
    /// Serves requests.
    #[default]
    Serve,
    /// Serves only requests that no other replica can serve in time, here or in another region.
    Overflow,
}

/// Terms on which an overflow replica is used. When a cap is reached, requests are handled as if
/// the replica did not exist.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OverflowSection {
    /// Time in ms that a request waits for a slot at other replicas before it is sent to this one.
    /// A request that would be refused is sent at once.
    after_ms: u64,
    /// Maximum share of requests sent to the replica, in percent of the requests that this node
    /// gets for its models. The share is measured over a few seconds, and ten requests are always
    /// allowed. No cap by default.
    #[schemars(range(min = 1, max = 100))]
    share_percent_max: Option<u32>,
    /// Budget of all nodes for the replica per day (UTC). Requests that run when it is spent still
    /// add to the cost.
    #[schemars(with = "Option<f64>", range(min = 0))]
    budget_per_day: Option<Spanned<f64>>,
    /// Budget of all nodes for the replica per month (UTC).
    #[schemars(with = "Option<f64>", range(min = 0))]
    budget_per_month: Option<Spanned<f64>>,
    /// Country in which the API processes requests, e.g. `US`. Without it, requests that are
    /// restricted to countries never go there.
    #[schemars(with = "Option<String>")]
    country: Option<Country>,
}

impl Default for OverflowSection {
    fn default() -> Self {
        Self {
            after_ms: 2_000,
            share_percent_max: None,
            budget_per_day: None,
            budget_per_month: None,
            country: None,
        }
    }
}

impl ReplicaSection {
    /// Returns true if the replica is an overflow replica.
    pub(crate) fn is_overflow(&self) -> bool {
        self.role == RoleSection::Overflow
    }

    /// Checks the role of the replica, with its price and caps.
    ///
    /// # Errors
    /// Returns all faults, with their lines.
    pub(crate) fn overflow(
        &self,
        source: &Source,
    ) -> Result<Option<(OverflowSpec, OverflowTerms)>, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let renamed = self.models.as_ref().filter(|models| !models.get_ref().renamed.is_empty());
        if !self.is_overflow() {
            let remedy = "add role = \"overflow\", or remove it";
            let named = [
                (self.price.as_ref().map(Spanned::span), "a price is that of an overflow replica"),
                (self.caps.as_ref().map(Spanned::span), "these are caps of an overflow replica"),
                (
                    renamed.map(Spanned::span),
                    "only an overflow replica knows models by other names",
                ),
            ];
            for (at, message) in named {
                if let Some(at) = at {
                    errors.add(source.fault(at, message, remedy));
                }
            }
            return errors.or(None);
        }
        errors.add(self.own_work(source));
        let price = errors.keep(self.price(source));
        let budget = errors.keep(self.budget(source));
        let (Some(price), Some(budget)) = (price, budget) else { return Err(errors) };
        let usual = OverflowSection::default();
        let terms = self.caps.as_ref().map_or(&usual, Spanned::get_ref);
        let spec = OverflowSpec {
            names: renamed.map(|models| models.get_ref().renamed.clone()).unwrap_or_default(),
            country: terms.country,
            after: Duration::from_millis(terms.after_ms),
            share_percent_max: self.share_percent_max(),
        };
        errors.or(Some((spec, OverflowTerms { price, budget })))
    }

    /// Returns faults for settings that would cost money, or that only a replica of one's own has.
    fn own_work(&self, source: &Source) -> Vec<ConfigError> {
        let at = self.name.span();
        let mut faults = Vec::new();
        let mut fault = |message: &str, remedy: &str| {
            faults.push(source.fault(at.clone(), message, remedy));
        };
        if self.models.is_none() {
            let remedy = "name them, e.g. models = { \"llama-3.1-8b\" = \"name at the API\" }";
            fault("an overflow replica names its models", remedy);
        }
        if self.price.is_none() {
            let remedy = "add price = { prompt_per_million = .., completion_per_million = .. }";
            fault("an overflow replica has a price", remedy);
        }
        if self.deep.is_some() || !self.warm_up.is_empty() {
            let remedy = "remove deep and warm_up";
            fault("an overflow replica gets no requests that no client asked for", remedy);
        }
        if self.standby || self.kv_events_port.is_some() || self.grpc_url.is_some() {
            let remedy = "remove standby, kv_events_port and grpc_url";
            fault("an overflow replica is outside of all pools", remedy);
        }
        faults
    }

    fn price(&self, source: &Source) -> Result<Price, ConfigError> {
        let Some(section) = self.price.as_ref().map(Spanned::get_ref) else {
            return Ok(Price::default());
        };
        if let Some(model) = &section.model {
            let message = "the price of a replica is that of all its models";
            let remedy = "remove model; an API with several prices is a [[replica]] for each";
            return Err(source.fault(model.span(), message, remedy));
        }
        section.lower(source)
    }

    fn budget(&self, source: &Source) -> Result<Budget, ConfigError> {
        let Some(caps) = self.caps.as_ref().map(Spanned::get_ref) else {
            return Ok(Budget::default());
        };
        let amount = |money: &Option<Spanned<f64>>| {
            let money = money.as_ref().map(|money| millionths(source, money, "budget"));
            Ok(money.transpose()?.map(Money::of_millionths))
        };
        let (per_day, per_month) = (&caps.budget_per_day, &caps.budget_per_month);
        Ok(Budget { per_day: amount(per_day)?, per_month: amount(per_month)? })
    }

    /// Returns the cap on the share of requests in percent; 100 without one.
    fn share_percent_max(&self) -> u32 {
        let caps = self.caps.as_ref().map(Spanned::get_ref);
        caps.and_then(|caps| caps.share_percent_max).unwrap_or(100)
    }
}
