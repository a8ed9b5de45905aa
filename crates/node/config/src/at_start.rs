//! Settings that take effect only when a node starts, not with a reload. The schema marks them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use crate::explanation::number;
use crate::schema_node::Node;
use crate::tree::PathStep;

/// Settings of a file that a running node can't change, by path, e.g. `limits.body_bytes_max`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AtStart {
    settings: BTreeMap<String, Value>,
}

impl AtStart {
    pub(crate) fn new(file: &DeTable<'_>, schema: Node<'_>) -> Self {
        let mut settings = BTreeMap::new();
        for section in schema.keys() {
            let Some(node) = schema.at(&[PathStep::Key(section.to_owned())]) else { continue };
            if node.waits_for_restart() == Some(true) {
                let given = file.get(section).map(|value| value.get_ref());
                let name =
                    if node.is_list() { format!("[[{section}]]") } else { section.to_owned() };
                add(&name, node, given, &mut settings);
            }
        }
        Self { settings }
    }

    /// Returns the names of the settings that differ in `now`, in alphabetical order.
    pub fn changed<'a>(&'a self, now: &'a Self) -> Vec<&'a str> {
        let is_other = |name: &&String| self.settings.get(*name) != now.settings.get(*name);
        let mut names: Vec<&str> = self
            .settings
            .keys()
            // A setting may be on one side alone: a section was added, or removed.
            .chain(now.settings.keys())
            .filter(is_other)
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Adds the settings of a table by their paths, with the defaults of those that are not given. A list
/// is one setting.
fn add(
    path: &str,
    node: Node<'_>,
    given: Option<&DeValue<'_>>,
    into: &mut BTreeMap<String, Value>,
) {
    let keys = if node.is_list() { Vec::new() } else { node.keys() };
    if keys.is_empty() {
        let value = given.map(|given| plain(given, node));
        let value = value.or_else(|| node.default().map(canonical)).unwrap_or_default();
        // A list that is given as empty is none.
        into.insert(
            path.to_owned(),
            if value == Value::Array(Vec::new()) { Value::Null } else { value },
        );
        return;
    }
    // Whether an optional table is there is a setting of its own.
    if node.is_optional() {
        into.insert(path.to_owned(), given.is_some().into());
    }
    let table = given.and_then(DeValue::as_table);
    for key in keys {
        let Some(node) = node.at(&[PathStep::Key(key.to_owned())]) else { continue };
        if node.waits_for_restart() != Some(false) {
            let given = table.and_then(|table| table.get(key)).map(|value| value.get_ref());
            add(&format!("{path}.{key}"), node, given, into);
        }
    }
}

/// Returns a value without the settings in it that a reload replaces.
fn plain(value: &DeValue<'_>, node: Node<'_>) -> Value {
    match value {
        DeValue::Table(table) => {
            let settings = table.iter().filter_map(|(key, value)| {
                let node = node.at(&[PathStep::Key(key.get_ref().to_string())])?;
                let waits = node.waits_for_restart() != Some(false);
                waits.then(|| (key.get_ref().to_string(), plain(value.get_ref(), node)))
            });
            Value::Object(settings.collect::<Map<_, _>>())
        }
        DeValue::Array(list) => {
            let element = |value| Some(plain(value, node.element()?));
            let values = list.iter().filter_map(|value| element(value.get_ref()));
            let mut values: Vec<Value> = values.collect();
            // Elements that only changed places in the file ask for no restart.
            values.sort_by_key(Value::to_string);
            values.into()
        }
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(truth) => (*truth).into(),
        number => self::number(number).into(),
    }
}

/// Returns a default in the form of [`plain`]: all numbers are floats.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().into(),
        Value::Array(list) => list.iter().map(canonical).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> AtStart {
        let file = DeTable::parse(text).expect("a config");
        AtStart::new(file.get_ref(), Node::root(crate::schema()))
    }

    const BASE: &str = "[[listener]]\naddress = \"127.0.0.1:1\"\nauth = \"none\"\n\
        [[listener]]\naddress = \"127.0.0.1:2\"\nauth = \"none\"\n";

    fn changed(text: &str) -> Vec<String> {
        let (before, now) = (read(BASE), read(text));
        before.changed(&now).into_iter().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn settings_that_wait_for_a_restart_are_named() {
        let more = "[node]\nname = \"b\"\ndrain_ms = 5\n[limits]\nbody_bytes_max = 7\n[retry]\nattempts_max = 1\n\
            [prefix]\nindex_bytes_max = 2000000\n[spill]\nreserve_percent = 1\n[admin]\naddress = \"127.0.0.1:3\"\n\
            [[peer]]\nname = \"p\"\nregion = \"r\"\naddress = \"127.0.0.1:4\"\n[[region]]\nname = \"r\"\n";
        let expected = [
            "[[peer]]",
            "[[region]]",
            "admin",
            "admin.address",
            "limits.body_bytes_max",
            "node.drain_ms",
            "node.name",
            "prefix.index_bytes_max",
            "retry.attempts_max",
            "spill.reserve_percent",
        ];
        assert_eq!(changed(&format!("{BASE}{more}")), expected);
        assert_eq!(changed(&BASE.replace(":2", ":5")), ["[[listener]]"]);
    }

    #[test]
    fn what_a_reload_takes_and_what_only_says_the_default_is_not_named() {
        let same = "[node]\nexpose_routing = true\ndrain_ms = 30000\n[spill]\nqueue_ms = 5\n\
            [[replica]]\nname = \"a\"\nurl = \"http://127.0.0.1:9\"\nmodels = [\"m\"]\n[timeouts]\nidle_ms = 9\n";
        assert_eq!(changed(&format!("{BASE}{same}")), [""; 0]);
        assert_eq!(changed(&BASE.replace("none", "keys")), [""; 0]);
        let other_order = "[[listener]]\naddress = \"127.0.0.1:2\"\nauth = \"none\"\n\
            [[listener]]\naddress = \"127.0.0.1:1\"\nauth = \"none\"\n";
        assert_eq!(changed(other_order), [""; 0]);
    }
}
