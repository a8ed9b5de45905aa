//! Checks a document against what its schema says beyond types: bounds of numbers, and required keys.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::explanation::number;
use crate::schema_node::Node;
use crate::tree::PathStep;

/// Value that the schema forbids.
#[derive(Debug, PartialEq)]
pub(crate) struct Violation {
    /// Path of the number, or of the table in which a key is missing.
    pub(crate) path: Vec<PathStep>,
    /// Place of it in the text.
    pub(crate) span: Range<usize>,
    /// The error in the words that serde has for such errors.
    pub(crate) message: String,
}

/// Returns the first violation in a table whose place in the schema is `node`.
pub(crate) fn violation(
    table: &DeTable<'_>,
    span: Range<usize>,
    node: Node<'_>,
) -> Option<Violation> {
    let missing = node.required().find(|key| !table.contains_key(*key));
    if let Some(key) = missing {
        let message = format!("missing field `{key}`");
        return Some(Violation { path: Vec::new(), span, message });
    }
    table.iter().find_map(|(key, value)| {
        let step = PathStep::Key(key.get_ref().to_string());
        below(value, node, step)
    })
}

fn below(value: &Spanned<DeValue<'_>>, node: Node<'_>, step: PathStep) -> Option<Violation> {
    // A key that the schema lacks is reported when the document is read.
    let node = node.at(std::slice::from_ref(&step))?;
    let mut found = inside(value, node)?;
    found.path.insert(0, step);
    Some(found)
}

fn inside(value: &Spanned<DeValue<'_>>, node: Node<'_>) -> Option<Violation> {
    match value.get_ref() {
        DeValue::Table(table) => violation(table, value.span(), node),
        DeValue::Array(list) => list
            .iter()
            .enumerate()
            .find_map(|(index, element)| below(element, node, PathStep::Index(index))),
        scalar => {
            let given = number(scalar).filter(|_| node.is_number())?;
            let (least, most) = node.bounds();
            let is_in = given.is_finite()
                && least.is_none_or(|least| given >= least)
                && most.is_none_or(|most| given <= most);
            let message = "invalid value: out of bounds".to_owned();
            (!is_in).then(|| Violation { path: Vec::new(), span: value.span(), message })
        }
    }
}
