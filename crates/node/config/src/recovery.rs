//! Reads a document whose values have wrong types as far as possible, and reports all errors.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use crate::at_start::AtStart;
use crate::environment;
use crate::error::{ConfigError, ConfigErrors};
use crate::explanation::{Finding, Fix};
use crate::schema_node::Node;
use crate::source::Source;
use crate::syntax;
use crate::tree::{self, PathStep, SoughtItem};
use crate::validation::{Violation, violation};

/// Maximum number of reported errors: a file with more probably has an error of another kind.
const ERRORS_MAX: usize = 50;

/// Readable part of a document.
#[derive(Debug)]
pub(crate) struct Recovered<T> {
    /// The content, with all errors corrected or left out, and its settings that wait for a restart;
    /// `None` if the text is not TOML.
    pub(crate) content: Option<(T, AtStart)>,
    pub(crate) errors: ConfigErrors,
    pub(crate) lost: LostParts,
}

/// Settings that were left out because their meaning is unknown.
#[derive(Debug, Default)]
pub(crate) struct LostParts {
    /// Sections from which something is missing.
    sections: BTreeSet<String>,
    /// Positions of everything in the tables that lost a setting.
    places: Vec<Range<usize>>,
}

impl LostParts {
    /// Returns true if something of this section is missing.
    pub(crate) fn is_in(&self, section: &str) -> bool {
        self.sections.contains(section)
    }

    /// Returns true if an error may only be there because a setting was left out of its table.
    pub(crate) fn explains(&self, error: &ConfigError) -> bool {
        self.places.contains(&error.place.span)
    }

    /// Remembers that a setting or table is left out.
    fn add(&mut self, table: &DeTable<'_>, path: &[PathStep]) {
        if let Some(PathStep::Key(section)) = path.first() {
            self.sections.insert(section.clone());
        }
        self.add_around(table, path);
        let around = (1..path.len()).rev().filter_map(|length| tree::get(table, &path[..length]));
        let table = around.into_iter().find(|value| value.get_ref().is_table());
        self.places.extend(table.into_iter().flat_map(tree::places));
    }

    /// Remembers that a value was guessed: lists and tables around it may be wrong as a whole for
    /// that reason alone.
    fn add_around(&mut self, table: &DeTable<'_>, path: &[PathStep]) {
        let around = (1..path.len()).filter_map(|length| tree::get(table, &path[..length]));
        self.places.extend(around.map(Spanned::span));
    }
}

/// A kind of file, with the schema of its settings.
pub(crate) trait Document: DeserializeOwned {
    /// Returns the schema, which is made once: that of all settings is large.
    fn schema() -> &'static Value;
}

/// Reads the source's text, with its overrides.
pub(crate) fn read<T: Document>(source: &Source) -> Recovered<T> {
    let (mut table, wrong) = DeTable::parse_recoverable(source.text());
    if !wrong.is_empty() {
        // Nothing else is reported: where a bracket is missing, any text may mean something else.
        let errors = syntax::explain(source, &wrong);
        return Recovered { content: None, errors: errors.into(), lost: LostParts::default() };
    }
    let mut errors = ConfigErrors::default();
    errors.keep(environment::apply(source, table.get_mut()));
    let mut reading =
        Reading { source, table, errors, lost: LostParts::default(), fixes: Vec::new() };
    let content = reading.read();
    Recovered { content, errors: reading.errors, lost: reading.lost }
}

/// State of reading one document.
struct Reading<'a> {
    source: &'a Source,
    /// The document as it was written.
    table: Spanned<DeTable<'a>>,
    /// Changes that correct the errors found so far.
    fixes: Vec<(Vec<PathStep>, Fix)>,
    errors: ConfigErrors,
    lost: LostParts,
}

