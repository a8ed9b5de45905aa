//! Parts of the schema, found by the path of a setting, for errors that describe its valid values.

use serde_json::{Map, Value};

use crate::tree::PathStep;

/// A setting or table in the schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'a> {
    root: &'a Value,
    /// The place itself, which has the description; its type may be behind a reference.
    here: &'a Value,
}

impl<'a> Node<'a> {
    pub(crate) fn root(root: &'a Value) -> Self {
        Self { root, here: root }
    }

    /// Returns the node of a setting; `None` if there is no such setting.
    pub(crate) fn at(self, path: &[PathStep]) -> Option<Self> {
        path.iter().try_fold(self, |node, step| {
            let target = node.target();
            let here = match step {
                PathStep::Index(_) => target.get("items")?,
                PathStep::Key(key) => target["properties"]
                    .get(key)
                    .or_else(|| target.get("additionalProperties").filter(|it| it.is_object()))?,
            };
            Some(Self { here, ..node })
        })
    }

    /// Returns the keys of a table.
    pub(crate) fn keys(self) -> Vec<&'a str> {
        let keys = self.target()["properties"].as_object().into_iter().flat_map(Map::keys);
        keys.map(String::as_str).collect()
    }

    /// Returns the names that a value can have; `None` if it has no fixed ones.
    pub(crate) fn names(self) -> Option<Vec<&'a str>> {
        let target = self.target();
        let constants = target["oneOf"].as_array().and_then(|variants| {
            variants.iter().map(|variant| variant["const"].as_str()).collect::<Option<Vec<_>>>()
        });
        let listed = || target["enum"].as_array()?.iter().map(Value::as_str).collect();
        constants.or_else(listed)
    }

    pub(crate) fn is_list(self) -> bool {
        self.kind() == Some("array")
    }

    pub(crate) fn is_text(self) -> bool {
        self.kind() == Some("string")
    }

    pub(crate) fn is_number(self) -> bool {
        matches!(self.kind(), Some("integer" | "number"))
    }

    pub(crate) fn is_bool(self) -> bool {
        self.kind() == Some("boolean")
    }

    /// Returns the node of a list's elements.
    pub(crate) fn element(self) -> Option<Self> {
        self.at(&[PathStep::Index(0)])
    }

    /// Returns the least and the greatest number, if the value is a number that has them.
    pub(crate) fn bounds(self) -> (Option<f64>, Option<f64>) {
        let target = self.target();
        let bound = |name: &str| self.here.get(name).or_else(|| target.get(name))?.as_f64();
        let widest = match target["format"].as_str() {
            Some("uint8") => Some(u8::MAX.into()),
            Some("uint16") => Some(u16::MAX.into()),
            Some("uint32") => Some(u32::MAX.into()),
            _ => None,
        };
        (bound("minimum"), bound("maximum").or(widest))
    }

    /// Returns the keys that the table must have.
    pub(crate) fn required(self) -> impl Iterator<Item = &'a str> {
        let lists = [self.here, self.target()].map(|node| node["required"].as_array());
        lists.into_iter().flatten().flatten().filter_map(Value::as_str)
    }

    /// Returns true if a change of the setting waits for a restart; `None` if that is as in the
    /// table around it.
    pub(crate) fn waits_for_restart(self) -> Option<bool> {
        self.here["x-restart"].as_bool()
    }

    /// Returns true if the setting has a meaning when it is left out.
    pub(crate) fn is_optional(self) -> bool {
        let is_null = |form: &Value| form["type"] == "null";
        self.here["anyOf"].as_array().is_some_and(|forms| forms.iter().any(is_null))
    }

    /// Returns the default, if the setting has one.
    pub(crate) fn default(self) -> Option<&'a Value> {
        self.here.get("default")
    }

    /// Describes what belongs here, e.g. `a list of strings`.
    pub(crate) fn words(self) -> String {
        if let Some(names) = self.names() {
            return format!("one of {}", crate::suggestion::listed(&names));
        }
        if let Some(values) = self.target()["enum"].as_array() {
            let values: Vec<String> = values.iter().map(Value::to_string).collect();
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            return format!("one of {}", crate::suggestion::listed(&values));
        }
        match self.kind() {
            Some("array") => match self.element().and_then(Node::kind) {
                Some("string") => "a list of strings".to_owned(),
                Some("integer" | "number") => "a list of numbers".to_owned(),
                Some("object") => "a list of tables".to_owned(),
                _ => "a list".to_owned(),
            },
            Some("string") => "a string".to_owned(),
            Some("boolean") => "true or false".to_owned(),
            Some(kind @ ("integer" | "number")) => {
                let number = if kind == "integer" { "a whole number" } else { "a number" };
                match self.bounds() {
                    // The largest number of 32 bits is no useful limit to show.
                    (Some(least), Some(most)) if most < f64::from(u32::MAX) => {
                        format!("{number} from {least} to {most}")
                    }
                    (Some(least), _) => format!("{number} from {least} on"),
                    (None, Some(most)) => format!("{number} up to {most}"),
                    (None, None) => number.to_owned(),
                }
            }
            _ => "a table".to_owned(),
        }
    }

    /// Returns the first sentence of the description, without its full stop.
    pub(crate) fn about(self) -> Option<String> {
        let about = self.here["description"].as_str();
        let about = about.or_else(|| self.target()["description"].as_str())?.replace('\n', " ");
        let end = about.find(". ").or_else(|| about.strip_suffix('.').map(str::len));
        Some(about[..end.unwrap_or(about.len())].to_owned())
    }

    fn kind(self) -> Option<&'a str> {
        match &self.target()["type"] {
            Value::Array(kinds) => kinds.first().and_then(Value::as_str),
            kind => kind.as_str(),
        }
    }

    fn target(self) -> &'a Value {
        resolve(self.root, self.here)
    }
}

/// Follows references, also of a value that may be left out. Of several forms, the first one counts.
pub(crate) fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let some = schema["anyOf"].as_array().and_then(|list| list.first());
    let place = schema["$ref"].as_str().and_then(|place| place.strip_prefix('#'));
    let next = some.or_else(|| place.and_then(|place| root.pointer(place)));
    next.map_or(schema, |next| resolve(root, next))
}
