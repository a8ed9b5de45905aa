//! `[[route]]`: a set of requests and how they are served.

use schemars::JsonSchema;
use serde::Deserialize;
use spillway_protocol::{HashBy, Protocol};
use spillway_proxy::{RouteSpec, Timeouts};
use spillway_route::{Policy, Tuning};
use spillway_types::{ModelName, RouteName};
use toml::Spanned;

use crate::config::error::{ConfigError, Source};
use crate::config::policy_sections::{
    LeastLoadedSection, PredictedLatencySection, PrefixAwareSection, PrequalSection,
};
use crate::config::section::TimeoutsSection;
use crate::config::session_section::{SessionSection, lower_session};

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
    /// How a replica is chosen: `predicted_latency` where bodies are read for their prompts,
    /// `power_of_two` elsewhere.
    #[serde(default)]
    #[schemars(schema_with = "policy_schema")]
    pub(crate) policy: Option<Spanned<Policy>>,
    /// What keeps requests together: `header:NAME`, `cookie:NAME`, `user`, `client_ip`,
    /// `conversation`, `prompt_prefix` or `prompt_prefix:BLOCKS`. For the policies that hash.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) hash_by: Option<Spanned<HashBy>>,
    /// How later requests of a client find the replica of its earlier ones, whatever the policy.
    #[serde(default)]
    #[schemars(with = "Option<SessionSection>")]
    pub(crate) session: Option<Spanned<SessionSection>>,
    /// What the policy `least_loaded` makes of each signal.
    #[serde(default)]
    pub(crate) least_loaded: LeastLoadedSection,
    /// What the policy `predicted_latency` goes by.
    #[serde(default)]
    pub(crate) predicted_latency: PredictedLatencySection,
    /// What the policy `prefix_aware` goes by.
    #[serde(default)]
    pub(crate) prefix_aware: PrefixAwareSection,
    /// What the policy `prequal` goes by.
    #[serde(default)]
    pub(crate) prequal: PrequalSection,
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
    /// gRPC: messages are not read; errors are gRPC statuses.
    Grpc,
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
            policy: None,
            hash_by: None,
            session: None,
            least_loaded: LeastLoadedSection::default(),
            predicted_latency: PredictedLatencySection::default(),
            prefix_aware: PrefixAwareSection::default(),
            prequal: PrequalSection::default(),
            inject_usage: false,
            forward_authorization: false,
            timeouts: TimeoutsSection::default(),
        }
    }

    /// Checks that there is a key exactly if the policy wants one, and that requests can have it.
    ///
    /// # Errors
    /// If not, at the line to change.
    pub(crate) fn check_hash_by(&self, source: &Source) -> Result<(), ConfigError> {
        let policy = self.policy();
        let Some(hash_by) = &self.hash_by else {
            if !policy.hashes() {
                return Ok(());
            }
            let message = format!("the policy {policy} has nothing to hash by");
            let remedy = "add hash_by, e.g. hash_by = \"header:x-user\"";
            let span = self.policy.as_ref().map_or(0..0, Spanned::span);
            return Err(source.fault(span, message, remedy));
        };
        if !policy.hashes() {
            let message = format!("the policy {policy} does not hash");
            let remedy = "remove hash_by, or set policy = \"bounded_consistent_hash\"";
            return Err(source.fault(hash_by.span(), message, remedy));
        }
        if hash_by.get_ref().needs_body() && !self.reads_bodies() {
            let message = "it stands in the body, and this route reads no bodies";
            let remedy = "hash by a header, a cookie or client_ip, or set protocol = \"openai\"";
            return Err(source.fault(hash_by.span(), message, remedy));
        }
        Ok(())
    }

    /// How a replica is chosen.
    fn policy(&self) -> Policy {
        let said = self.policy.as_ref().map(|policy| *policy.get_ref());
        said.unwrap_or_else(|| default_policy(self.reads_bodies()))
    }

    /// Whether its requests have prompts that are seen.
    fn reads_bodies(&self) -> bool {
        self.path_prefix.is_none() || self.protocol == RouteProtocol::Openai
    }

    /// The route in the data path's terms; everything but its session has been checked.
    ///
    /// # Errors
    /// If the session does not work, with its line.
    pub(crate) fn lower(self, source: &Source, base: Timeouts) -> Result<RouteSpec, ConfigError> {
        let session = self.session.as_ref();
        let policy = self.policy();
        Ok(RouteSpec {
            session: session.map(|session| lower_session(source, session)).transpose()?,
            name: RouteName::from(self.name.into_inner()),
            path_prefix: self.path_prefix.map(Spanned::into_inner),
            replace_prefix: self.replace_prefix,
            protocol: match self.protocol {
                RouteProtocol::Openai => Protocol::OpenAi,
                RouteProtocol::V2 => Protocol::KServeV2,
                RouteProtocol::Grpc => Protocol::Grpc,
                RouteProtocol::Raw => Protocol::Raw,
            },
            models: self.models.into_iter().map(|m| ModelName::from(m.into_inner())).collect(),
            default_model: self.model.map(|model| ModelName::from(model.into_inner())),
            pool: self.pool.map(Spanned::into_inner),
            policy,
            tuning: Tuning {
                least_loaded: self.least_loaded.into(),
                predicted: self.predicted_latency.into(),
                prefix_aware: self.prefix_aware.into(),
                prequal: self.prequal.into(),
            },
            hash_by: self.hash_by.map(Spanned::into_inner),
            inject_usage: self.inject_usage,
            forward_authorization: self.forward_authorization,
            timeouts: self.timeouts.over(base),
        })
    }
}

/// How a replica is chosen where nobody says it: where prompts are seen, by when the first token is
/// predicted to come; else by what is close to the best by load, and free of herds when signals are
/// late.
pub(crate) fn default_policy(reads_bodies: bool) -> Policy {
    if reads_bodies { Policy::PredictedLatency } else { Policy::PowerOfTwo }
}

/// The names of all policies, so that one more needs no change here.
fn policy_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let names: Vec<&str> = Policy::ALL.iter().map(|policy| policy.name()).collect();
    schemars::json_schema!({ "type": "string", "enum": names })
}
