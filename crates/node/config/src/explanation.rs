//! Explains serde's errors about the type of a value in the words of the file, with a correction.

use toml::de::{DeTable, DeValue};

use crate::error::ConfigError;
use crate::numbers::{plain_number, unit_of};
use crate::replica_url::bracketed;
use crate::schema_node::Node;
use crate::source::Source;
use crate::suggestion::{listed, nearest};
use crate::tree::{PathStep, get};

/// Page with all settings, for errors without a better remedy.
const REFERENCE: &str = "`spillway config reference` lists all settings";

/// Change with which reading goes on, so that one error does not hide the next ones.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fix {
    /// The key was meant to have this name.
    Rename(String),
    /// This value was meant, as TOML text.
    Value(String),
    /// This value is the nearest one that is allowed, as TOML text.
    Nearest(String),
    /// The value was meant as a list with one element.
    Wrap,
    /// The list was meant as its one element.
    Unwrap,
    /// The key means nothing.
    Ignore,
    /// The intended setting is unknown.
    Remove,
}

/// A document in which an error was found.
#[derive(Debug, Clone)]
pub(crate) struct Finding<'a> {
    pub(crate) source: &'a Source,
    pub(crate) table: &'a DeTable<'a>,
    pub(crate) schema: Node<'a>,
    /// Path of the key or value, or of the table in which one is missing.
    pub(crate) path: &'a [PathStep],
    /// Error in serde's words.
    pub(crate) message: &'a str,
    /// Place of the error in the text.
    pub(crate) span: std::ops::Range<usize>,
}