impl Reading<'_> {
    /// Reads the document again and again, each time with one error less.
    fn read<T: Document>(&mut self) -> Option<(T, AtStart)> {
        let schema = Node::root(T::schema());
        for _ in 0..ERRORS_MAX {
            let mut table = self.table.clone();
            self.fixes.iter().for_each(|(path, fix)| apply(table.get_mut(), path, fix));
            let error = match try_read::<T>(&table, schema) {
                Ok(content) => return Some((content, AtStart::new(table.get_ref(), schema))),
                Err(error) => error,
            };
            let Some(path) = error.path else {
                let remedy = "correct the value; `spillway config reference` lists all settings";
                self.errors.add(self.source.fault(error.span, error.message, remedy));
                return None;
            };
            let finding = Finding {
                source: self.source,
                table: table.get_ref(),
                schema,
                path: &path,
                message: &error.message,
                span: error.span,
            };
            let (explained, fix) = finding.explain();
            let is_missing = error.message.starts_with("missing field");
            // A required setting may be missing only because its value was left out.
            if !(is_missing && self.lost.explains(&explained)) {
                self.errors.add(explained);
            }
            match fix {
                Fix::Remove => self.lost.add(table.get_ref(), &path),
                Fix::Nearest(_) => self.lost.add_around(table.get_ref(), &path),
                _ => {}
            }
            self.fixes.push((path, fix));
        }
        None
    }
}

/// Error of a document, in serde's words.
struct ReadError {
    /// Path of the key or value, or of the table in which one is missing; `None` if it is unknown.
    path: Option<Vec<PathStep>>,
    span: Range<usize>,
    message: String,
}

/// Reads a document by its type, and checks what only its schema forbids.
fn try_read<T: Document>(table: &Spanned<DeTable<'_>>, schema: Node<'_>) -> Result<T, ReadError> {
    let content = T::deserialize(Deserializer::from(table.clone())).map_err(|error| ReadError {
        path: path_of(table.get_ref(), &error, schema),
        span: error.span().unwrap_or(0..0),
        message: error.message().to_owned(),
    })?;
    match violation(table.get_ref(), table.span(), schema) {
        Some(Violation { path, span, message }) => {
            Err(ReadError { path: Some(path), span, message })
        }
        None => Ok(content),
    }
}

/// Returns the path of an error; `None` if its position is unknown.
fn path_of(
    table: &DeTable<'_>,
    error: &toml::de::Error,
    schema: Node<'_>,
) -> Option<Vec<PathStep>> {
    let mut path = tree::find(table, &error.span()?, wanted(error))?;
    // `[[node]]` for `[node]`: serde takes the list's elements for the table's values.
    let is_single = |section: &[PathStep]| schema.at(section).is_some_and(|it| !it.is_list());
    if matches!(path[..], [_, PathStep::Index(_), ..]) && is_single(&path[..1]) {
        path.truncate(1);
    }
    Some(path)
}

fn apply<'i>(table: &mut DeTable<'i>, path: &[PathStep], fix: &'i Fix) {
    let value = tree::get(table, path).cloned();
    let replacement = match fix {
        Fix::Rename(name) => return tree::rename(table, path, name),
        Fix::Ignore | Fix::Remove => None,
        Fix::Wrap => value.map(|value| DeValue::Array([value].into_iter().collect())),
        Fix::Unwrap => value
            .and_then(|list| list.into_inner().as_array()?.first().cloned())
            .map(Spanned::into_inner),
        Fix::Value(text) | Fix::Nearest(text) => DeValue::parse(text).ok().map(Spanned::into_inner),
    };
    match replacement {
        Some(value) => tree::replace(table, path, value),
        None => drop(tree::remove(table, path)),
    }
}

/// Returns the subject of an error.
fn wanted(error: &toml::de::Error) -> SoughtItem {
    let message = error.message();
    match () {
        () if message.starts_with("unknown field") => SoughtItem::Key,
        () if message.starts_with("missing field") => SoughtItem::Table,
        () if message.starts_with("invalid type: map") => SoughtItem::Table,
        () if message.starts_with("invalid type: sequence") => SoughtItem::List,
        () => SoughtItem::Value,
    }
}
