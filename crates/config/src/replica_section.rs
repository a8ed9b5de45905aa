//! `[[replica]]`: one model server.

use http::{HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_replicas::ServerKind;
use spillway_types::{ModelName, ReplicaName};
use spillway_upstream::replica_spec::{GrpcTarget, ReplicaProtocol, ReplicaSpec, TlsSpec};
use spillway_upstream::usage_reports::UsageReports;
use std::sync::Arc;
use std::time::Duration;
use toml::Spanned;

use crate::care_section::CareDefaults;
use crate::error::{ConfigError, ConfigErrors, all};
use crate::health_section::{BucketSection, DeepSection, MetricsSection, ReplicaHealthSection};
use crate::kind_settings::Preset;
use crate::replica::ReplicaConfig;
use crate::source::Source;
use crate::versions::{VersionsSection, lower_versions};

/// Default maximum of connections to a replica: more than any engine works on at once.
const CONNECTIONS_MAX: u32 = 1_024;

/// `[[replica]]`: one model server.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplicaSection {
    /// Unique name, as in metrics and headers.
    #[serde(default = "no_text")]
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// Address: `http://host:port` or `https://host:port`.
    #[serde(default = "no_text")]
    #[schemars(with = "String")]
    pub(crate) url: Spanned<String>,
    /// Address for gRPC, if that is another port. Without it, gRPC goes to `url` if `protocol` is
    /// `http2`, else not to this replica. Credentials and `tls` hold for both.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) grpc_url: Option<Spanned<String>>,
    /// Models that the replica serves; without them, those that it lists itself: at `/v1/models`,
    /// or with the kinds `triton` and `mlserver` in its repository index.
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) models: Option<Spanned<Vec<Spanned<String>>>>,
    /// Versions served of some models; other models are served in every version the replica takes.
    #[serde(default)]
    #[schemars(with = "std::collections::BTreeMap<String, Vec<String>>")]
    pub(crate) versions: VersionsSection,
    /// Pool that routes refer to.
    #[serde(default = "default_pool")]
    pub(crate) pool: String,
    /// Weight against its peers, 1 to 1,000; by default its class's weight, else 1.
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1, max = 1_000))]
    pub(crate) weight: Option<Spanned<u32>>,
    /// Hardware class of the replica, a name in `[classes]` that stands for a weight.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) class: Option<Spanned<String>>,
    /// Software of the server, by which checks and metrics are chosen. Without it, the server is
    /// recognised by its own pages.
    #[serde(default)]
    #[schemars(with = "Option<ServerKind>")]
    pub(crate) kind: Option<Spanned<ServerKind>>,
    /// Settings of the health check that differ from `[health]`.
    #[serde(default)]
    pub(crate) health: ReplicaHealthSection,
    /// Check that runs an inference: one token, or a request with a known answer.
    #[serde(default)]
    #[schemars(with = "Option<DeepSection>")]
    pub(crate) deep: Option<Spanned<DeepSection>>,
    /// Source of the replica's load.
    #[serde(default)]
    pub(crate) metrics: MetricsSection,
    /// Port of the same host at which the engine publishes its KV events, such as 5557 for vLLM: the
    /// index of caches then follows them, instead of assuming what the engine evicts. Nothing is
    /// read without it.
    #[serde(default)]
    pub(crate) kv_events_port: Option<u16>,
    /// URL that answers 200 once the replica's machine is going to be taken away, and 404 before.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) notice_url: Option<Spanned<String>>,
    /// Time limit in ms for the replica's requests to finish after such a notice.
    #[serde(default = "default_notice_ms")]
    pub(crate) notice_ms: u64,
    /// Prompts sent to the replica before its first request, to load weights and fill its cache.
    #[serde(default)]
    pub(crate) warm_up: Vec<String>,
    /// Settings of its bucket, for the policy `token_bucket`.
    #[serde(default)]
    pub(crate) bucket: BucketSection,
    /// True to keep the replica in reserve until its pool needs it, see `[standby]`.
    #[serde(default)]
    pub(crate) standby: bool,
    /// Time of slow start in ms, instead of the one in `[health]`.
    #[serde(default)]
    pub(crate) slow_start_ms: Option<u64>,
    /// Protocol of the replica.
    #[serde(default)]
    pub(crate) protocol: ProtocolSection,
    /// Maximum number of requests at a time from this node, 1,024 by default.
    #[serde(default)]
    pub(crate) connections_max: Option<u32>,
    /// Method of limiting requests: adaptive by default, or fixed with `connections_max` set.
    #[serde(default)]
    pub(crate) concurrency: Option<ConcurrencySection>,
    /// Time in ms after which idle connections are closed. Keep it below the server's own
    /// keep-alive time, which is 5 s for servers on uvicorn.
    #[serde(default = "default_idle_ms")]
    pub(crate) idle_ms: u64,
    /// TLS settings, where the system's CAs or the host's name don't fit.
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

