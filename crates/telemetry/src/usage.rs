//! Usage of tenants and their keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde::Serialize;
use spillway_types::{ModelName, Outcome, TenantName};

use crate::catalog;
use crate::register::{Labels, metric, raise};

/// Most lines; further keys count under [`OTHER`]. A trusted proxy may claim any number of tenants.
const LINES_MAX: usize = 16_384;
/// Most tenants that metrics tell apart.
const TENANTS_MAX: usize = 256;
/// Name for all tenants and keys beyond a bound.
const OTHER: &str = "_other";

/// Usage of one model by one key of one tenant, since the node started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsageLine {
    /// Tenant; `None` where requests have none.
    pub tenant: Option<String>,
    /// Id of the key; `None` where no key was asked for.
    pub key: Option<String>,
    /// The model that served; `None` where that is unknown.
    pub model: Option<String>,
    /// Requests that ended.
    pub requests: u64,
    /// Of these, requests that were refused or failed: answered with 400 or more.
    pub errors: u64,
    /// Prompt tokens, as replies reported them.
    pub prompt_tokens: u64,
    /// Of these, tokens found in a replica's cache.
    pub cached_tokens: u64,
    /// Generated tokens, as replies reported them, else the events of streams.
    pub completion_tokens: u64,
}

/// Tenant, key and model.
type Key = (Option<TenantName>, Option<Arc<str>>, Option<ModelName>);

/// Counts of one line.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    requests: u64,
    errors: u64,
    prompt: u64,
    cached: u64,
    completion: u64,
}

/// Usage by tenant, key and model.
#[derive(Debug, Default)]
pub(crate) struct TenantUsage {
    lines: BTreeMap<Key, Used>,
}

impl TenantUsage {
    /// Counts a request of this node's own clients. Requests of other nodes' clients are counted
    /// there.
    pub(crate) fn record(&mut self, outcome: &Outcome) {
        if outcome.is_guest {
            return;
        }
        let key = (outcome.tenant.clone(), outcome.key.clone(), outcome.model.clone());
        // Beyond the bound all keys share one line, so that claimed names cannot fill the memory.
        let key = match self.lines.len() >= LINES_MAX && !self.lines.contains_key(&key) {
            true => (Some(OTHER.into()), None, None),
            false => key,
        };
        let used = self.lines.entry(key).or_default();
        used.requests += 1;
        used.errors += u64::from(outcome.status >= 400);
        used.prompt += outcome.tokens.prompt;
        used.cached += outcome.tokens.cached;
        used.completion += outcome.tokens.completion;
    }

    /// Returns all lines, in the order of tenant, key and model.
    pub(crate) fn lines(&self) -> Vec<UsageLine> {
        let line = |((tenant, key, model), used): (&Key, &Used)| UsageLine {
            tenant: tenant.as_ref().map(ToString::to_string),
            key: key.as_ref().map(ToString::to_string),
            model: model.as_ref().map(ToString::to_string),
            requests: used.requests,
            errors: used.errors,
            prompt_tokens: used.prompt,
            cached_tokens: used.cached,
            completion_tokens: used.completion,
        };
        self.lines.iter().map(line).collect()
    }

    /// Returns tokens by tenant: prompt, completion and cached. Requests without a tenant are left
    /// out.
    fn by_tenant(&self) -> BTreeMap<&str, [u64; 3]> {
        let mut tenants: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
        for ((tenant, ..), used) in &self.lines {
            let Some(tenant) = tenant else { continue };
            // The first tenants by name keep a label of their own.
            let is_beyond = tenants.len() >= TENANTS_MAX && !tenants.contains_key(tenant.as_str());
            let name = if is_beyond { OTHER } else { tenant.as_str() };
            let sums = tenants.entry(name).or_default();
            for (sum, more) in sums.iter_mut().zip([used.prompt, used.completion, used.cached]) {
                *sum += more;
            }
        }
        tenants
    }
}

/// Metrics of tokens with the label tenant.
#[derive(Debug)]
pub(crate) struct UsageMetrics {
    tokens: Family<Labels, Counter<u64, AtomicU64>>,
}

impl UsageMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        Self { tokens: metric(registry, &catalog::requests::TENANT_TOKENS) }
    }

    pub(crate) fn show(&self, usage: &TenantUsage) {
        for (tenant, sums) in usage.by_tenant() {
            let kinds = ["prompt", "completion", "cached"].into_iter().zip(sums);
            // Tenants whose replies report no such tokens get no series of zeros.
            for (kind, sum) in kinds.filter(|(_, sum)| *sum > 0) {
                let labels = vec![("tenant", tenant.to_owned()), ("kind", kind.to_owned())];
                raise(&self.tokens.get_or_create(&labels), sum);
            }
        }
    }
}
