//! `[[route]]`: a set of requests and how they are served.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use spillway_protocol::{EngineFields, HashBy, Protocol};
use spillway_route::{Policy, Tuning, WaitLimits};
use spillway_types::{Country, Millis, ModelName, RegionName, Residency, RouteName, settings};
use spillway_upstream::Timeouts;
use spillway_view::{ContinuationSpec, InjectUsage, QueueSpec, RouteSpec};
use toml::Spanned;

use crate::error::{ConfigError, ConfigErrors, all};
use crate::hedge_section::HedgeSection;
use crate::policy_sections::PredictedLatencySection;
use crate::section::TimeoutsSection;
use crate::session_section::{SessionSection, lower_session};
use crate::source::Source;

settings! {
    /// `[[route]]`: a set of requests and how they are served.
    pub(crate) struct RouteSection {
        /// Unique name, used in metrics.
        #[schemars(with = "String")]
        name: Spanned<String> = Spanned::new(0..0, String::new()),
        /// Path prefix of all requests of the route; without it, the route serves the built-in
        /// endpoints.
        #[schemars(with = "Option<String>")]
        path_prefix: Option<Spanned<String>> = None,
        /// Text that replaces the prefix when a request is forwarded.
        replace_prefix: Option<String> = None,
        /// Protocol of requests below `path_prefix`, and format of errors.
        protocol: RouteProtocol = RouteProtocol::default(),
        /// Models that the route serves; all by default. If all routes without `path_prefix` name
        /// models, other models get 404.
        #[schemars(with = "Vec<String>")]
        models: Vec<Spanned<String>> = Vec::new(),
        /// Model of requests below `path_prefix` that don't name one.
        #[schemars(with = "Option<String>")]
        model: Option<Spanned<String>> = None,
        /// Pool whose replicas the route uses; all replicas by default.
        #[schemars(with = "Option<String>")]
        pool: Option<Spanned<String>> = None,
        /// Routing policy: by default `predicted_latency` for routes that read prompts from bodies,
        /// `power_of_two` for others.
        #[schemars(schema_with = "policy_schema")]
        policy: Option<Spanned<Policy>> = None,
        /// Key that keeps requests together: `header:NAME`, `cookie:NAME`, `user`, `client_ip`,
        /// `conversation`, `prompt_prefix` or `prompt_prefix:BLOCKS`. Used by the policies that hash.
        #[schemars(with = "Option<String>")]
        hash_by: Option<Spanned<HashBy>> = None,
        /// Session affinity: later requests of a client go to the replica of its earlier ones, whatever
        /// the policy.
        #[schemars(with = "Option<SessionSection>")]
        session: Option<Spanned<SessionSection>> = None,
        /// Settings of the policy `predicted_latency`.
        predicted_latency: PredictedLatencySection = PredictedLatencySection::default(),
        /// Replicas to request usage from in streams whose client did not ask for it: `"auto"` means
        /// those of the kinds `vllm`, `sglang` and `llamacpp`, `true` all, `false` none. The report is
        /// removed from the stream.
        #[schemars(schema_with = "inject_usage_schema")]
        inject_usage: Spanned<InjectUsageSetting> = Spanned::new(0..0, InjectUsageSetting(InjectUsage::Auto)),
        /// True to forward the client's `Authorization` and API key headers to the replica.
        forward_authorization: bool = false,
        /// Fields of requests with which the route's clients may control the model server, e.g.
        /// `priority`. Requests with any other of these fields are refused.
        #[schemars(with = "Vec<String>")]
        allow_engine_fields: Vec<Spanned<String>> = Vec::new(),
        /// Maximum number of waiting requests, for each of the route's models; as in `[spill]` if not
        /// set.
        queue_max: Option<usize> = None,
        /// Longest wait of one request in ms; as in `[spill]` if not set.
        queue_ms: Option<u32> = None,
        /// Longest time in ms that a request waits in the queue for a starting replica, while no
        /// replica can serve it; with 0 it is answered at once. Choose more than the time an engine
        /// takes to load its model, and less than the timeout of clients.
        start_wait_ms: u32 = 0,
        /// Longest useful time to the first token of a reply, in ms; a request that is predicted to
        /// exceed it is shed at once.
        #[schemars(range(min = 1))]
        slo_ms: Option<Millis> = None,
        /// True to continue a broken stream of a completion on another replica, from the text sent so
        /// far; off by default. A stream is continued three times at most, and only while its text is
        /// shorter than 256 KiB.
        continue_streams: bool = false,
        /// Settings for sending a request to a second replica if the first does not begin to reply; off
        /// by default.
        #[schemars(with = "Option<HedgeSection>")]
        hedge: Option<Spanned<HedgeSection>> = None,
        /// Regions that may serve the route's requests; all by default.
        #[schemars(with = "Vec<String>")]
        regions: Vec<Spanned<RegionName>> = Vec::new(),
        /// Countries whose regions may serve the route's requests, e.g. `DE`; all by default. If set, a
        /// region whose country is unknown may not serve them.
        #[schemars(with = "Vec<String>")]
        countries: Vec<Country> = Vec::new(),
        /// False to never send the route's requests to overflow replicas.
        overflow: bool = true,
        /// Timeouts of this route.
        timeouts: TimeoutsSection = TimeoutsSection::default(),
    }
}

