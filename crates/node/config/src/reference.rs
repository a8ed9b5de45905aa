//! The page that lists all settings, made from the schema.
//!
//! A setting is a row: key, type with its bounds and unit, default, and the first sentence of its
//! description. The schema has the rest.

use serde_json::{Map, Value};

use crate::numbers::unit_of;
use crate::schema_node::{Node, resolve};

const HEAD: &str = "\
# Configuration reference

This page lists all settings. `spillway config reference` generates it from the schema, and `spillway config schema`
prints the full descriptions. [configuration.md](../guides/configuration.md) has the ten most important settings, guides
by subject, and a sample file.

A key with a dot is inside a table: `health.path` of a `[[replica]]` is `health = { path = \"..\" }`. Such a key is required
only if its table is present. NAME is a name that you choose. A default of – means that the setting has no value; the
description says what applies then. A change of a setting takes effect when the file is saved, or when the node is
restarted.
";

const TABLE: &str = "\n| key | type | default | change | description |\n|---|---|---|---|---|\n";

/// One setting.
struct Row {
    /// Path of the setting with its section, e.g. `replica.health.path`.
    path: String,
    /// Cells after the key.
    cells: String,
}

/// Settings that are listed already.
#[derive(Default)]
struct Listed<'a> {
    /// Rows of the section that is being written.
    rows: Vec<Row>,
    /// Tables whose settings are listed, with the section and the key that has them.
    tables: Vec<(&'a Value, String)>,
}

/// Returns the page in Markdown.
#[must_use]
pub fn reference() -> String {
    let schema = crate::schema();
    let writer = Writer { schema };
    let mut page = HEAD.to_owned();
    let mut listed = Listed::default();
    for (name, section) in properties(schema) {
        let waits = Node::root(section).waits_for_restart() == Some(true);
        writer.add_rows(name, section, waits, &mut listed);
        let heading = heading(name, section);
        let about = section["description"].as_str().unwrap_or_default().replace('\n', " ");
        page.push_str(&format!("\n## `{heading}`\n\n{about}\n"));
        page.push_str(TABLE);
        for row in listed.rows.drain(..) {
            let key = row.path.split_once('.').map_or("NAME", |(_, key)| key);
            page.push_str(&format!("| `{key}` | {} |\n", row.cells));
        }
    }
    page
}

/// Reads the schema.
struct Writer<'a> {
    schema: &'a Value,
}

impl<'a> Writer<'a> {
    /// Adds the settings inside a table, a list of tables, or a map by names.
    fn add_rows(&self, path: &str, schema: &'a Value, waits: bool, section: &mut Listed<'a>) {
        let list = self.resolve(schema);
        let item = list.get("items").unwrap_or(list);
        let table = self.resolve(item);
        if let Some(values) = table.get("additionalProperties").filter(|values| values.is_object())
        {
            let value = self.resolve(values);
            // A map to plain values, such as `[classes]`, is one row; each setting of a map to
            // tables, such as `[mapping.NAME]`, has its own.
            if value.get("properties").is_none() {
                section.rows.push(self.row(path, values, false, waits));
            } else {
                self.add_rows(&format!("{path}.NAME"), value, waits, section);
            }
            return;
        }
        for (key, property) in properties(table) {
            let path = format!("{path}.{key}");
            // A list may require more of its tables than their type does.
            let is_required = requires(table, key) || requires(item, key);
            let waits = Node::root(property).waits_for_restart().unwrap_or(waits);
            let row = self.row(&path, property, is_required, waits);
            let inner = self.inner_table(property);
            let earlier = section.tables.iter().find(|(table, _)| std::ptr::eq(*table, inner));
            if let Some((_, earlier)) = earlier {
                section.rows.push(Row { cells: row.cells.replacen("table", earlier, 1), ..row });
                continue;
            }
            section.rows.push(row);
            // A table that is also a section of the file is listed there; here a row refers to it.
            if inner.get("properties").is_some() && self.section_of(inner).is_none() {
                let (name, key) = path.split_once('.').unwrap_or_default();
                let heading = heading(name, &self.schema["properties"][name]);
                section.tables.push((inner, format!("as `{key}` of `{heading}`")));
                self.add_rows(&path, property, waits, section);
            }
        }
    }