impl Finding<'_> {
    /// Returns the error in words, and the change with which reading goes on.
    pub(crate) fn explain(&self) -> (ConfigError, Fix) {
        let message = self.message;
        if let Some(key) = quoted(message, "unknown field") {
            return self.unknown_key(key);
        }
        if let Some(key) = quoted(message, "missing field") {
            return self.missing_key(key);
        }
        let node = self.schema.at(self.path);
        if let (Some(node), Some(names)) = (node, node.and_then(Node::names))
            && let Some(given) = self.value().and_then(DeValue::as_str)
            && !node.is_list()
        {
            return self.unknown_name(given, &names);
        }
        let is_list_for_table = self.path.len() == 1 && self.value().is_some_and(DeValue::is_array);
        let is_of_type = ["invalid type", "invalid value"].iter().any(|it| message.starts_with(it));
        if is_of_type || is_list_for_table {
            return self.wrong_type(node);
        }
        self.wrong_value(node)
    }

    fn unknown_key(&self, key: &str) -> (ConfigError, Fix) {
        let parent = &self.path[..self.path.len().saturating_sub(1)];
        let keys = self.schema.at(parent).map(Node::keys).unwrap_or_default();
        let is_section = parent.is_empty()
            && self.value().is_some_and(|value| value.is_table() || value.is_array());
        let message = match (parent, is_section) {
            ([], true) => format!("unknown section `{key}`"),
            ([], false) => format!("unknown key `{key}` outside of any section"),
            _ => format!("unknown key `{key}` in {}", self.heading(parent)),
        };
        if let Some(meant) = nearest(key, &keys) {
            let written =
                if parent.is_empty() { self.section(meant) } else { format!("`{meant}`") };
            let error = self.fault(message, format!("correct the spelling: {written}"));
            return (
                error.labelled(format!("did you mean {written}?")),
                Fix::Rename(meant.to_owned()),
            );
        }
        let is_of_a_key = parent.first() == Some(&PathStep::Key("key".to_owned()));
        if is_of_a_key && ["key", "secret", "token"].contains(&key) {
            let remedy = "remove it, and write salt and hash: `spillway keys create --offline` makes \
                          a key and prints its whole block";
            return (self.fault(message, remedy.to_owned()), Fix::Ignore);
        }
        if let Some(section) = self.section_with(key).filter(|_| !is_section) {
            let remedy = format!("move it to {section}, which has a key of this name");
            return (self.fault(message, remedy), Fix::Ignore);
        }
        let remedy = format!("use one of: {}; {REFERENCE}", listed(&keys));
        (self.fault(message, remedy), Fix::Ignore)
    }

    fn missing_key(&self, key: &str) -> (ConfigError, Fix) {
        let mut path = self.path.to_vec();
        path.push(PathStep::Key(key.to_owned()));
        let about = self.schema.at(&path).and_then(Node::about);
        let message = format!("{} has no `{key}`", self.heading(self.path));
        let remedy = match about {
            Some(about) => format!("add {key} = ...: {}", lower_first(&about)),
            None => format!("add {key} = ..."),
        };
        (self.fault(message, remedy), Fix::Remove)
    }

    fn unknown_name(&self, given: &str, names: &[&str]) -> (ConfigError, Fix) {
        let key = self.key();
        let message = format!("{given:?} is not a value of `{key}`");
        match nearest(given, names) {
            Some(meant) => {
                let error = self.fault(message, format!("write {key} = {meant:?}"));
                let label = format!("did you mean {meant:?}?");
                (error.labelled(label), Fix::Value(format!("{meant:?}")))
            }
            None => {
                let remedy = format!("use one of: {}; {REFERENCE}", listed(names));
                (self.fault(message, remedy), Fix::Remove)
            }
        }
    }

    fn wrong_type(&self, node: Option<Node<'_>>) -> (ConfigError, Fix) {
        let (Some(node), Some(value)) = (node, self.value()) else { return self.wrong_value(node) };
        let key = self.key();
        let expected = with_unit(node, &key);
        if let (Some(number), true) = (number(value), node.is_number()) {
            let message = format!("`{key}` can't be {}", self.written());
            let clamped = match node.bounds() {
                (Some(least), _) if number < least => Fix::Nearest(least.to_string()),
                (_, Some(most)) if number > most => Fix::Nearest(most.to_string()),
                _ => Fix::Remove,
            };
            return (self.fault(message, format!("use {expected}")), clamped);
        }
        let message = format!("`{key}` is {}, where {} belongs", kind(value), node.words());
        let (remedy, fix) = self.conversion(node, value);
        let remedy = remedy.unwrap_or_else(|| format!("write {expected}"));
        (self.fault(message, remedy).labelled(format!("this is {}", kind(value))), fix)
    }

    /// Returns the intended form of the value, if its type reveals that.
    fn conversion(&self, node: Node<'_>, value: &DeValue<'_>) -> (Option<String>, Fix) {
        let key = self.key();
        let written = self.written();
        let write = |value: &str| Some(format!("write {key} = {value}"));
        match value {
            DeValue::Table(_) if node.is_list() && self.path.len() == 1 => {
                (Some(format!("write [[{key}]]: there can be several")), Fix::Wrap)
            }
            DeValue::Array(_) if self.path.len() == 1 && node.words() == "a table" => {
                (Some(format!("write [{key}]: there is one alone")), Fix::Unwrap)
            }
            DeValue::String(text) if node.is_list() => {
                let is_text = node.element().is_some_and(Node::is_text);
                if is_text {
                    (write(&format!("[{text:?}]")), Fix::Wrap)
                } else {
                    (None, Fix::Remove)
                }
            }
            DeValue::String(text) if node.is_number() => match text.trim().parse::<f64>() {
                Ok(number) if number.is_finite() => {
                    (write(text.trim()), Fix::Value(text.trim().to_owned()))
                }
                _ => match plain_number(text, unit_of(&key)) {
                    Some(number) => (write(&number), Fix::Value(number)),
                    None => (None, Fix::Remove),
                },
            },
            DeValue::String(text) if node.is_bool() => match text.as_ref() {
                truth @ ("true" | "false") => (write(truth), Fix::Value(truth.to_owned())),
                _ => (None, Fix::Remove),
            },
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) if node.is_text() => {
                (write(&format!("{written:?}")), Fix::Value(format!("{written:?}")))
            }
            _ => (None, Fix::Remove),
        }
    }

    /// Explains an error that the type of the value reports by itself.
    fn wrong_value(&self, node: Option<Node<'_>>) -> (ConfigError, Fix) {
        let key = self.key();
        let told = self.message;
        if told.contains("invalid socket address syntax") {
            return self.wrong_address();
        }
        let about =
            node.and_then(Node::about).map(|about| format!("; `{key}`: {}", lower_first(&about)));
        let remedy = format!("correct the value{}", about.unwrap_or_default());
        (self.fault(format!("`{key}`: {told}"), remedy), Fix::Remove)
    }

    fn wrong_address(&self) -> (ConfigError, Fix) {
        let key = self.key();
        let given = self.value().and_then(DeValue::as_str).unwrap_or_default();
        let port = given.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
        let message = format!("{given:?} is no IP address with a port");
        let (remedy, fix) = match port {
            Some(port) if given.starts_with("localhost:") => {
                let meant = format!("\"127.0.0.1:{port}\"");
                (format!("write {key} = {meant}"), Fix::Value(meant))
            }
            Some(port) if given == format!(":{port}") => {
                let remedy = format!(
                    "write {key} = \"127.0.0.1:{port}\" for this machine alone, or \
                     \"0.0.0.0:{port}\" for all"
                );
                (remedy, Fix::Value(format!("\"127.0.0.1:{port}\"")))
            }
            _ => match bracketed(given) {
                Some(meant) => {
                    (format!("write {key} = {meant:?}"), Fix::Value(format!("{meant:?}")))
                }
                None => (format!("write it like {key} = \"127.0.0.1:8080\""), Fix::Remove),
            },
        };
        (self.fault(message, remedy), fix)
    }

    fn fault(&self, message: String, remedy: String) -> ConfigError {
        self.source.fault(self.span.clone(), message, remedy)
    }

    fn value(&self) -> Option<&DeValue<'_>> {
        get(self.table, self.path).map(|value| value.get_ref())
    }

    /// Returns the text of the value.
    fn written(&self) -> String {
        self.source.part(self.span.clone()).to_owned()
    }

    /// Returns the name of the setting.
    fn key(&self) -> String {
        let keys = self.path.iter().rev().filter_map(|step| match step {
            PathStep::Key(key) => Some(key.clone()),
            PathStep::Index(_) => None,
        });
        keys.into_iter().next().unwrap_or_default()
    }

    /// Returns the table at a path as it is written in a file.
    fn heading(&self, path: &[PathStep]) -> String {
        let keys: Vec<&str> = path
            .iter()
            .filter_map(|step| match step {
                PathStep::Key(key) => Some(key.as_str()),
                PathStep::Index(_) => None,
            })
            .collect();
        match keys[..] {
            [] => "the file".to_owned(),
            [section] => self.section(section),
            [section, ref inner @ ..] => {
                format!("`{}` of {}", inner.join("."), self.section(section))
            }
        }
    }

    /// Returns the header of a section.
    fn section(&self, name: &str) -> String {
        let node = self.schema.at(&[PathStep::Key(name.to_owned())]);
        if node.is_some_and(Node::is_list) { format!("[[{name}]]") } else { format!("[{name}]") }
    }

    /// Returns the header of the section that has this key, if there is one alone.
    fn section_with(&self, key: &str) -> Option<String> {
        let mut having = self.schema.keys().into_iter().filter(|section| {
            let mut path = vec![PathStep::Key((*section).to_owned())];
            let Some(node) = self.schema.at(&path) else { return false };
            if node.is_list() {
                path.push(PathStep::Index(0));
            }
            self.schema.at(&path).is_some_and(|table| table.keys().contains(&key))
        });
        let section = having.next()?;
        having.next().is_none().then(|| self.section(section))
    }
}

/// Returns the name in backquotes after these words of serde's.
fn quoted<'a>(message: &'a str, words: &str) -> Option<&'a str> {
    message.strip_prefix(words)?.trim_start().strip_prefix('`')?.split('`').next()
}

/// Returns the kind of value that a setting needs, with the unit of a number.
fn with_unit(node: Node<'_>, key: &str) -> String {
    let words = node.words();
    match unit_of(key).filter(|_| node.is_number()) {
        Some(unit) if unit.starts_with("per ") => format!("{words}, {unit}"),
        Some(unit) => format!("{words}, in {unit}"),
        None => words,
    }
}

/// Returns the value of a number; of whole numbers beyond 2^53 the nearest one that a float has.
pub(crate) fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(integer) => {
            let whole = i128::from_str_radix(integer.as_str(), integer.radix()).ok()?;
            Some(whole as f64)
        }
        DeValue::Float(float) => float.as_str().parse().ok(),
        _ => None,
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a moment",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn lower_first(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let (first, second) = (letters.next(), letters.clone().next());
    match first {
        // An abbreviation such as IP stays as it is.
        Some(first) if second.is_none_or(char::is_lowercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => sentence.to_owned(),
    }
}