/// The protocol of a custom route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RouteProtocol {
    /// JSON bodies with a `model` field; errors in OpenAI's form.
    Openai,
    /// KServe V2: bodies are not read; errors in its form.
    V2,
    /// gRPC: messages are not read; errors are gRPC statuses.
    Grpc,
    /// Bodies are not read; errors are plain JSON.
    #[default]
    Raw,
}

/// Value of `inject_usage`: `"auto"`, true or false.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InjectUsageSetting(pub(crate) InjectUsage);

impl<'de> Deserialize<'de> for InjectUsageSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Setting;

        impl Visitor<'_> for Setting {
            type Value = InjectUsage;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\", true or false")
            }

            fn visit_bool<E: de::Error>(self, asks_all: bool) -> Result<InjectUsage, E> {
                Ok(if asks_all { InjectUsage::Always } else { InjectUsage::Never })
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<InjectUsage, E> {
                match text {
                    "auto" => Ok(InjectUsage::Auto),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }

        deserializer.deserialize_any(Setting).map(Self)
    }
}

impl RouteSection {
    /// Returns the route that serves everything built in, for configs without a route of their own
    /// for it. Without a path prefix the endpoint decides about the protocol.
    pub(crate) fn catch_all() -> Self {
        Self { name: Spanned::new(0..0, "default".to_owned()), ..Self::default() }
    }

    /// Checks that there is a hash key exactly if the policy needs one, and that requests can have
    /// it.
    ///
    /// # Errors
    /// Returns an error at the line to change.
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
            let message = "it is in the body, and this route reads no bodies";
            let remedy = "hash by a header, a cookie or client_ip, or set protocol = \"openai\"";
            return Err(source.fault(hash_by.span(), message, remedy));
        }
        Ok(())
    }

    /// Returns the routing policy.
    fn policy(&self) -> Policy {
        let said = self.policy.as_ref().map(|policy| *policy.get_ref());
        said.unwrap_or_else(|| default_policy(self.reads_bodies()))
    }

    /// Returns true if the prompts of the route's requests are read.
    pub(crate) fn reads_bodies(&self) -> bool {
        self.path_prefix.is_none() || self.protocol == RouteProtocol::Openai
    }

    /// Returns the queue of waiting requests, with `base` for settings that the route leaves out.
    fn queue_over(&self, base: QueueSpec) -> QueueSpec {
        QueueSpec {
            limits: WaitLimits {
                count_max: self.queue_max.unwrap_or(base.limits.count_max),
                wait_ms_max: self.queue_ms.map_or(base.limits.wait_ms_max, u64::from),
                ..base.limits
            },
            start_wait_ms: self.start_wait_ms.into(),
            slo: self.slo_ms.map(Millis::duration).or(base.slo),
            ..base
        }
    }

    /// Converts the route to the data path's form; everything but its session, its engine fields and
    /// hedging has been checked.
    ///
    /// # Errors
    /// Returns an error for each of these three that does not work, with its line.
    pub(crate) fn lower(
        self,
        source: &Source,
        (base, queue): (Timeouts, QueueSpec),
    ) -> Result<RouteSpec, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let session = self.session.as_ref().map(|session| lower_session(source, session));
        let session = errors.keep(session.transpose()).flatten();
        let queue = self.queue_over(queue);
        let hedge = self.hedge.as_ref().map(|hedge| hedge.get_ref().lower(source, hedge.span()));
        let hedge = errors.keep(hedge.transpose()).flatten();
        let policy = self.policy();
        let regions: Vec<RegionName> = self.regions.into_iter().map(Spanned::into_inner).collect();
        let engine_fields = errors.keep(engine_fields(&self.allow_engine_fields, source));
        errors.or(RouteSpec {
            session,
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
            tuning: Tuning { predicted: self.predicted_latency.into(), ..Tuning::default() },
            hash_by: self.hash_by.map(Spanned::into_inner),
            inject_usage: self.inject_usage.get_ref().0,
            forward_authorization: self.forward_authorization,
            engine_fields: engine_fields.unwrap_or(EngineFields::NONE),
            continuation: self.continue_streams.then(ContinuationSpec::default),
            queue,
            hedge,
            timeouts: self.timeouts.over(base),
            residency: Residency::new(regions, self.countries),
            overflow: self.overflow,
        })
    }
}

/// Reads the fields that clients may set.
///
/// # Errors
/// Returns an error for each name that is no field that steers a model server.
fn engine_fields(names: &[Spanned<String>], source: &Source) -> Result<EngineFields, ConfigErrors> {
    let fields = all(names.iter().map(|name| {
        EngineFields::named(name.get_ref()).ok_or_else(|| {
            let message = format!("{:?} is no field that steers a model server", name.get_ref());
            let remedy = format!("use some of: {}", EngineFields::all_names().join(", "));
            source.fault(name.span(), message, remedy)
        })
    }))?;
    Ok(fields.into_iter().fold(EngineFields::NONE, EngineFields::with))
}

fn inject_usage_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "enum": ["auto", true, false], "default": "auto" })
}

/// Returns the default policy. Where prompts are read, it uses the predicted time of the first
/// token. Elsewhere it picks a replica close to the least loaded one, without herding when signals
/// are late.
#[must_use]
pub fn default_policy(reads_bodies: bool) -> Policy {
    if reads_bodies { Policy::PredictedLatency } else { Policy::PowerOfTwo }
}

/// Lists the names of all policies, so that one more needs no change here.
fn policy_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let names: Vec<&str> = Policy::ALL.iter().map(|policy| policy.name()).collect();
    schemars::json_schema!({ "type": "string", "enum": names })
}
