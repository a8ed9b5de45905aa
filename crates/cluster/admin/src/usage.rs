//! Usage of clients, of all nodes together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_usage::{UsageQuery, UsageRow, UsageTable, Used};

/// Usage of all nodes, as far as they could be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterUsage {
    /// First day, in UTC.
    pub since: String,
    /// Last day, in UTC.
    pub until: String,
    /// What sums are told apart by: `day`, `tenant`, `key`, `model`.
    pub by: Vec<String>,
    /// False if a node could not be asked: its requests are missing.
    pub is_complete: bool,
    /// Nodes that were asked, the answering one first.
    pub nodes: Vec<AskedNode>,
    /// Sum of all usage.
    pub total: UsageSum,
    /// Sums by what was asked for.
    pub usage: Vec<UsageEntry>,
    /// Budgets by the answering node's config, with what it knows to be spent at all nodes.
    pub budgets: Vec<BudgetState>,
}

/// Budget of a tenant, and what of it is spent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetState {
    /// The tenant.
    pub tenant: String,
    /// Money that it may spend in a day of UTC; null without such a budget.
    pub budget_per_day: Option<String>,
    /// Money that it may spend in a month of UTC; null without such a budget.
    pub budget_per_month: Option<String>,
    /// Money spent today.
    pub spent_today: String,
    /// Money spent this month, today included.
    pub spent_this_month: String,
    /// Day on which its requests are let in again; null unless they are refused.
    pub refused_until: Option<String>,
}

/// A node that was asked for usage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskedNode {
    /// Name of the node.
    pub name: String,
    /// Region of the node.
    pub region: String,
    /// Reason why it did not answer; null if it did.
    pub fault: Option<String>,
}

/// Requests, tokens and money.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageSum {
    /// Requests that ended.
    pub requests: u64,
    /// Of these, requests that were answered with 400 or more.
    pub errors: u64,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Of these, tokens found in a cache.
    pub cached_tokens: u64,
    /// Generated tokens.
    pub completion_tokens: u64,
    /// Of prompt tokens and generated tokens together, those that are estimated since no reply
    /// reported them.
    pub estimated_tokens: u64,
    /// Cost in the currency of the prices, an exact decimal number.
    pub cost: String,
}

/// Sum of usage, and what it is the sum of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageEntry {
    /// Day of UTC; null if days are added up.
    pub day: Option<String>,
    /// Tenant; null for requests without one, or if tenants are added up.
    pub tenant: Option<String>,
    /// Id of the key; null for requests without one, or if keys are added up.
    pub key: Option<String>,
    /// Model that served; null where it is unknown, or if models are added up.
    pub model: Option<String>,
    /// Requests, tokens and money.
    #[serde(flatten)]
    pub sum: UsageSum,
}

impl ClusterUsage {
    /// Makes the answer to a question from the nodes' answers, without budgets.
    #[must_use]
    pub fn new(query: &UsageQuery, nodes: Vec<AskedNode>, table: UsageTable) -> Self {
        Self {
            since: query.since.to_string(),
            until: query.until.to_string(),
            by: query.by.iter().map(|by| by.name().to_owned()).collect(),
            is_complete: nodes.iter().all(|node| node.fault.is_none()),
            nodes,
            total: table.total().into(),
            usage: table.rows().into_iter().map(UsageEntry::from).collect(),
            budgets: Vec::new(),
        }
    }
}

impl From<Used> for UsageSum {
    fn from(used: Used) -> Self {
        Self {
            requests: used.requests,
            errors: used.errors,
            prompt_tokens: used.prompt,
            cached_tokens: used.cached,
            completion_tokens: used.completion,
            estimated_tokens: used.estimated,
            cost: used.cost.to_string(),
        }
    }
}

impl From<UsageRow> for UsageEntry {
    fn from(row: UsageRow) -> Self {
        let UsageRow { day, tenant, key, model, used } = row;
        let day = day.map(|day| day.to_string());
        Self { day, tenant, key, model, sum: used.into() }
    }
}
