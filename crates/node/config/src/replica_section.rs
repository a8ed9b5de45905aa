//! `[[replica]]`: one model server.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_replicas::ServerKind;
use spillway_types::{ModelName, ReplicaName};
use spillway_upstream::{GrpcTarget, ReplicaProtocol};
use spillway_view::{ReplicaSpec, UsageReports};
use toml::Spanned;

use crate::access_section::check_name;
use crate::care_section::CareDefaults;
use crate::credential_section::{CredentialSection, lower_credential};
use crate::error::{ConfigError, ConfigErrors, all};
use crate::health_section::{BucketSection, DeepSection, MetricsSection, ReplicaHealthSection};
use crate::kind_settings::Preset;
use crate::models_section::{ModelsForm, ModelsSection};
use crate::overflow_section::{OverflowSection, RoleSection};
use crate::replica::ReplicaConfig;
use crate::replica_tls::{ReplicaTlsSection, lower_tls};
use crate::replica_url::{Target, lower_grpc_target, lower_target};
use crate::source::Source;
use crate::usage_section::PriceSection;
use crate::versions::{VersionsSection, lower_versions};

/// Default maximum of connections to a replica: more than any engine works on at once.
const CONNECTIONS_MAX: u32 = 1_024;

/// `[[replica]]`: one model server.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplicaSection {
    /// Unique name, used in metrics and headers.
    #[serde(default = "no_text")]
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// Base URL: `http://host:port` or `https://host:port`, and the path prefix of the server's
    /// API, if any. A path with a version, such as `/openai/v1`, replaces `/v1` of a request's
    /// path; any other is prepended.
    #[serde(default = "no_text")]
    #[schemars(with = "String")]
    pub(crate) url: Spanned<String>,
    /// Address for gRPC, if it is on another port. Without it, gRPC calls go to `url` if `protocol`
    /// is `http2`, else not to this replica. Credentials and `tls` hold for both.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) grpc_url: Option<Spanned<String>>,
    /// Models that the replica serves; by default those that it lists at `/v1/models`, or with the
    /// kinds `triton` and `mlserver` in its repository index. For an overflow replica, a table from
    /// these names to the API's names.
    #[serde(default)]
    #[schemars(with = "Option<ModelsForm>")]
    pub(crate) models: Option<Spanned<ModelsSection>>,
    /// Role of the replica: `overflow` replicas get only requests that no other replica can serve.
    #[serde(default)]
    pub(crate) role: RoleSection,
    /// Price that the operator pays for an overflow replica's tokens: as in `[[price]]`, but without
    /// `model`.
    #[serde(default)]
    #[schemars(with = "Option<PriceSection>")]
    pub(crate) price: Option<Spanned<PriceSection>>,
    /// Conditions and caps for the use of an overflow replica.
    #[serde(default, rename = "overflow")]
    #[schemars(with = "Option<OverflowSection>")]
    pub(crate) caps: Option<Spanned<OverflowSection>>,
    /// Versions of models that the replica serves; models that are not listed are served in every
    /// version.
    #[serde(default)]
    #[schemars(with = "std::collections::BTreeMap<String, Vec<String>>")]
    pub(crate) versions: VersionsSection,
    /// Pool that routes refer to.
    #[serde(default = "default_pool")]
    pub(crate) pool: String,
    /// Weight relative to other replicas, 1 to 1,000; by default its class's weight, else 1.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000))]
    pub(crate) weight: Option<u32>,
    /// Hardware class of the replica: a name in `[classes]`, which sets the weight.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) class: Option<Spanned<String>>,
    /// Software of the server, which determines checks and metrics. By default the kind is detected
    /// from the server's pages.
    #[serde(default)]
    #[schemars(with = "Option<ServerKind>")]
    pub(crate) kind: Option<Spanned<ServerKind>>,
    /// Settings of the health check that differ from `[health]`.
    #[serde(default)]
    pub(crate) health: ReplicaHealthSection,
    /// Check that runs an inference: a single token, or a request with a known answer.
    #[serde(default)]
    #[schemars(with = "Option<DeepSection>")]
    pub(crate) deep: Option<Spanned<DeepSection>>,
    /// Source of the replica's load figures.
    #[serde(default)]
    pub(crate) metrics: MetricsSection,
    /// Port on the same host at which the engine publishes KV events, such as 5557 for vLLM; with
    /// them the index of cached prompts knows what the engine evicts, instead of assuming it. No
    /// events are read by default. It is an error for a `kind` that publishes none.
    #[serde(default)]
    pub(crate) kv_events_port: Option<u16>,
    /// URL that answers 200 once the replica's machine is scheduled for removal, and 404 before. The
    /// replica then gets no new requests, and 100 s for those that it has.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) notice_url: Option<Spanned<String>>,
    /// Prompts sent to the replica before its first request, to load weights and fill its cache.
    #[serde(default)]
    pub(crate) warm_up: Vec<String>,
    /// Settings of the replica's bucket, for the policy `token_bucket`.
    #[serde(default)]
    pub(crate) bucket: BucketSection,
    /// True to keep the replica in reserve until its pool needs it (see `[standby]`).
    #[serde(default)]
    pub(crate) standby: bool,
    /// Protocol of the replica.
    #[serde(default)]
    pub(crate) protocol: ProtocolSection,
    /// Maximum number of concurrent requests from this node, 1,024 by default.
    #[serde(default)]
    pub(crate) connections_max: Option<u32>,
    /// Type of the concurrency limit: adaptive by default, or fixed if `connections_max` is set.
    #[serde(default)]
    pub(crate) concurrency: Option<ConcurrencySection>,
    /// Time in ms after which idle connections are closed. Keep it below the server's keep-alive
    /// timeout, which is 5 s for servers on uvicorn.
    #[serde(default = "default_idle_ms")]
    pub(crate) idle_ms: u64,
    /// TLS settings, needed if the system's CAs or the host's name don't fit.
    #[serde(default)]
    pub(crate) tls: Option<ReplicaTlsSection>,
    /// Credential for the replica, sent instead of the client's.
    #[serde(default)]
    #[schemars(with = "Option<CredentialSection>")]
    pub(crate) credential: Option<Spanned<CredentialSection>>,
}

