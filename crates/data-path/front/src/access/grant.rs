//! Permissions of a credential.

use std::sync::Arc;

use spillway_cluster_state::KeyId;
use spillway_geo::ClientBound;
use spillway_protocol::{Echo, ErrorKind, GatewayError};
use spillway_types::{Allowed, Country, ModelName, Residency, RouteName, TenantName};

use super::counts::{AccessCounts, AccessResult};

/// Permissions of a credential.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    /// The key, for rate limits of single keys; `None` if no key was needed.
    pub key: Option<KeyId>,
    /// Tenant that the requests belong to; `None` if they belong to none.
    pub tenant: Option<TenantName>,
    /// Names of models that requests may ask for.
    pub models: Allowed<ModelName>,
    /// Residency rules of the key and its tenant.
    pub residency: Residency,
    /// Residency rules of the client's country; `None` if no rule needs the country.
    pub client: Option<ClientBound>,
    /// Priority class of the requests: 0 is served first.
    pub priority: u8,
    /// True if the prompts must not share cache entries with other tenants.
    pub is_isolated: bool,
    /// Counters of the requests; `None` if no key was needed.
    pub(crate) counts: Option<Arc<AccessCounts>>,
}

/// Name and residency rules of the route of a request.
#[derive(Clone, Copy, Debug)]
pub struct RouteRules<'a> {
    /// Name of the route.
    pub name: &'a RouteName,
    /// Regions and countries where its requests may be served.
    pub residency: &'a Residency,
}

impl Grant {
    /// Counts one result of a request with this credential.
    pub fn count(&self, result: AccessResult) {
        if let Some(counts) = &self.counts {
            counts.count(result);
        }
    }

    /// Returns the grant with the residency rules of its client's country added.
    pub fn of_client(&self, client: Option<ClientBound>) -> Self {
        Self { client, ..self.clone() }
    }

    /// Returns the residency rules of the credential and of the client's country together.
    pub fn allowed(&self) -> Residency {
        match &self.client {
            Some(client) => self.residency.and(&client.residency),
            None => self.residency.clone(),
        }
    }

    /// Returns true if the credential allows this name, or the model that the name is an alias of,
    /// which `behind` finds.
    pub fn allows_name<'n>(
        &self,
        name: &str,
        behind: impl FnOnce(&str) -> Option<&'n ModelName>,
    ) -> bool {
        self.models.allows(name) || behind(name).is_some_and(|behind| self.allows(behind))
    }

    /// Returns the tenant if it shares no cache entries with others.
    pub fn isolated_tenant(&self) -> Option<&TenantName> {
        self.tenant.as_ref().filter(|_| self.is_isolated)
    }

    /// Returns true if the credential allows this model itself; aliases are not resolved.
    pub fn allows(&self, model: &ModelName) -> bool {
        self.models.allows(model)
    }

    /// Returns true if the credential allows the requested name, and counts a refusal. The answer to
    /// a refusal must be that to a name that does not exist: a client learns nothing of other
    /// clients' models.
    pub fn may_ask_for<'n>(
        &self,
        name: &str,
        behind: impl FnOnce(&str) -> Option<&'n ModelName>,
    ) -> bool {
        let is_allowed = self.allows_name(name, behind);
        if !is_allowed {
            self.count(AccessResult::Model);
            let name = Echo(name);
            tracing::debug!(key = ?self.key, tenant = ?self.tenant, ?name, "model not allowed");
        }
        is_allowed
    }

    /// Checks that the credential allows a request that names no model, and counts a refusal.
    ///
    /// # Errors
    /// Returns an error if the credential is for certain models only: the model that would serve the
    /// request is unknown.
    pub fn check_unnamed(&self) -> Result<(), GatewayError> {
        if self.models.is_all() {
            return Ok(());
        }
        self.count(AccessResult::Model);
        tracing::debug!(key = ?self.key, tenant = ?self.tenant, "no model named");
        let message = "the key is for certain models, and this path names none";
        Err(GatewayError::new(ErrorKind::ModelNotAllowed, message))
    }

    /// Returns the error for a request that no region may serve, and counts it. `asked` are the
    /// rules of `route` and of this credential together. The message names no region beside those of
    /// the rules: where a client's request arrived, and which regions there are, is in the log alone.
    pub fn refuse_region(
        &self,
        route: RouteRules<'_>,
        asked: &Residency,
        own: &str,
        country: Option<Country>,
    ) -> GatewayError {
        self.count(AccessResult::Region);
        tracing::debug!(
            key = ?self.key, tenant = ?self.tenant, %asked, own, ?country, "region not allowed"
        );
        let whose = self.whose(route);
        let message = format!(
            "the request may be served {asked}, by {whose}: no region that could serve it is allowed"
        );
        GatewayError::new(ErrorKind::RegionNotAllowed, message)
    }

    /// Returns the names of the rules that restrict where a request by this route may be served.
    fn whose(&self, route: RouteRules<'_>) -> String {
        let mut whose = Vec::new();
        if !self.residency.is_anywhere() {
            whose.push("its key or tenant".to_owned());
        }
        if !route.residency.is_anywhere() {
            whose.push(format!("its route {}", route.name));
        }
        if let Some(client) = self.client.as_ref().filter(|it| !it.residency.is_anywhere()) {
            let country = client.country.map(|country| format!("country of its client, {country}"));
            let unknown = || "unknown country of its client".to_owned();
            whose.push(format!("the {}", country.unwrap_or_else(unknown)));
        }
        whose.join(" and ")
    }
}
