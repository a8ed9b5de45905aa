//! Kinds of records that have paths.

use schemars::{Schema, SchemaGenerator};
use serde_json::Value;

use crate::forms::{
    KeyRecord, LimitRecord, ModelRecord, NodeRecord, RegionRecord, ReplicaRecord, RevokedRecord,
    RouteRecord, SettingRecord, SplitRecord, TenantRecord,
};

/// Column of a table of records: its heading, and the JSON pointer of its value in an item.
pub type ResourceColumn = (&'static str, &'static str);

/// Field of a record that clients may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceField {
    /// Name of the field.
    pub name: String,
    /// Meaning of the field, a sentence or more.
    pub about: String,
    /// Form of its value.
    pub form: FieldForm,
}

/// Form of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldForm {
    /// Text; the empty one stands for no value.
    Text,
    /// Text, or null for no value.
    OptionalText,
    /// List of texts.
    List,
    /// Object.
    Map,
    /// Number, true or false, a word out of some, or a list of objects.
    Other,
}

/// What is declared of a kind of record.
struct Declared {
    about: &'static str,
    name: &'static str,
    singular: &'static str,
    parameters: &'static [&'static str],
    columns: &'static [ResourceColumn],
    /// Schema of the records that clients may write; None if they may write none.
    schema: Option<fn(&mut SchemaGenerator) -> Schema>,
}

/// Declares kinds of records. Each has a description, the name of all, the name of one, the variable
/// parts of its path, the form of the records that clients may write, and the columns of a table.
macro_rules! resources {
    ($(
        #[doc = $about:literal]
        $kind:ident: $name:literal / $singular:literal, $parameters:tt $(, $record:ty)? => {
            $($heading:literal: $pointer:literal,)*
        }
    )*) => {
        /// Kind of record, in the order in which records of several kinds are written: those that
        /// others refer to come first.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Resource {
            $(#[doc = $about] $kind,)*
        }

        impl Resource {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            const fn declared(self) -> Declared {
                match self {
                    $(Self::$kind => Declared {
                        about: $about,
                        name: $name,
                        singular: $singular,
                        parameters: &$parameters,
                        columns: &[$(($heading, $pointer),)*],
                        schema: resources!(@schema $($record)?),
                    },)*
                }
            }
        }
    };
    (@schema) => { None };
    (@schema $record:ty) => { Some(SchemaGenerator::subschema_for::<$record>) };
}

resources! {
    /// Settings of the whole cluster.
    Settings: "settings" / "setting", ["setting"], SettingRecord => {
        "setting": "/key",
        "value": "/record/value",
        "default": "/info/default",
        "values": "/info/values",
    }
    /// Regions, and operators' orders about them.
    // The list shows what a node knows of them.
    Regions: "regions" / "region", ["region"], RegionRecord => {}
    /// Tenants: residency, budgets and cache isolation.
    Tenants: "tenants" / "tenant", ["tenant"], TenantRecord => {
        "tenant": "/key",
        "title": "/record/title",
        "suspended": "/record/is_suspended",
        "isolated": "/record/isolate_prompts",
        "per day": "/record/budget_per_day",
        "per month": "/record/budget_per_month",
        "regions": "/record/regions",
        "countries": "/record/countries",
        "version": "/version",
    }
    /// Permissions of API keys.
    Keys: "keys" / "key", ["key"], KeyRecord => {
        "key": "/key",
        "role": "/record/role",
        "tenant": "/record/tenant",
        "models": "/record/models",
        "regions": "/record/regions",
        "priority": "/record/priority",
        "ends (UTC)": "/record/expires_ms",
        "revoked": "/info/is_revoked",
        "version": "/version",
    }
    /// Aliases, fallbacks and prices of models.
    Models: "models" / "model", ["model"], ModelRecord => {
        "model": "/key",
        "alias of": "/record/alias_of",
        "fallbacks": "/record/fallbacks",
        "prompt/M": "/record/prompt_per_million",
        "cached/M": "/record/cached_per_million",
        "completion/M": "/record/completion_per_million",
        "version": "/version",
    }
    /// Splits of a model's requests among versions.
    Splits: "splits" / "split", ["split"], SplitRecord => {
        "split": "/key",
        "arms": "/record/arms",
        "by": "/record/by",
        "cookie": "/record/sticky_cookie",
        "version": "/version",
    }
    /// Routes: which requests get which policy, pool and regions.
    Routes: "routes" / "route", ["route"], RouteRecord => {
        "route": "/key",
        "models": "/record/models",
        "path": "/record/path_prefix",
        "pool": "/record/pool",
        "policy": "/record/policy",
        "regions": "/record/regions",
        "countries": "/record/countries",
        "version": "/version",
    }
    /// Rate limits, named `global`, `tenant:NAME`, `model:NAME` or `key:ID`.
    Limits: "limits" / "limit", ["scope"], LimitRecord => {
        "limit": "/key",
        "requests/s": "/record/requests_per_s",
        "requests/min": "/record/requests_per_min",
        "tokens/min": "/record/tokens_per_min",
        "at a time": "/record/concurrency",
        "from": "/from",
        "version": "/version",
    }
    /// Nodes of the cluster.
    Nodes: "nodes" / "node", ["node"], NodeRecord => {
        "node": "/key",
        "region": "/info/region",
        "address": "/info/address",
        "votes": "/record/role",
        "may order": "/info/operators",
        "wire version": "/info/wire_newest",
        "id": "/info/id",
    }
    /// Replicas, named `REGION/REPLICA`, as the cluster knows them.
    Replicas: "replicas" / "replica", ["region", "replica"], ReplicaRecord => {
        "replica": "/key",
        "state": "/info/state",
        "health": "/info/health/belief",
        "weight": "/record/weight",
        "operator's": "/info/operator_weight",
        "pool": "/record/pool",
        "models": "/record/models",
        "url": "/record/url",
    }
    /// Tokens with which nodes join.
    JoinTokens: "join-tokens" / "join-token", ["token"] => {
        "token": "/key",
        "region": "/record/region",
        "uses left": "/record/uses_left",
        "may order": "/record/operators",
        "ends (UTC)": "/record/expires_ms",
    }
    /// Removed nodes that have not joined again.
    RemovedNodes: "removed-nodes" / "removed-node", ["node"] => {
        "node": "/key",
        "id": "/info/id",
        "region": "/info/region",
        "certificate": "/info/fingerprint",
        "removed at": "/version",
    }
    /// Certificates that no node accepts any more.
    RevokedCertificates: "revoked-certificates" / "revoked-certificate", ["serial"], RevokedRecord => {
        "serial": "/key",
        "reason": "/record/reason",
        "revoked at": "/version",
    }
}

