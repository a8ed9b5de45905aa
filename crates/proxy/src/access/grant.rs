//! What a credential lets its holder do.

use std::sync::Arc;

use spillway_control::KeyId;
use spillway_protocol::{Echo, ErrorKind, GatewayError};
use spillway_types::{Allowed, Country, ModelName, Residency, RouteName, TenantName};

use super::counts::{AccessCounts, AccessResult};
use crate::names::Names;

/// What a credential lets its holder do.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    /// The key; `None` where none was asked for. Limits of a key go by it.
    pub(crate) key: Option<KeyId>,
    /// Whose requests they are.
    pub(crate) tenant: Option<TenantName>,
    /// Names that it may ask for.
    pub(crate) models: Allowed<ModelName>,
    /// Where it may be served, by the key and its tenant.
    pub(crate) residency: Residency,
    /// Class of its requests: 0 is served first.
    pub(crate) priority: u8,
    /// Its prompts must not look like those of other tenants.
    pub(crate) is_isolated: bool,
    /// Where its requests are counted; `None` where nobody asked for a key.
    pub(super) counts: Option<Arc<AccessCounts>>,
}

impl Grant {
    /// Counts a request that came by it.
    pub(super) fn count(&self, result: AccessResult) {
        if let Some(counts) = &self.counts {
            counts.count(result);
        }
    }

    /// Whether it may ask for this: by the name itself, or by what the name stands for.
    pub(crate) fn allows_name(&self, names: &Names, name: &str) -> bool {
        self.models.allows(name) || names.behind(name).is_some_and(|behind| self.allows(behind))
    }

    /// Its tenant, if that shares no cache entries with others.
    pub(crate) fn isolated_tenant(&self) -> Option<&TenantName> {
        self.tenant.as_ref().filter(|_| self.is_isolated)
    }

    /// Whether it may use this very model.
    pub(crate) fn allows(&self, model: &ModelName) -> bool {
        self.models.allows(model)
    }

    /// # Errors
    /// If it may not ask for a name, or for nothing at all by name: what serves such a request is
    /// unknown then. Counts that.
    pub(crate) fn check_name(&self, names: &Names, name: Option<&str>) -> Result<(), GatewayError> {
        let is_allowed = match name {
            Some(name) => self.allows_name(names, name),
            None => self.models.is_all(),
        };
        if is_allowed {
            return Ok(());
        }
        self.count(AccessResult::Model);
        let name = name.map(Echo);
        tracing::debug!(key = ?self.key, tenant = ?self.tenant, ?name, "model not allowed");
        Err(match name {
            Some(name) => {
                let message = format!("the key may not use the model {name:?}");
                GatewayError::new(ErrorKind::ModelNotAllowed, message).with_param("model")
            }
            None => {
                let message = "the key is for certain models, and this path names none";
                GatewayError::new(ErrorKind::ModelNotAllowed, message)
            }
        })
    }

    /// What a request is told that no region may serve: `asked` by the route of that name and this
    /// credential together. Counts it.
    pub(crate) fn refuse_region(
        &self,
        (route, asked): (&RouteName, &Residency),
        (own, country): (&str, Option<Country>),
    ) -> GatewayError {
        self.count(AccessResult::Region);
        tracing::debug!(key = ?self.key, tenant = ?self.tenant, %asked, "region not allowed");
        let whose = match (self.residency.is_anywhere(), &self.residency == asked) {
            (true, _) => format!("by its route {route}"),
            (false, true) => "by its key or tenant".to_owned(),
            (false, false) => format!("by its key or tenant and its route {route}"),
        };
        let country =
            country.map_or_else(|| "of unknown country".to_owned(), |it| format!("in {it}"));
        let message = format!(
            "the request may be served {asked}, {whose}: not by this region, {own} {country}, nor by \
             any other that could serve it"
        );
        GatewayError::new(ErrorKind::RegionNotAllowed, message)
    }
}