/// TLS towards a replica.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplicaTlsSection {
    /// PEM file with the CA certificates to trust instead of the system's.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) ca: Option<Spanned<String>>,
    /// Name to ask for and to verify, where it is not the host of the URL.
    #[serde(default)]
    pub(crate) server_name: Option<String>,
}

/// A header added to each request to a replica. Exactly one of `value`, `value_env` and
/// `value_file` must be given.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CredentialSection {
    /// Name of the header.
    #[serde(default = "default_credential_header")]
    pub(crate) header: String,
    /// Text in front of the value, e.g. `"Bearer "`.
    #[serde(default)]
    pub(crate) prefix: String,
    /// The value itself; better keep secrets out of this file.
    #[serde(default)]
    pub(crate) value: Option<String>,
    /// Environment variable that holds the value.
    #[serde(default)]
    pub(crate) value_env: Option<String>,
    /// File that holds the value; white space around it is dropped.
    #[serde(default)]
    pub(crate) value_file: Option<String>,
}

impl ReplicaSection {
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
        let spec = errors.keep(self.lower_spec(source));
        let (Some(settings), Some(care), Some(weight), Some(spec)) = (settings, care, weight, spec)
        else {
            return Err(errors);
        };
        // None of the three depends on models.
        let Preset { continues_chats, salt_field, usage_reports, .. } = settings.preset(None, &[]);
        let spec = ReplicaSpec { weight, continues_chats, salt_field, usage_reports, ..spec };
        Ok(ReplicaConfig { spec, care, settings: Arc::new(settings), may_vanish: false })
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
        errors.keep(self.check_name(source));
        errors.keep(self.check_models(source));
        let target = errors.keep(self.target(source));
        let grpc = self.grpc_url.as_ref().map(|url| lower_target(url, source)).transpose();
        let grpc = errors.keep(grpc).flatten();
        let scheme_is_tls = target.as_ref().is_some_and(|(is_tls, ..)| *is_tls);
        let is_any_tls = scheme_is_tls || grpc.as_ref().is_some_and(|(is_tls, ..)| *is_tls);
        if self.tls.is_some() && target.is_some() && !is_any_tls {
            let remedy = "use https:// in the URL, or remove tls";
            errors.add(source.fault(self.url.span(), "tls is set for an http:// URL", remedy));
        }
        let tls = is_any_tls.then(|| lower_tls(self.tls, source)).transpose();
        let tls = errors.keep(tls).flatten();
        let grpc = grpc.map(|(is_tls, host, port)| {
            let tls = tls.clone().filter(|_| is_tls);
            GrpcTarget { host, port, tls }
        });
        let credential = self.credential.map(|c| lower_credential(c, source)).transpose();
        let credential = errors.keep(credential).flatten();
        let models = self.models.map(Spanned::into_inner).unwrap_or_default();
        let names: Vec<String> = models.into_iter().map(Spanned::into_inner).collect();
        let versions = errors.keep(lower_versions(source, self.versions, &names));
        let (_, host, port) = target.unwrap_or_default();
        errors.or(ReplicaSpec {
            name: ReplicaName::from(self.name.get_ref().as_str()),
            host,
            port,
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
        })
    }

    fn check_name(&self, source: &Source) -> Result<(), ConfigError> {
        let name = self.name.get_ref();
        if name.is_empty() && self.name.span() == (0..0) {
            let remedy = "add name = \"...\": letters, digits and hyphens";
            return Err(source.fault(self.url.span(), "the replica has no name", remedy));
        }
        if HeaderValue::from_str(name).is_err() || name.is_empty() {
            let remedy = "use letters, digits and hyphens";
            return Err(source.fault(self.name.span(), "the name can't be used", remedy));
        }
        Ok(())
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

    fn target(&self, source: &Source) -> Result<Target, ConfigError> {
        if self.url.get_ref().is_empty() && self.url.span() == (0..0) {
            let remedy = "add url = \"http://host:port\"";
            return Err(source.fault(self.name.span(), "the replica has no url", remedy));
        }
        lower_target(&self.url, source)
    }

    /// Returns the replica's own weight, else its class's, else 1.
    fn weight(&self, defaults: &CareDefaults, source: &Source) -> Result<u32, ConfigError> {
        let by_class = match &self.class {
            None => None,
            Some(class) => {
                let Some(weight) = defaults.classes.get(class.get_ref()) else {
                    let message = format!("there is no class {:?}", class.get_ref());
                    let remedy = "add it to [classes], e.g. h100 = 4";
                    return Err(source.fault(class.span(), message, remedy));
                };
                Some(weight)
            }
        };
        let Some(weight) = self.weight.as_ref().or(by_class) else { return Ok(1) };
        if !(1..=1000).contains(weight.get_ref()) {
            let remedy = "use a weight from 1 to 1000; to take a replica out, remove or drain it";
            return Err(source.fault(weight.span(), "the weight is out of range", remedy));
        }
        Ok(*weight.get_ref())
    }
}

