//! Features of the binary's config, read from its own schema.

use std::{collections::BTreeSet, path::Path, process::Command};

use anyhow::Context as _;
use serde_json::Value;

/// Settings that a generated config uses if they exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    /// Values of `route.policy`.
    pub(crate) policies: Vec<String>,
    /// Settings of `[health]`.
    pub(crate) health: BTreeSet<String>,
    /// Settings of `[[replica]]`.
    pub(crate) replica: BTreeSet<String>,
}

impl Features {
    /// Reads the schema from the binary.
    ///
    /// # Errors
    /// Returns an error if the binary cannot be run, or its schema has no policies.
    pub(crate) fn of(spillway: &Path) -> anyhow::Result<Self> {
        let output = Command::new(spillway)
            .args(["config", "schema"])
            .output()
            .with_context(|| format!("run {}", spillway.display()))?;
        anyhow::ensure!(output.status.success(), "{} config schema failed", spillway.display());
        Self::parse(&serde_json::from_slice(&output.stdout).context("config schema")?)
    }

    fn parse(schema: &Value) -> anyhow::Result<Self> {
        let section = |name: &str| section(schema, &schema["properties"][name]);
        let policy = &section("route")["properties"]["policy"];
        let mut policies = Vec::new();
        collect_values(schema, policy, &mut policies);
        anyhow::ensure!(!policies.is_empty(), "the config schema lists no policies");
        Ok(Self {
            policies,
            health: keys(&section("health")["properties"]),
            replica: keys(&section("replica")["properties"]),
        })
    }
}

/// Finds the object that describes a section, through references, `anyOf` with null, and lists.
fn section<'a>(schema: &'a Value, node: &'a Value) -> &'a Value {
    if let Some(target) = reference(schema, node) {
        return section(schema, target);
    }
    if node["items"].is_object() {
        return section(schema, &node["items"]);
    }
    let choices = choices(node);
    let found = choices.map(|choice| section(schema, choice)).find(|s| s["properties"].is_object());
    found.unwrap_or(node)
}

/// Collects the strings that a value may be, in the schema's order.
fn collect_values(schema: &Value, node: &Value, values: &mut Vec<String>) {
    if let Some(target) = reference(schema, node) {
        collect_values(schema, target, values);
    }
    let listed = node["enum"].as_array().into_iter().flatten();
    let single = node.get("const");
    values.extend(listed.chain(single).filter_map(Value::as_str).map(str::to_owned));
    for choice in choices(node) {
        collect_values(schema, choice, values);
    }
}

fn reference<'a>(schema: &'a Value, node: &Value) -> Option<&'a Value> {
    schema.pointer(node["$ref"].as_str()?.strip_prefix('#')?)
}

fn choices(node: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["allOf", "anyOf", "oneOf"].into_iter();
    lists.filter_map(|list| node[list].as_array()).flatten()
}

fn keys(object: &Value) -> BTreeSet<String> {
    object.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_found_through_references_and_lists() {
        let schema = json!({
            "properties": {
                "route": {"type": "array", "items": {"$ref": "#/$defs/Route"}},
                "replica": {"items": {"$ref": "#/$defs/Replica"}},
                "health": {"anyOf": [{"$ref": "#/$defs/Health"}, {"type": "null"}]},
            },
            "$defs": {
                "Route": {"properties": {"policy": {"$ref": "#/$defs/Policy", "default": "b"}}},
                "Policy": {"oneOf": [{"const": "a"}, {"enum": ["b", "c"]}]},
                "Replica": {"properties": {"kind": {}, "name": {}}},
                "Health": {"properties": {"check": {}, "slow_start_ms": {}}},
            },
        });
        let features = Features::parse(&schema).unwrap();
        assert_eq!(features.policies, ["a", "b", "c"]);
        assert!(features.replica.contains("kind") && features.replica.len() == 2);
        assert!(features.health.contains("slow_start_ms"));
    }

    #[test]
    fn a_binary_without_health_has_none_and_one_without_policies_is_refused() {
        let schema = json!({"properties": {
            "route": {"items": {"properties": {"policy": {"enum": ["random"]}}}},
        }});
        let features = Features::parse(&schema).unwrap();
        assert_eq!((features.health.len(), features.replica.len()), (0, 0));
        assert!(Features::parse(&json!({"properties": {}})).is_err());
    }
}
