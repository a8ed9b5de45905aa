//! Values of a parsed document, found by their place in the text, and changed.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Step from a table or list to something in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathStep {
    /// Key of a table.
    Key(String),
    /// Number of a list's element.
    Index(usize),
}

/// Thing that is looked for in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SoughtItem {
    Key,
    Table,
    List,
    /// Any value but one inside which the same position is found again.
    Value,
}

/// Returns the path of the item at `span`.
pub(crate) fn find(
    table: &DeTable<'_>,
    span: &Range<usize>,
    wanted: SoughtItem,
) -> Option<Vec<PathStep>> {
    table.iter().find_map(|(key, value)| {
        let step = PathStep::Key(key.get_ref().to_string());
        if wanted == SoughtItem::Key && key.span() == *span {
            return Some(vec![step]);
        }
        find_in(value, span, wanted).map(|path| prefixed(step, path))
    })
}

fn find_in(
    value: &Spanned<DeValue<'_>>,
    span: &Range<usize>,
    wanted: SoughtItem,
) -> Option<Vec<PathStep>> {
    let is_it = value.span() == *span
        && match wanted {
            SoughtItem::Key => false,
            SoughtItem::Table => value.get_ref().is_table(),
            SoughtItem::List => value.get_ref().is_array(),
            SoughtItem::Value => true,
        };
    let inner = match value.get_ref() {
        DeValue::Table(table) => find(table, span, wanted),
        DeValue::Array(list) => list.iter().enumerate().find_map(|(index, element)| {
            let path = find_in(element, span, wanted)?;
            Some(prefixed(PathStep::Index(index), path))
        }),
        _ => None,
    };
    inner.or_else(|| is_it.then(Vec::new))
}

fn prefixed(step: PathStep, mut path: Vec<PathStep>) -> Vec<PathStep> {
    path.insert(0, step);
    path
}

/// Returns the value at a path.
pub(crate) fn get<'a, 'i>(
    table: &'a DeTable<'i>,
    path: &[PathStep],
) -> Option<&'a Spanned<DeValue<'i>>> {
    let [PathStep::Key(first), rest @ ..] = path else { return None };
    rest.iter().try_fold(table.get(first.as_str())?, |value, step| match (value.get_ref(), step) {
        (DeValue::Table(table), PathStep::Key(key)) => table.get(key.as_str()),
        (DeValue::Array(list), PathStep::Index(index)) => list.get(*index),
        _ => None,
    })
}

fn get_mut<'a, 'i>(
    table: &'a mut DeTable<'i>,
    path: &[PathStep],
) -> Option<&'a mut Spanned<DeValue<'i>>> {
    let [PathStep::Key(first), rest @ ..] = path else { return None };
    rest.iter().try_fold(table.get_mut(first.as_str())?, |value, step| {
        match (value.get_mut(), step) {
            (DeValue::Table(table), PathStep::Key(key)) => table.get_mut(key.as_str()),
            (DeValue::Array(list), PathStep::Index(index)) => list.get_mut(*index),
            _ => None,
        }
    })
}

/// Puts another value in place of the one at a path. The position in the text stays.
pub(crate) fn replace<'i>(table: &mut DeTable<'i>, path: &[PathStep], value: DeValue<'i>) {
    if let Some(place) = get_mut(table, path) {
        *place.get_mut() = value;
    }
}

/// Takes the value at a path out of the document.
pub(crate) fn remove<'i>(
    table: &mut DeTable<'i>,
    path: &[PathStep],
) -> Option<Spanned<DeValue<'i>>> {
    let (last, parent) = path.split_last()?;
    if let ([], PathStep::Key(key)) = (parent, last) {
        return table.remove(key.as_str());
    }
    match (get_mut(table, parent)?.get_mut(), last) {
        (DeValue::Table(table), PathStep::Key(key)) => table.remove(key.as_str()),
        (DeValue::Array(list), PathStep::Index(index)) => remove_element(list, *index),
        _ => None,
    }
}

fn remove_element<'i>(list: &mut DeArray<'i>, index: usize) -> Option<Spanned<DeValue<'i>>> {
    let mut elements: Vec<_> = std::mem::replace(list, DeArray::new()).into_iter().collect();
    let removed = (index < elements.len()).then(|| elements.remove(index));
    *list = elements.into_iter().collect();
    removed
}

/// Gives the key at a path another name, unless the table has that already.
pub(crate) fn rename(table: &mut DeTable<'_>, path: &[PathStep], name: &str) {
    let Some((PathStep::Key(key), parent)) = path.split_last() else { return };
    let table = match parent {
        [] => table,
        parent => match get_mut(table, parent).map(Spanned::get_mut) {
            Some(DeValue::Table(table)) => table,
            _ => return,
        },
    };
    let span = table.get_key_value(key.as_str()).map(|(key, _)| key.span());
    if let (Some(span), Some(value)) = (span, table.remove(key.as_str()))
        && !table.contains_key(name)
    {
        table.insert(Spanned::new(span, name.to_owned().into()), value);
    }
}

/// Returns the positions of a value, and of all keys and values in it.
pub(crate) fn places(value: &Spanned<DeValue<'_>>) -> Vec<Range<usize>> {
    let mut places = vec![value.span()];
    match value.get_ref() {
        DeValue::Table(table) => {
            for (key, value) in table {
                places.push(key.span());
                places.extend(self::places(value));
            }
        }
        DeValue::Array(list) => places.extend(list.iter().flat_map(self::places)),
        _ => {}
    }
    places
}
