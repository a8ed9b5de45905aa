//! `[[limit]]`: rate limits and concurrency limits of this node.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use spillway_cluster_state::KeyId;
use spillway_rate_limit::{LimitTerms, RequestWindow, Scope};
use spillway_types::TenantName;
use toml::Spanned;

use crate::access_section::AccessConfig;
use crate::error::{ConfigError, ConfigErrors};
use crate::source::Source;

/// Maximum number of limits in a config: as many as the cluster's agreed state can hold.
const LIMITS_MAX: usize = 32_768;

/// `[[limit]]`: a limit on the use of this node alone, whatever other nodes do. A limit of the
/// cluster with the same name replaces it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitSection {
    /// Scope of the limit: `global`, `tenant:NAME`, `model:NAME` or `key:ID`.
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// Maximum number of requests per second; excludes `requests_per_min`.
    #[serde(default)]
    pub(crate) requests_per_s: Option<u32>,
    /// Maximum number of requests per minute.
    #[serde(default)]
    pub(crate) requests_per_min: Option<u32>,
    /// Maximum number of tokens per minute.
    #[serde(default)]
    pub(crate) tokens_per_min: Option<u64>,
    /// Maximum number of requests in flight.
    #[serde(default)]
    pub(crate) concurrency: Option<u32>,
}

/// Keys and tenants that limits may name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limited<'a> {
    /// Keys and tenants of the config; `None` if the intended ones are unknown.
    pub(crate) access: Option<&'a AccessConfig>,
    /// True if the agreed state of a cluster may have more of them.
    pub(crate) is_clustered: bool,
}

/// Checks the limits of a config.
///
/// # Errors
/// Returns an error for each limit that has no known scope, limits nothing, or is there twice.
pub(crate) fn lower_limits(
    source: &Source,
    sections: Vec<LimitSection>,
    known: Limited<'_>,
) -> Result<Vec<LimitTerms>, ConfigErrors> {
    if let Some(section) = sections.get(LIMITS_MAX) {
        let message = format!("a config has {LIMITS_MAX} limits at most");
        let remedy = "limit tenants instead of keys";
        return Err(source.fault(section.name.span(), message, remedy).into());
    }
    let mut errors = ConfigErrors::default();
    let mut limits = Vec::new();
    let mut places = BTreeMap::new();
    for section in sections {
        let Some(terms) = errors.keep(section.lower(source, known)) else { continue };
        let (name, at) = (section.name.get_ref(), section.name.span());
        if let Some(earlier) = places.insert(terms.scope.clone(), at.clone()) {
            let message = format!("a second limit is called {name}");
            errors.add(source.collision(at, earlier, message, "keep one of them"));
        }
        limits.push(terms);
    }
    errors.or(limits)
}

impl LimitSection {
    fn lower(&self, source: &Source, known: Limited<'_>) -> Result<LimitTerms, ConfigError> {
        let fault =
            |message: String, remedy: &str| Err(source.fault(self.name.span(), message, remedy));
        let name = self.name.get_ref();
        let Some(scope) = scope(name) else {
            let message = format!("{name:?} can't be limited");
            return fault(message, "use global, tenant:NAME, model:NAME or key:ID");
        };
        if let Err(message) = check_known(&scope, known) {
            return fault(message, "correct the name, or remove the limit");
        }
        if self.requests_per_s.is_some() && self.requests_per_min.is_some() {
            let message = format!("requests of {name} are limited twice");
            return fault(message, "say requests_per_s or requests_per_min");
        }
        let terms = self.terms(scope);
        if terms.whole.iter().all(Option::is_none) {
            let remedy = "set requests_per_s, requests_per_min, tokens_per_min or concurrency";
            return fault(format!("the limit {name} limits nothing"), remedy);
        }
        Ok(terms)
    }

    fn terms(&self, scope: Scope) -> LimitTerms {
        let by_second = (self.requests_per_s, RequestWindow::Second);
        let by_minute = (self.requests_per_min, RequestWindow::Minute);
        // At most one of them is set: `lower` refuses both.
        let (count, requests) = if by_minute.0.is_some() { by_minute } else { by_second };
        let whole = [count.map(u64::from), self.tokens_per_min, self.concurrency.map(u64::from)];
        LimitTerms { scope, whole, requests }
    }
}

/// Returns the scope that a name means; records of the cluster have such names, too.
fn scope(name: &str) -> Option<Scope> {
    match name.split_once(':') {
        None => (name == "global").then_some(Scope::Global),
        Some((_, "")) => None,
        Some(("tenant", tenant)) => Some(Scope::Tenant(tenant.into())),
        Some(("model", model)) => Some(Scope::Model(model.into())),
        Some(("key", id)) => Some(Scope::Key(id.to_owned())),
        Some(_) => None,
    }
}

/// Refuses a limit of a key or tenant that this config does not have: it would limit nothing. In a
/// cluster any name is allowed, since the agreed state may have more. Without keys any tenant is
/// allowed, since a proxy in front may name it.
fn check_known(scope: &Scope, known: Limited<'_>) -> Result<(), String> {
    let Limited { access: Some(access), is_clustered } = known else { return Ok(()) };
    let is_known = match scope {
        Scope::Global | Scope::Model(_) => true,
        Scope::Tenant(tenant) => {
            let of_key = |tenant: &TenantName| {
                access.keys.values().any(|key| key.tenant.as_ref() == Some(tenant))
            };
            access.keys.is_empty() || access.tenants.contains_key(tenant) || of_key(tenant)
        }
        Scope::Key(id) => access.keys.contains_key(&KeyId::from(id.as_str())),
    };
    match is_known || is_clustered {
        true => Ok(()),
        false => Err(format!("there is no {scope} in this config")),
    }
}
