//! `[[discovery]]`: sources of replicas that come and go on their own.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use spillway_replicas::discovery::DnsQuestion;
use spillway_types::ModelName;
use toml::Spanned;

use crate::access_section::check_name;
use crate::care_section::CareDefaults;
use crate::error::{ConfigError, ConfigErrors};
use crate::recovery::{Document, Recovered, read};
use crate::replica::ReplicaConfig;
use crate::replica_list::lower_replicas;
use crate::replica_section::ReplicaSection;
use crate::replica_url::check_host;
use crate::schema_transforms::Required;
use crate::source::Source;

/// A source of replicas. Exactly one of `dns`, `srv` and `file` must be given.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiscoverySection {
    /// Unique name; the names of replicas found by DNS begin with it.
    #[schemars(with = "String")]
    pub(crate) name: Spanned<String>,
    /// Host and port, such as `workers.internal:8000`; each address of the host is a replica.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) dns: Option<Spanned<String>>,
    /// Name with SRV records: each target and port is a replica.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) srv: Option<Spanned<String>>,
    /// TOML file with `[[replica]]` tables, read again whenever it changes.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) file: Option<Spanned<String>>,
    /// Name server to query, instead of the system's.
    #[serde(default)]
    pub(crate) resolver: Option<SocketAddr>,
    /// Settings of each replica found by DNS, needed with `dns` and `srv`: as in `[[replica]]`, but
    /// without `name`, and `url` is only `http://` (the default) or `https://`.
    #[serde(default)]
    pub(crate) replica: Option<ReplicaSection>,
}

/// Time that an empty answer or file must last before the replicas found earlier are dropped.
const EMPTY_GRACE: Duration = Duration::from_secs(30);

/// A source of replicas, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoveryConfig {
    /// Name of the source.
    pub name: String,
    /// Place in which replicas are found.
    pub source: DiscoveryOrigin,
    /// Time that an empty answer or file must last before it counts.
    pub empty_grace: Duration,
    /// Defaults for replicas that set nothing else.
    pub defaults: CareDefaults,
}

/// Place in which a discovery finds replicas.
#[derive(Clone, Debug, PartialEq)]
pub enum DiscoveryOrigin {
    /// Names in DNS; all replicas have the same settings.
    Dns {
        /// Name to ask for.
        question: DnsQuestion,
        /// Name server to ask; `None` for the system's.
        resolver: Option<SocketAddr>,
        /// Settings of each replica but its name and address.
        template: Box<ReplicaConfig>,
    },
    /// A file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Replicas in the file when the config was read.
        replicas: Vec<ReplicaConfig>,
    },
}

/// Content of a file that lists replicas.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReplicaFile {
    #[serde(default)]
    #[schemars(transform = Required(ReplicaSection::REQUIRED))]
    replica: Vec<ReplicaSection>,
}

impl Document for ReplicaFile {
    fn schema() -> &'static Value {
        static SCHEMA: LazyLock<Value> =
            LazyLock::new(|| schemars::schema_for!(ReplicaFile).to_value());
        &SCHEMA
    }
}

impl fmt::Display for DiscoveryOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns { question: DnsQuestion::Address { name, port }, .. } => {
                write!(f, "dns {name}:{port}")
            }
            Self::Dns { question: DnsQuestion::Service { name }, .. } => write!(f, "srv {name}"),
            Self::File { path, .. } => write!(f, "file {}", path.display()),
        }
    }
}

impl DiscoveryConfig {
    /// Returns true if both find replicas in the same way. The settings of the replicas may differ, and
    /// so may those that a file listed when the config was read.
    #[must_use]
    pub fn asks_the_same(&self, other: &Self) -> bool {
        let is_same_source = match (&self.source, &other.source) {
            (
                DiscoveryOrigin::Dns { question, resolver, .. },
                DiscoveryOrigin::Dns { question: other_question, resolver: other_resolver, .. },
            ) => question == other_question && resolver == other_resolver,
            (
                DiscoveryOrigin::File { path, .. },
                DiscoveryOrigin::File { path: other_path, .. },
            ) => path == other_path,
            _ => false,
        };
        is_same_source && self.name == other.name && self.empty_grace == other.empty_grace
    }

    /// Returns the models that its replicas serve, as far as the config names them.
    pub fn models(&self) -> Vec<ModelName> {
        match &self.source {
            DiscoveryOrigin::Dns { template, .. } => template.spec.models.clone(),
            DiscoveryOrigin::File { replicas, .. } => {
                replicas.iter().flat_map(|replica| replica.spec.models.clone()).collect()
            }
        }
    }

    /// Returns true if its replicas are asked which models they serve.
    pub fn needs_models(&self) -> bool {
        match &self.source {
            DiscoveryOrigin::Dns { template, .. } => template.settings.needs_models,
            DiscoveryOrigin::File { replicas, .. } => {
                replicas.iter().any(|replica| replica.settings.needs_models)
            }
        }
    }

    /// Returns the models that count as served even if no replica is found. A file that lists none
    /// any more was changed on purpose, while a name server may just be out of reach.
    pub fn models_expected(&self) -> Vec<ModelName> {
        match &self.source {
            DiscoveryOrigin::Dns { .. } => self.models(),
            DiscoveryOrigin::File { .. } => Vec::new(),
        }
    }

