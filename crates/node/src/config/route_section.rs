//! `[[route]]`: a set of requests and how they are served.

use schemars::JsonSchema;
use serde::Deserialize;
use spillway_protocol::Protocol;
use spillway_proxy::{RouteSpec, Timeouts};
use spillway_route::Policy;
use spillway_types::{ModelName, RouteName};
use toml::Spanned;

use crate::config::section::TimeoutsSection;

/// A set of requests and how they are served.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteSection {
    /// Unique name, as in metrics.
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// Serves every path below this one; without it, the built-in endpoints.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) path_prefix: Option<Spanned<String>>,
    /// What replaces the prefix on the way to the replica.
    #[serde(default)]
    pub(crate) replace_prefix: Option<String>,
    /// How requests below `path_prefix` are read, and how errors look.
    #[serde(default)]
    pub(crate) protocol: RouteProtocol,
    /// Serves only these models; empty serves all.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) models: Vec<Spanned<String>>,
    /// The model of requests below `path_prefix` that don't name one.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) model: Option<Spanned<String>>,
    /// Uses only replicas of this pool.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) pool: Option<Spanned<String>>,
    /// How a replica is chosen.
    #[serde(default = "default_policy")]
    #[schemars(schema_with = "policy_schema")]
    pub(crate) policy: Policy,
    /// Asks replicas to report usage in streams, and takes the report out again if the client did
    /// not ask for it.
    #[serde(default)]
    pub(crate) inject_usage: bool,
    /// Passes the client's `Authorization` and API key headers on to the replica.
    #[serde(default)]
    pub(crate) forward_authorization: bool,
    /// Time-outs of this route.
    #[serde(default)]
    pub(crate) timeouts: TimeoutsSection,
}

/// The protocol of a custom route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RouteProtocol {
    /// JSON bodies with a `model` field, OpenAI's error shape.
    Openai,
    /// KServe V2's error shape; bodies are not read.
    V2,
    /// Bodies are not read; errors are plain JSON.
    #[default]
    Raw,
}

impl RouteSection {
    /// The route that serves everything built in, for configs without a route of their own for it.
    pub(crate) fn catch_all() -> Self {
        Self {
            name: Spanned::new(0..0, "default".to_owned()),
            path_prefix: None,
            replace_prefix: None,
            protocol: RouteProtocol::default(),
            models: Vec::new(),
            model: None,
            pool: None,
            policy: default_policy(),
            inject_usage: false,
            forward_authorization: false,
            timeouts: TimeoutsSection::default(),
        }
    }

    /// The route in the data path's terms; everything in it has been checked.
    pub(crate) fn lower(self, base: Timeouts) -> RouteSpec {
        RouteSpec {
            name: RouteName::from(self.name.into_inner()),
            path_prefix: self.path_prefix.map(Spanned::into_inner),
            replace_prefix: self.replace_prefix,
            protocol: match self.protocol {
                RouteProtocol::Openai => Protocol::OpenAi,
                RouteProtocol::V2 => Protocol::KServeV2,
                RouteProtocol::Raw => Protocol::Raw,
            },
            models: self.models.into_iter().map(|m| ModelName::from(m.into_inner())).collect(),
            default_model: self.model.map(|model| ModelName::from(model.into_inner())),
            pool: self.pool.map(Spanned::into_inner),
            policy: self.policy,
            inject_usage: self.inject_usage,
            forward_authorization: self.forward_authorization,
            timeouts: self.timeouts.over(base),
        }
    }
}

/// Close to the best by load, and free of herds when signals are late.
fn default_policy() -> Policy {
    Policy::PowerOfTwo
}

/// The names of all policies, so that one more needs no change here.
fn policy_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let names: Vec<&str> = Policy::ALL.iter().map(|policy| policy.name()).collect();
    schemars::json_schema!({ "type": "string", "enum": names })
}
