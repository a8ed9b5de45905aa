//! `[[replica]]`: one model server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_protocol::is_confined;
use spillway_replicas::ServerKind;
use spillway_types::{BasePath, ModelName, ReplicaName};
use spillway_upstream::{ClientIdentity, GrpcTarget, ReplicaProtocol, ReplicaTlsError, TlsSpec};
use spillway_view::{ReplicaSpec, UsageReports};
use toml::Spanned;

use crate::access_section::check_name;
use crate::care_section::CareDefaults;
use crate::error::{ConfigError, ConfigErrors, all};
use crate::health_section::{BucketSection, DeepSection, MetricsSection, ReplicaHealthSection};
use crate::kind_settings::Preset;
use crate::models_section::{ModelsForm, ModelsSection};
use crate::overflow_section::{OverflowSection, RoleSection};
use crate::replica::ReplicaConfig;
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

/// TLS towards a replica.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplicaTlsSection {
    /// PEM file with the CA certificates to trust instead of the system's.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) ca: Option<Spanned<String>>,
    /// Server name for SNI and verification, if it is not the host of the URL.
    #[serde(default)]
    pub(crate) server_name: Option<String>,
    /// PEM file with the client certificate for the replica, and its intermediates. Needs `key`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) certificate: Option<Spanned<String>>,
    /// PEM file with the private key of `certificate`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) key: Option<Spanned<String>>,
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
    /// Value; better keep secrets out of this file.
    #[serde(default)]
    pub(crate) value: Option<String>,
    /// Environment variable that holds the value.
    #[serde(default)]
    pub(crate) value_env: Option<String>,
    /// File that holds the value; surrounding white space is removed. The file is read again when
    /// it changes.
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
        errors.keep(self.check_name(source));
        errors.keep(self.check_models(source));
        errors.keep(self.check_kv_events(source));
        let target = errors.keep(self.target(source));
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

    fn check_name(&self, source: &Source) -> Result<(), ConfigError> {
        let name = self.name.get_ref();
        if name.is_empty() && self.name.span() == (0..0) {
            let remedy = "add name = \"...\": letters, digits and hyphens";
            return Err(source.fault(self.url.span(), "the replica has no name", remedy));
        }
        check_name(source, &self.name, "replica")
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
            Some(class) => Some(*defaults.classes.get(class.get_ref()).ok_or_else(|| {
                let message = format!("there is no class {:?}", class.get_ref());
                source.fault(class.span(), message, "add it to [classes], e.g. h100 = 4")
            })?),
        };
        Ok(self.weight.or(by_class).unwrap_or(1))
    }
}

/// Parts of a replica's URL.
#[derive(Debug, Default)]
struct Target {
    is_tls: bool,
    host: String,
    port: u16,
    base: Option<BasePath>,
}

/// Reads the address for gRPC, whose paths name services.
///
/// # Errors
/// Returns an error if it is not scheme, host and port alone.
fn lower_grpc_target(url: &Spanned<String>, source: &Source) -> Result<Target, ConfigError> {
    let target = lower_target(url, source)?;
    let Some(base) = &target.base else { return Ok(target) };
    let remedy = format!("leave out {}: http://host:port is enough", base.as_str());
    let message = "the URL has a path; gRPC calls keep their own";
    Err(source.fault(url.span(), message, remedy))
}

/// Returns a URL or address whose IPv6 address lacks its brackets with them; None for others.
pub(crate) fn bracketed(given: &str) -> Option<String> {
    let (scheme, rest) = match given.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), given),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = authority.rsplit_once(':')?;
    let is_bare = port.parse::<u16>().is_ok() && host.parse::<std::net::Ipv6Addr>().is_ok();
    is_bare.then(|| format!("{scheme}[{host}]:{port}{path}"))
}