    /// Returns the pools of its replicas.
    pub fn pools(&self) -> Vec<&str> {
        match &self.source {
            DiscoveryOrigin::Dns { template, .. } => vec![template.spec.pool.as_str()],
            DiscoveryOrigin::File { replicas, .. } => {
                replicas.iter().map(|replica| replica.spec.pool.as_str()).collect()
            }
        }
    }
}

/// Checks the sources.
///
/// # Errors
/// Returns all faults, with their lines.
pub(crate) fn lower_discoveries(
    source: &Source,
    sections: Vec<DiscoverySection>,
    defaults: &CareDefaults,
) -> Result<Vec<DiscoveryConfig>, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let mut places = BTreeMap::new();
    let mut lowered = Vec::new();
    for section in sections {
        let (name, at) = (section.name.get_ref().clone(), section.name.span());
        if let Some(earlier) = places.insert(name.clone(), at.clone()) {
            let message = format!("a second discovery is called {name:?}");
            errors.add(source.collision(at, earlier, message, "give each its own name"));
        }
        let empty_grace = EMPTY_GRACE;
        if let Some(found) = errors.keep(lower_source(source, section, defaults)) {
            let defaults = defaults.clone();
            lowered.push(DiscoveryConfig { name, source: found, empty_grace, defaults });
        }
    }
    errors.or(lowered)
}

fn lower_source(
    source: &Source,
    section: DiscoverySection,
    defaults: &CareDefaults,
) -> Result<DiscoveryOrigin, ConfigErrors> {
    check_name(source, &section.name, "discovery")?;
    let span = section.name.span();
    let resolver = section.resolver;
    let question = match (section.dns, section.srv, section.file) {
        (Some(dns), None, None) => dns_query(source, &dns)?,
        (None, Some(srv), None) => {
            check_host(source, &srv, srv.get_ref())?;
            DnsQuestion::Service { name: srv.into_inner() }
        }
        (None, None, Some(file)) => return lower_file(source, &file, defaults),
        _ => {
            let remedy = "give exactly one of dns, srv and file";
            let message = "the discovery has no source, or several";
            return Err(source.fault(span, message, remedy).into());
        }
    };
    let Some(template) = section.replica else {
        let remedy = "add [discovery.replica] with models, and url = \"http://\" or \"https://\"";
        let message = "nothing says what the replicas are like";
        return Err(source.fault(span, message, remedy).into());
    };
    // Checked now, although no replica is found yet: later the operator would not see the error.
    let template = template.lower_template(&section.name, defaults, source)?;
    Ok(DiscoveryOrigin::Dns { question, resolver, template: Box::new(template) })
}

fn dns_query(source: &Source, dns: &Spanned<String>) -> Result<DnsQuestion, ConfigError> {
    let parsed = dns.get_ref().rsplit_once(':').and_then(|(host, port)| {
        let port = port.parse().ok()?;
        (!host.is_empty()).then(|| DnsQuestion::Address { name: host.to_owned(), port })
    });
    let parsed = parsed.ok_or_else(|| {
        let message = format!("{:?} is no host and port", dns.get_ref());
        source.fault(dns.span(), message, "write it as workers.internal:8000")
    })?;
    check_host(source, dns, parsed.name().trim_matches(['[', ']']))?;
    Ok(parsed)
}

fn lower_file(
    source: &Source,
    file: &Spanned<String>,
    defaults: &CareDefaults,
) -> Result<DiscoveryOrigin, ConfigErrors> {
    let path = source.resolve(file.get_ref());
    let text = std::fs::read_to_string(&path).map_err(|error| {
        let message = format!("can't read {}: {error}", file.get_ref());
        source.fault(file.span(), message, "check the path; an empty file is fine")
    })?;
    let replicas = read_replicas(&text, &path, defaults)?;
    if let Some(one) = replicas.iter().find(|replica| replica.overflow.is_some()) {
        let message = format!("{} is an overflow replica", one.spec.name);
        let remedy = "move it to a [[replica]] of this file, which has its price and caps";
        return Err(source.fault(file.span(), message, remedy).into());
    }
    Ok(DiscoveryOrigin::File { path, replicas })
}

/// Reads a file that lists replicas.
///
/// # Errors
/// Returns all faults, with their lines.
pub fn read_replicas(
    text: &str,
    path: &Path,
    defaults: &CareDefaults,
) -> Result<Vec<ReplicaConfig>, ConfigErrors> {
    let source = Source::new(path, text);
    let Recovered { content, mut errors, lost } = read::<ReplicaFile>(&source);
    let sections = content.map(|(file, _)| file.replica).unwrap_or_default();
    match lower_replicas(&source, sections, defaults) {
        Ok(replicas) => errors.or(replicas),
        Err(mut more) => {
            more.retain(|error| !lost.explains(error));
            errors.add(more);
            Err(errors)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_replicas_requires_what_a_config_does() {
        for (lines, key) in [("url = \"http://h:1\"", "name"), ("name = \"a\"", "url")] {
            let text = format!("[[replica]]\n{lines}\n");
            let errors = read_replicas(&text, Path::new("r.toml"), &CareDefaults::default());
            let told = errors.expect_err(key).to_string();
            let message = format!("[[replica]] has no `{key}`");
            assert!(told.contains("r.toml:1:1") && told.contains(&message), "{told}");
            assert!(told.contains(&format!("add {key} = ")), "{told}");
        }
    }
}