/// The protocol of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProtocolSection {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2; in cleartext with prior knowledge.
    #[serde(alias = "h2c")]
    Http2,
}

/// Method of limiting the number of requests at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConcurrencySection {
    /// Adaptive limit within `connections_max`, by the replica's queue or by late first tokens.
    Adaptive,
    /// No adaptive limit: the replica is given all requests, up to `connections_max`.
    Unlimited,
}

impl ReplicaSection {
    /// Keys that each replica of a list must have. The template of a discovery has neither.
    pub(crate) const REQUIRED: &[&str] = &["name", "url"];

    /// Checks the section.
    ///
    /// # Errors
    /// Returns all faults, with their lines.
    pub(crate) fn lower(
        self,
        defaults: &CareDefaults,
        source: &Source,
    ) -> Result<ReplicaConfig, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let settings = errors.keep(self.kind_settings(defaults, source));
        let care = settings
            .as_ref()
            .and_then(|settings| errors.keep(self.care(settings, defaults, source)));
        let weight = errors.keep(self.weight(defaults, source));
        let overflow = errors.keep(self.overflow(source));
        let spec = errors.keep(self.lower_spec(source));
        let (Some(settings), Some(care), Some(weight), Some(overflow), Some(spec)) =
            (settings, care, weight, overflow, spec)
        else {
            return Err(errors);
        };
        let (overflow, terms) = overflow.unzip();
        // None of the three depends on models.
        let Preset { continues_chats, salt_field, usage_reports, .. } = settings.preset(None, &[]);
        // Hosted APIs report usage at the end of a stream, and refuse unknown options.
        let usage_reports = match &overflow {
            Some(_) => usage_reports.max(UsageReports::AtEnd),
            None => usage_reports,
        };
        let overflow = overflow.map(Arc::new);
        let spec =
            ReplicaSpec { weight, continues_chats, salt_field, usage_reports, overflow, ..spec };
        let settings = Arc::new(settings);
        Ok(ReplicaConfig { spec, care, settings, overflow: terms, may_vanish: false })
    }

    /// Checks the template of all replicas of a discovery: of its URL only the scheme counts.
    ///
    /// # Errors
    /// Returns the first fault, with its line.
    pub(crate) fn lower_template(
        mut self,
        discovery: &Spanned<String>,
        defaults: &CareDefaults,
        source: &Source,
    ) -> Result<ReplicaConfig, ConfigErrors> {
        let is_template = ["", "http://", "https://"].contains(&self.url.get_ref().as_str());
        if self.is_overflow() {
            let remedy = "give it a [[replica]] of its own";
            let message = "an overflow replica has one address, which is not found";
            return Err(source.fault(discovery.span(), message, remedy).into());
        }
        if !is_template || !self.name.get_ref().is_empty() {
            let remedy = "leave name out, and write url as \"http://\" or \"https://\"";
            let message = "names and addresses of these replicas are found, not given";
            return Err(source.fault(discovery.span(), message, remedy).into());
        }
        if let Some(url) = &self.grpc_url {
            let message = "the addresses of these replicas are found, and each has one";
            let remedy = "set protocol = \"http2\" if it takes gRPC too";
            return Err(source.fault(url.span(), message, remedy).into());
        }
        let scheme = if self.url.get_ref().is_empty() { "http://" } else { self.url.get_ref() };
        // The template passes all checks of a replica; its host can't exist (RFC 2606).
        self.url = Spanned::new(discovery.span(), format!("{scheme}template.invalid:1"));
        self.name = discovery.clone();
        self.lower(defaults, source)
    }

    /// Returns the kind of the server, if it is given.
    pub(crate) fn kind(&self) -> Option<ServerKind> {
        self.kind.as_ref().map(|kind| *kind.get_ref())
    }

    /// Checks the settings that the data path works with. Weight and what depends on the kind of
    /// server are left to the caller.
    ///
    /// # Errors
    /// Returns all faults, with their lines.
    fn lower_spec(self, source: &Source) -> Result<ReplicaSpec, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        errors.keep(check_name(source, &self.name, "replica"));
        errors.keep(self.check_models(source));
        errors.keep(self.check_kv_events(source));
        let target = errors.keep(lower_target(&self.url, source));
        let grpc = self.grpc_url.as_ref().map(|url| lower_grpc_target(url, source)).transpose();
        let grpc = errors.keep(grpc).flatten();
        let scheme_is_tls = target.as_ref().is_some_and(|target| target.is_tls);
        let is_any_tls = scheme_is_tls || grpc.as_ref().is_some_and(|grpc| grpc.is_tls);
        if self.tls.is_some() && target.is_some() && !is_any_tls {
            let remedy = "use https:// in the URL, or remove tls";
            errors.add(source.fault(self.url.span(), "tls is set for an http:// URL", remedy));
        }
        let tls = is_any_tls.then(|| lower_tls(self.tls, source)).transpose();
        let tls = errors.keep(tls).flatten();
        let grpc = grpc.map(|Target { is_tls, host, port, .. }| {
            let tls = tls.clone().filter(|_| is_tls);
            GrpcTarget { host, port, tls }
        });
        let credential = self.credential.map(|c| lower_credential(c, source)).transpose();
        let credential = errors.keep(credential).flatten();
        let models = self.models.map(Spanned::into_inner).unwrap_or_default();
        let names = models.into_names();
        let versions = errors.keep(lower_versions(source, self.versions, &names));
        let Target { host, port, base, .. } = target.unwrap_or_default();
        errors.or(ReplicaSpec {
            name: ReplicaName::from(self.name.get_ref().as_str()),
            host,
            port,
            base,
            // HTTP and gRPC share the settings, but each has its own scheme.
            tls: tls.filter(|_| scheme_is_tls),
            grpc,
            protocol: match self.protocol {
                ProtocolSection::Http1 => ReplicaProtocol::Http1,
                ProtocolSection::Http2 => ReplicaProtocol::Http2,
            },
            versions: versions.unwrap_or_default(),
            models: names.into_iter().map(ModelName::from).collect(),
            pool: self.pool,
            weight: 1,
            // With 0 the replica would count as open and never get a request.
            in_flight_max: self.connections_max.unwrap_or(CONNECTIONS_MAX).max(1),
            idle: Duration::from_millis(self.idle_ms),
            continues_chats: false,
            salt_field: None,
            usage_reports: UsageReports::None,
            kv_events_port: self.kv_events_port,
            credential,
            overflow: None,
        })
    }

    fn check_kv_events(&self, source: &Source) -> Result<(), ConfigError> {
        let kind = self.kind.as_ref().filter(|kind| !kind.get_ref().publishes_kv_events());
        let (Some(kind), Some(_)) = (kind, self.kv_events_port) else { return Ok(()) };
        let message = format!(
            "kv_events_port does nothing: servers of kind {} publish no KV events that are read",
            kind.get_ref()
        );
        let remedy = "remove kv_events_port, or set kind = \"vllm\" if the server is one";
        Err(source.fault(kind.span(), message, remedy))
    }

    fn check_models(&self, source: &Source) -> Result<(), ConfigErrors> {
        let Some(models) = &self.models else { return Ok(()) };
        if models.get_ref().is_empty() {
            let remedy = "name the models it serves, e.g. models = [\"llama-3.1-8b\"], or leave models out to \
                          have the replica asked for them";
            return Err(source.fault(models.span(), "the replica serves no model", remedy).into());
        }
        all(models.get_ref().iter().map(|model| match model.get_ref().trim() {
            "" => {
                let remedy = "write the name by which the server knows the model";
                Err(source.fault(model.span(), "a model without a name", remedy))
            }
            _ => Ok(()),
        }))
        .map(drop)
    }

    /// Returns the replica's own weight, else its class's, else 1.
    fn weight(&self, defaults: &CareDefaults, source: &Source) -> Result<u32, ConfigError> {
        let by_class = match &self.class {
            None => None,
            Some(class) => Some(*defaults.classes.get(class.get_ref()).ok_or_else(|| {
                let message = format!("there is no class {:?}", class.get_ref());
                source.fault(class.span(), message, "add it to [classes], e.g. h100 = 4")
            })?),
        };
        Ok(self.weight.or(by_class).unwrap_or(1))
    }
}

/// Returns the name or URL of a discovery's template. Where it is required, the schema says so.
fn no_text() -> Spanned<String> {
    Spanned::new(0..0, String::new())
}

fn default_pool() -> String {
    "default".to_owned()
}

fn default_idle_ms() -> u64 {
    4000
}