impl Resource {
    /// Returns the name in paths, e.g. `tenants`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.declared().name
    }

    /// Returns the name of one record, e.g. `tenant`.
    #[must_use]
    pub fn singular(self) -> &'static str {
        self.declared().singular
    }

    /// Returns what the records are.
    #[must_use]
    pub fn about(self) -> &'static str {
        self.declared().about.trim()
    }

    /// Returns the columns of a table of the records.
    #[must_use]
    pub fn columns(self) -> &'static [ResourceColumn] {
        self.declared().columns
    }

    /// Returns the names of the variable parts of the path of one record. The parts of a record's name
    /// stand between slashes if there are several.
    #[must_use]
    pub fn parameters(self) -> &'static [&'static str] {
        self.declared().parameters
    }

    /// Returns true if a record of this kind can be written as a whole.
    #[must_use]
    pub fn is_writable(self) -> bool {
        self.declared().schema.is_some()
    }

    /// Returns the fields of the records that clients may write, in the order of their names.
    #[must_use]
    pub fn fields(self) -> Vec<ResourceField> {
        let mut generator = SchemaGenerator::default();
        let Some(schema) = self.schema(&mut generator) else { return Vec::new() };
        let name = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.rsplit('/').next());
        let whole = name.and_then(|name| generator.definitions().get(name)).cloned();
        let properties = whole.and_then(|whole| whole["properties"].as_object().cloned());
        let field = |(name, schema): (String, Value)| ResourceField {
            about: schema["description"].as_str().unwrap_or_default().replace('\n', " "),
            form: FieldForm::of(&schema),
            name,
        };
        properties.unwrap_or_default().into_iter().map(field).collect()
    }

    /// Returns the schema of the records that clients may write; None if they may write none.
    pub(crate) fn schema(self, generator: &mut SchemaGenerator) -> Option<Schema> {
        self.declared().schema.map(|schema| schema(generator))
    }

    /// Returns the path of one record, with `{names}` for the variable parts.
    pub(crate) fn item_path(self) -> String {
        let parts = self.parameters().iter().map(|parameter| format!("/{{{parameter}}}"));
        format!("/v1/{}{}", self.name(), parts.collect::<String>())
    }
}

impl FieldForm {
    /// Returns the form of values that a schema describes.
    fn of(schema: &Value) -> Self {
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        match (&types[..], schema["items"]["type"].as_str()) {
            (["string"], _) => Self::Text,
            (["string", "null"], _) => Self::OptionalText,
            (["array"], Some("string")) => Self::List,
            (["object"], _) => Self::Map,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_that_can_be_written_explains_its_fields() {
        for resource in Resource::ALL {
            let fields = resource.fields();
            assert_eq!(!fields.is_empty(), resource.is_writable(), "{resource:?}");
            for field in fields {
                assert!(field.about.ends_with('.'), "{resource:?}: {field:?}");
            }
        }
    }

    #[test]
    fn fields_have_the_forms_of_their_schemas() {
        let form = |resource: Resource, name: &str| {
            resource.fields().iter().find(|field| field.name == name).map(|field| field.form)
        };
        assert_eq!(form(Resource::Tenants, "title"), Some(FieldForm::Text));
        assert_eq!(form(Resource::Tenants, "countries"), Some(FieldForm::List));
        assert_eq!(form(Resource::Tenants, "budget_per_day"), Some(FieldForm::Other));
        assert_eq!(form(Resource::Models, "alias_of"), Some(FieldForm::OptionalText));
        assert_eq!(form(Resource::Limits, "floors_percent"), Some(FieldForm::Map));
        assert_eq!(form(Resource::Splits, "arms"), Some(FieldForm::Other));
        assert_eq!(form(Resource::Routes, "settings"), None);
    }

    #[test]
    fn paths_have_a_part_for_each_parameter() {
        assert_eq!(Resource::Replicas.item_path(), "/v1/replicas/{region}/{replica}");
        assert_eq!(Resource::Limits.item_path(), "/v1/limits/{scope}");
    }
}