    /// Returns the schema of a table, of the tables of a list, or of a plain value.
    fn inner_table(&self, property: &'a Value) -> &'a Value {
        let inner = self.resolve(property);
        self.resolve(inner.get("items").unwrap_or(inner))
    }

    fn row(&self, path: &str, schema: &Value, is_required: bool, waits: bool) -> Row {
        let default = match &schema["default"] {
            _ if is_required => "required".to_owned(),
            Value::Null => "–".to_owned(),
            Value::String(text) if text.is_empty() => "–".to_owned(),
            // The rows of the table's own settings have their defaults.
            Value::Object(_) if self.resolve(schema).get("properties").is_some() => "–".to_owned(),
            // The schema has numbers of 32 bits with the digits of 64.
            Value::Number(number) if number.is_f64() => {
                format!("`{}`", number.as_f64().unwrap_or_default() as f32)
            }
            value => format!("`{value}`"),
        };
        let about = schema["description"].as_str();
        let about = about.or_else(|| self.resolve(schema)["description"].as_str());
        let about = first_sentence(&about.unwrap_or_default().replace('\n', " "));
        let kind = self.kind(path, schema);
        let change = if waits { "restart" } else { "save" };
        let cells = format!("{kind} | {default} | {change} | {}", escaped(&about));
        Row { path: path.to_owned(), cells }
    }

    /// Returns the type of a value, with bounds and unit.
    fn kind(&self, path: &str, schema: &Value) -> String {
        let target = self.resolve(schema);
        if let Some(section) = self.section_of(target) {
            return format!("as `{section}`");
        }
        let names = |list: &Value| list.as_array().map(|names| names.iter().map(code).collect());
        let constants = target["oneOf"].as_array().and_then(|variants| {
            variants.iter().map(|variant| variant.get("const").map(code)).collect()
        });
        if let Some(names) = constants.or_else(|| names(&target["enum"])) {
            let names: Vec<String> = names;
            return names.join(", ");
        }
        let kind = match &target["type"] {
            Value::Array(kinds) => kinds.first().and_then(Value::as_str),
            kind => kind.as_str(),
        };
        match kind {
            Some("array") => format!("list of {}", self.kind("", &target["items"])),
            Some("object") if target["additionalProperties"].is_object() => {
                format!("by name: {}", self.kind("", &target["additionalProperties"]))
            }
            Some("object") | None => "table".to_owned(),
            Some(number @ ("integer" | "number")) => {
                let unit = unit_of(path).map(|unit| format!(", {unit}")).unwrap_or_default();
                format!("{number}{}{unit}", bounds(target))
            }
            Some(kind) => kind.to_owned(),
        }
    }

    /// Returns the header of the section of the file that has the same settings as this table.
    fn section_of(&self, table: &Value) -> Option<String> {
        let mut sections = properties(self.schema);
        let is_same = |section: &Value| {
            let section = self.resolve(section);
            // Both are resolved, so the same place in the schema means the same type.
            std::ptr::eq(self.resolve(section.get("items").unwrap_or(section)), table)
        };
        sections.find(|(_, section)| is_same(section)).map(|(name, section)| heading(name, section))
    }

    /// Follows references, also of a value that may be left out.
    fn resolve<'b>(&self, schema: &'b Value) -> &'b Value
    where
        'a: 'b,
    {
        resolve(self.schema, schema)
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flat_map(Map::iter)
}

fn requires(schema: &Value, key: &str) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|name| name == key))
}

/// Returns the header of a table as a file has it.
fn heading(name: &str, section: &Value) -> String {
    match section["type"].as_str() {
        Some("array") => format!("[[{name}]]"),
        _ => format!("[{name}]"),
    }
}

fn code(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    }
}

/// Returns the bounds of a number. The largest value of its width is none.
fn bounds(schema: &Value) -> String {
    let widest = [u64::from(u8::MAX), u64::from(u16::MAX), u64::from(u32::MAX)];
    let least = schema.get("minimum").map(|least| format!(" from {least}"));
    let most = schema
        .get("maximum")
        .filter(|most| !most.as_u64().is_some_and(|most| widest.contains(&most)));
    let most = most.map(|most| format!(" to {most}"));
    least.unwrap_or_default() + &most.unwrap_or_default()
}

fn first_sentence(text: &str) -> String {
    let mut ends = text.match_indices(". ").map(|(at, _)| at);
    let is_end = |at: &usize| !["e.g", "i.e"].iter().any(|short| text[..*at].ends_with(short));
    let end = ends.find(is_end);
    end.map_or_else(|| text.to_owned(), |end| text[..=end].to_owned())
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_page_says_what_the_schema_says() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/settings.md");
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        let remedy = "run: cargo xtask pages";
        assert!(written == reference(), "docs/reference/settings.md has drifted; {remedy}");
    }

    #[test]
    fn every_row_has_a_description() {
        let page = reference();
        let without: Vec<&str> = page.lines().filter(|line| line.ends_with("|  |")).collect();
        assert_eq!(without, Vec::<&str>::new());
    }

    #[test]
    fn what_parsing_asks_for_is_required() {
        let page = reference();
        let (_, replica) = page.split_once("## `[[replica]]`").unwrap();
        for key in ["name", "url"] {
            assert!(replica.contains(&format!("| `{key}` | string | required |")), "{key}");
            let keys = ["name = \"a\"", "url = \"http://h:1\""];
            let others = keys.iter().filter(|other| !other.starts_with(key));
            let others: Vec<&str> = others.copied().collect();
            let text = format!(
                "[[listener]]\naddress = \"127.0.0.1:0\"\n[[replica]]\n{}\n",
                others.join("\n")
            );
            assert!(crate::Config::parse(&text, Path::new("file.toml"), []).is_err(), "{key}");
        }
    }

    #[test]
    fn a_sentence_ends_at_its_full_stop() {
        assert_eq!(first_sentence("Name, e.g. `a`. By default `b`."), "Name, e.g. `a`.");
        assert_eq!(first_sentence("Name"), "Name");
    }
}
