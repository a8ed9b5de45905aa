//! Sums of usage by tenant, key and model.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use spillway_types::{ModelName, Outcome, TenantName};

use crate::money::Money;

/// Most lines; further keys count under [`OTHER`]. A trusted proxy may claim any number of tenants.
pub const LINES_MAX: usize = 16_384;
/// Name for all tenants and keys beyond a bound.
pub const OTHER: &str = "_other";

/// Usage of one model by one key of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageLine {
    /// Tenant; `None` where requests have none.
    pub tenant: Option<String>,
    /// Id of the key; `None` where no key was asked for.
    pub key: Option<String>,
    /// The model that served; `None` where that is unknown.
    pub model: Option<String>,
    /// Requests, tokens and money.
    #[serde(flatten)]
    pub used: Used,
}

/// Tenant, key and model.
pub type LineKey = (Option<TenantName>, Option<Arc<str>>, Option<ModelName>);

/// Counts of requests and tokens, and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Requests that ended.
    pub requests: u64,
    /// Of these, requests that were refused or failed: answered with 400 or more.
    pub errors: u64,
    /// Prompt tokens.
    #[serde(rename = "prompt_tokens")]
    pub prompt: u64,
    /// Of these, tokens found in a replica's cache.
    #[serde(rename = "cached_tokens")]
    pub cached: u64,
    /// Generated tokens.
    #[serde(rename = "completion_tokens")]
    pub completion: u64,
    /// Of prompt tokens and generated tokens together, those that are estimated since no reply
    /// reported them.
    #[serde(rename = "estimated_tokens", default)]
    pub estimated: u64,
    /// Cost, by the prices when each request ended.
    pub cost: Money,
}

/// Usage by tenant, key and model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageLines {
    lines: BTreeMap<LineKey, Used>,
}

impl Used {
    /// Returns the usage of one request.
    #[must_use]
    pub fn of(outcome: &Outcome, cost: Money) -> Self {
        Self {
            requests: 1,
            errors: u64::from(outcome.status >= 400),
            prompt: outcome.tokens.prompt,
            cached: outcome.tokens.cached,
            completion: outcome.tokens.completion,
            estimated: outcome.estimate.map_or(0, |estimate| estimate.tokens),
            cost,
        }
    }

    /// Adds another usage.
    pub fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.errors = self.errors.saturating_add(other.errors);
        self.prompt = self.prompt.saturating_add(other.prompt);
        self.cached = self.cached.saturating_add(other.cached);
        self.completion = self.completion.saturating_add(other.completion);
        self.estimated = self.estimated.saturating_add(other.estimated);
        self.cost += other.cost;
    }
}

impl UsageLines {
    /// Counts a request of this node's own clients, with its cost. Requests of other nodes' clients
    /// are counted there.
    pub fn record(&mut self, outcome: &Outcome, cost: Money) {
        if outcome.is_guest {
            return;
        }
        let key = (outcome.tenant.clone(), outcome.key.clone(), outcome.model.clone());
        self.add(key, &Used::of(outcome, cost));
    }

    /// Adds a usage to a line.
    pub fn add(&mut self, key: LineKey, used: &Used) {
        // Beyond the bound all keys share one line, so that claimed names cannot fill the memory.
        let key = match self.lines.len() >= LINES_MAX && !self.lines.contains_key(&key) {
            true => (Some(OTHER.into()), None, None),
            false => key,
        };
        self.lines.entry(key).or_default().add(used);
    }

    /// Returns all lines, in the order of tenant, key and model.
    pub fn iter(&self) -> impl Iterator<Item = (&LineKey, &Used)> {
        self.lines.iter()
    }

    /// Returns all lines as plain data, in the order of tenant, key and model.
    #[must_use]
    pub fn lines(&self) -> Vec<UsageLine> {
        let line = |((tenant, key, model), used): (&LineKey, &Used)| UsageLine {
            tenant: tenant.as_ref().map(ToString::to_string),
            key: key.as_ref().map(ToString::to_string),
            model: model.as_ref().map(ToString::to_string),
            used: *used,
        };
        self.lines.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use spillway_types::{EstimateReason, TokenCounts, TokenEstimate};

    use super::*;

    fn outcome(tenant: &str, status: u16) -> Outcome {
        Outcome {
            tenant: Some(tenant.into()),
            status,
            tokens: TokenCounts { prompt: 7, completion: 3, cached: 2 },
            estimate: Some(TokenEstimate { tokens: 3, reason: EstimateReason::EarlyEnd }),
            ..Outcome::begun()
        }
    }

    #[test]
    fn requests_of_a_line_are_added_and_guests_are_not_counted() {
        let (mut lines, cost) = (UsageLines::default(), Money::of_millionths(5));
        lines.record(&outcome("a", 200), cost);
        lines.record(&outcome("a", 503), cost);
        lines.record(&Outcome { is_guest: true, ..outcome("a", 200) }, cost);
        let expected = Used {
            requests: 2,
            errors: 1,
            prompt: 14,
            cached: 4,
            completion: 6,
            estimated: 6,
            cost: Money::of_millionths(10),
        };
        let tenant = Some("a".to_owned());
        assert_eq!(lines.lines(), [UsageLine { tenant, used: expected, ..UsageLine::default() }]);
    }

    #[test]
    fn beyond_the_bound_nothing_is_lost() {
        let mut lines = UsageLines::default();
        for number in 0..LINES_MAX + 9 {
            lines.record(&outcome(&format!("t{number:06}"), 200), Money::ZERO);
        }
        assert_eq!(lines.iter().count(), LINES_MAX + 1);
        assert_eq!(lines.iter().map(|(_, used)| used.requests).sum::<u64>(), 16_393);
        let other = lines.lines().into_iter().find(|line| line.tenant.as_deref() == Some(OTHER));
        assert_eq!(other.unwrap().used.requests, 9);
    }
}
