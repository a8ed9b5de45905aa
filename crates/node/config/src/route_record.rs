//! Routes of the cluster: records whose settings are those of a `[[route]]`, read by the same code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use spillway_types::RouteName;
use spillway_upstream::Timeouts;
use spillway_view::{QueueSpec, RouteSpec};

use crate::error::{ConfigError, ConfigErrors};
use crate::no_effect;
use crate::recovery::{Document, Recovered, read};
use crate::route_section::RouteSection;
use crate::source::Source;

/// Settings that a record has as fields of its own, which cluster and config are merged by.
const OWN: [&str; 7] = ["name", "path_prefix", "models", "pool", "policy", "regions", "countries"];

/// The routes of a config file, unchanged.
#[derive(Clone, Debug, Default)]
pub struct RoutesSaid(BTreeMap<RouteName, RouteSection>);

/// A file that has routes alone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RoutesFile {
    route: Vec<RouteSection>,
}

impl Document for RoutesFile {
    fn schema() -> &'static Value {
        static SCHEMA: LazyLock<Value> =
            LazyLock::new(|| schemars::schema_for!(RoutesFile).to_value());
        &SCHEMA
    }
}

impl RoutesSaid {
    pub(crate) fn new(routes: &[RouteSection]) -> Self {
        let said = routes.iter().map(|route| (route.name.get_ref().as_str().into(), route.clone()));
        Self(said.collect())
    }

    /// Returns the route `name` of the cluster with `settings`. Settings that are not among them
    /// come from the config's route of that name. Models, pool, policy and residency are left to
    /// the caller.
    ///
    /// # Errors
    /// Returns an error if the settings can't be used.
    pub fn with_settings(
        &self,
        name: &RouteName,
        path_prefix: Option<&str>,
        settings: &str,
        base: (Timeouts, QueueSpec),
    ) -> Result<RouteSpec, ConfigErrors> {
        let mut record: Map<String, Value> = serde_json::from_str(settings).unwrap_or_default();
        record.retain(|key, _| !OWN.contains(&key.as_str()));
        record.extend(path_prefix.map(|prefix| ("path_prefix".to_owned(), prefix.into())));
        let source = source(name.as_str(), &record)?;
        let section = section(&source)?;
        let named = record.keys().map(String::as_str).chain(["path_prefix"]).collect();
        let section = match self.0.get(name) {
            Some(known) => known.clone().with(section, &named),
            None => section,
        };
        section.lower(&source, base)
    }
}

/// Checks a route of the cluster with all its fields, by the names of the file.
///
/// # Errors
/// Returns cause and remedy of the first fault.
pub fn check_route(name: &str, record: &Map<String, Value>) -> Result<(), (String, String)> {
    let told = |errors: ConfigErrors| {
        let first = errors.iter().next();
        first.map(|error| (error.message.clone(), error.remedy.clone())).unwrap_or_default()
    };
    let is_said = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    let record = record.iter().filter(|(_, value)| is_said(value));
    let record = record.map(|(key, value)| (key.clone(), value.clone())).collect();
    let check = || {
        let source = source(name, &record)?;
        no_effect::check(&source)?;
        let section = section(&source)?;
        // Another node's file may set the fields to hash.
        if record.contains_key("hash_by") {
            section.check_hash_by(&source)?;
        }
        section.lower(&source, (Timeouts::default(), QueueSpec::default())).map(drop)
    };
    check().map_err(told)
}

/// Returns the settings of each route of a file, by the names of the file; for the cluster's records.
#[must_use]
pub fn said_routes(text: &str) -> BTreeMap<String, Map<String, Value>> {
    let file: toml::Table = toml::from_str(text).unwrap_or_default();
    let routes = file.get("route").and_then(toml::Value::as_array).cloned().unwrap_or_default();
    let named = routes.into_iter().filter_map(|route| {
        let Value::Object(mut fields) = serde_json::to_value(route).ok()? else { return None };
        let name = fields.remove("name")?.as_str()?.to_owned();
        Some((name, fields))
    });
    named.collect()
}

/// Writes a route down as a file has it, so that it is read and refused as there.
fn source(name: &str, record: &Map<String, Value>) -> Result<Source, ConfigErrors> {
    let path = format!("route {name}");
    let whole = |message: String| {
        let remedy = "use names and values as in [[route]] of a config file";
        ConfigErrors::from(ConfigError::whole_file(Path::new(&path), message, remedy))
    };
    let mut table = toml::Table::new();
    table.insert("name".to_owned(), name.into());
    for (key, value) in record {
        let value = toml::Value::try_from(value);
        let value =
            value.map_err(|error| whole(format!("{key} can't have that value: {error}")))?;
        table.insert(key.clone(), value);
    }
    let mut file = toml::Table::new();
    file.insert("route".to_owned(), vec![toml::Value::Table(table)].into());
    let text = toml::to_string(&file).map_err(|error| whole(error.to_string()))?;
    Ok(Source::new(Path::new(&path), &text))
}

fn section(source: &Source) -> Result<RouteSection, ConfigErrors> {
    let Recovered { content, errors, .. } = read::<RoutesFile>(source);
    let section = content.and_then(|(mut file, _): (RoutesFile, _)| file.route.pop());
    match section {
        Some(section) if errors.is_empty() => Ok(section),
        _ => Err(errors),
    }
}

/// Declares how the settings of two sections are merged. Destructures the section as a whole, so that
/// a setting that is forgotten here does not compile.
macro_rules! merged {
    ($($field:ident),* $(,)?) => {
        impl RouteSection {
            /// Returns this section with the named settings of another one.
            fn with(mut self, other: Self, named: &BTreeSet<&str>) -> Self {
                let Self { name: _, $($field),* } = other;
                $(if named.contains(stringify!($field)) {
                    self.$field = $field;
                })*
                self
            }
        }
    };
}

merged! {
    path_prefix, replace_prefix, protocol, models, model, pool, policy, hash_by, session,
    predicted_latency, inject_usage, forward_authorization, allow_engine_fields, queue_max, queue_ms,
    start_wait_ms, slo_ms, continue_streams, hedge, regions, countries, overflow, timeouts,
}

#[cfg(test)]
#[path = "route_record_test.rs"]
mod route_record_test;