/// True for TLS, host, and port.
type Target = (bool, String, u16);

/// Reads an address.
///
/// # Errors
/// Returns an error if it is not scheme, host and port alone.
fn lower_target(url: &Spanned<String>, source: &Source) -> Result<Target, ConfigError> {
    let given = url.get_ref();
    let fault = |message: String| {
        let remedy = "write it as http://host:port or https://host:port";
        source.fault(url.span(), message, remedy)
    };
    let has_scheme = given.contains("://");
    let uri: Uri = match given.parse() {
        Ok(uri) if has_scheme => uri,
        Err(error) if has_scheme => return Err(fault(format!("not a URL: {error}"))),
        _ => {
            let remedy = format!("write \"http://{given}\", or https:// if the server has TLS");
            return Err(source.fault(url.span(), "the URL has no scheme", remedy));
        }
    };
    let is_tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        other => {
            return Err(fault(format!("the scheme {:?} is unknown", other.unwrap_or_default())));
        }
    };
    if let Some(path) = uri.path_and_query().filter(|path| path.as_str() != "/") {
        let remedy = format!("leave out {path}: http://host:port is enough");
        let message = "the URL has a path; requests keep their own";
        return Err(source.fault(url.span(), message, remedy));
    }
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    if host.is_empty() {
        return Err(fault("the URL has no host".to_owned()));
    }
    let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    if authority.contains('@') {
        return Err(fault("the URL has a user: credentials have a key of their own".to_owned()));
    }
    // The host in brackets may hold colons; the parser returns no port if the number is out of
    // range.
    let behind_host = authority.rsplit(']').next().unwrap_or_default();
    if behind_host.contains(':') && uri.port_u16().is_none() {
        return Err(fault(format!("the port in {authority:?} is no port")));
    }
    Ok((is_tls, host, uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 })))
}

fn lower_tls(section: Option<ReplicaTlsSection>, source: &Source) -> Result<TlsSpec, ConfigError> {
    let Some(section) = section else { return Ok(TlsSpec { ca_pem: None, server_name: None }) };
    let ca_pem = section.ca.map(|file| read_file(&file, source)).transpose()?;
    Ok(TlsSpec { ca_pem, server_name: section.server_name })
}

fn lower_credential(
    section: Spanned<CredentialSection>,
    source: &Source,
) -> Result<(HeaderName, HeaderValue), ConfigError> {
    let span = section.span();
    let fault = |message: String, remedy: &str| source.fault(span.clone(), message, remedy);
    let section = section.into_inner();
    let value = match (section.value, section.value_env, section.value_file) {
        (Some(value), None, None) => value,
        (None, Some(variable), None) => std::env::var(&variable).map_err(|_| {
            fault(format!("the environment variable {variable} is not set"), "set it")
        })?,
        (None, None, Some(file)) => {
            let path = source.resolve(&file);
            std::fs::read_to_string(&path)
                .map_err(|error| fault(format!("can't read {file}: {error}"), "check the path"))?
                .trim()
                .to_owned()
        }
        _ => {
            let remedy = "give exactly one of value, value_env and value_file";
            return Err(fault("the credential has no value, or several".to_owned(), remedy));
        }
    };
    let name: HeaderName = section.header.parse().map_err(|_| {
        fault(format!("{:?} is not a header name", section.header), "e.g. authorization")
    })?;
    let mut value = HeaderValue::from_str(&format!("{}{value}", section.prefix))
        .map_err(|_| fault("the value can't stand in a header".to_owned(), "check the secret"))?;
    // Keeps it out of debug output and of HTTP/2's compression tables.
    value.set_sensitive(true);
    Ok((name, value))
}

/// Reads a file named in the config.
///
/// # Errors
/// Returns an error if the file can't be read, with the line that names it.
pub(crate) fn read_file(name: &Spanned<String>, source: &Source) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(source.resolve(name.get_ref())).map_err(|error| {
        let message = format!("can't read {}: {error}", name.get_ref());
        source.fault(name.span(), message, "check the path and the file's rights")
    })
}

/// Returns a missing text; the code that needs it reports it.
fn no_text() -> Spanned<String> {
    Spanned::new(0..0, String::new())
}

fn default_pool() -> String {
    "default".to_owned()
}

fn default_notice_ms() -> u64 {
    100_000
}

fn default_idle_ms() -> u64 {
    4000
}

fn default_credential_header() -> String {
    "authorization".to_owned()
}