/// Reads a base URL.
///
/// # Errors
/// Returns an error if it has other parts than scheme, host, port and path.
fn lower_target(url: &Spanned<String>, source: &Source) -> Result<Target, ConfigError> {
    let given = url.get_ref();
    let fault = |message: String| {
        let remedy = "write it as http://host:port or https://host:port/base/path";
        source.fault(url.span(), message, remedy)
    };
    let has_scheme = given.contains("://");
    let uri: Uri = match given.parse() {
        Ok(uri) if has_scheme => uri,
        Err(error) if has_scheme => {
            let message = format!("not a URL: {error}");
            return Err(match bracketed(given) {
                Some(meant) => source.fault(
                    url.span(),
                    message,
                    format!(
                        "write {meant:?}: an IPv6 address \
                        stands in brackets"
                    ),
                ),
                None => fault(message),
            });
        }
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
    if let Some(query) = uri.query() {
        let remedy = format!("leave out ?{query}: each request has its own");
        return Err(source.fault(url.span(), "the URL has a query", remedy));
    }
    if !is_confined(uri.path()) {
        let message = "the path of the URL has dot segments, doubled slashes or escapes";
        return Err(source.fault(
            url.span(),
            message,
            "write it as the server knows it, e.g. /openai/v1",
        ));
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
    check_host(source, url, &host)?;
    if host.parse().is_ok_and(spillway_types::is_link_local) {
        let message = "the address is link-local or a cloud's metadata service";
        return Err(source.fault(url.span(), message, "name the machine of the model server"));
    }
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    Ok(Target { is_tls, host, port, base: BasePath::new(uri.path()) })
}

/// Checks that a host can be looked up. `given` is the setting that names it.
///
/// # Errors
/// Returns an error for a name that no name server can be asked for.
pub(crate) fn check_host(
    source: &Source,
    given: &Spanned<String>,
    host: &str,
) -> Result<(), ConfigError> {
    spillway_resolver::check_name(host).map_err(|error| {
        let remedy = "write the host's name or address: labels of at most 63 letters, digits, hyphens and \
                      underscores, with single dots between them";
        source.fault(given.span(), error.to_string(), remedy)
    })
}

fn lower_tls(section: Option<ReplicaTlsSection>, source: &Source) -> Result<TlsSpec, ConfigError> {
    let Some(section) = section else {
        return Ok(TlsSpec { ca_pem: None, server_name: None, identity: None });
    };
    let identity = match (&section.certificate, &section.key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(lower_identity(certificate, key, source)?),
        (Some(certificate), None) => {
            let message = "the client certificate has no key";
            return Err(source.fault(certificate.span(), message, "add key = \"client.key.pem\""));
        }
        (None, Some(key)) => {
            let remedy = "add certificate = \"client.pem\"";
            return Err(source.fault(key.span(), "the key has no client certificate", remedy));
        }
    };
    let ca_pem = section.ca.map(|file| read_file(&file, source)).transpose()?;
    Ok(TlsSpec { ca_pem, server_name: section.server_name, identity })
}

/// Reads the certificate that is shown to a replica, and its key.
///
/// # Errors
/// Returns an error if a file can't be read, or if both do not belong together.
fn lower_identity(
    certificate: &Spanned<String>,
    key: &Spanned<String>,
    source: &Source,
) -> Result<ClientIdentity, ConfigError> {
    let identity = ClientIdentity {
        certificate_pem: read_file(certificate, source)?,
        key_pem: read_file(key, source)?,
    };
    identity.check().map_err(|error| {
        let (at, remedy) = match error {
            ReplicaTlsError::Key(_) => (key, "give a PEM file with one private key"),
            ReplicaTlsError::Identity(_) => {
                (key, "give the key that the certificate was made with")
            }
            _ => (certificate, "give a PEM file with the certificate first"),
        };
        source.fault(at.span(), error.to_string(), remedy)
    })?;
    Ok(identity)
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
            let read = source.read(&file);
            read.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other))
                .map_err(|error| fault(format!("can't read {file}: {error}"), "check the path"))?
                .trim()
                .to_owned()
        }
        _ => {
            let remedy = "give exactly one of value, value_env and value_file";
            return Err(fault("the credential has no value, or several".to_owned(), remedy));
        }
    };
    // A file that is being replaced may be empty for a moment.
    if value.is_empty() {
        return Err(fault("the credential is empty".to_owned(), "give the API's key"));
    }
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
    source.read(name.get_ref()).map_err(|error| {
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

fn default_idle_ms() -> u64 {
    4000
}

fn default_credential_header() -> String {
    "authorization".to_owned()
}
