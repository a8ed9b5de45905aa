//! Overrides from the environment: `SPILLWAY__NODE__REGION=eu` sets `node.region`.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::error::ConfigErrors;
use crate::source::{Source, Variable};

/// Prefix of every override; two underscores separate path elements, too.
pub(crate) const PREFIX: &str = "SPILLWAY__";

/// Returns the overrides among environment variables, sorted.
pub(crate) fn overrides(
    environment: impl IntoIterator<Item = (String, String)>,
) -> Vec<(String, String)> {
    let is_override = |(variable, _): &(String, String)| variable.starts_with(PREFIX);
    let mut overrides: Vec<(String, String)> =
        environment.into_iter().filter(is_override).collect();
    // The environment has no order, but an element of a list can only follow the one before it. As
    // text, element 10 would come before element 2.
    overrides.sort_by_cached_key(|(variable, _)| {
        let elements = variable.split("__");
        elements.map(|element| (element.parse().ok(), element.to_owned())).collect::<SortKey>()
    });
    overrides
}

/// Elements of a setting's path, each with its number if it is an element of a list.
type SortKey = Vec<(Option<usize>, String)>;

/// Element of a setting's path, with its position in the variable's name.
type Element = Spanned<String>;

/// Puts the source's overrides into a parsed document. Elements of lists are named by number, from
/// 0.
///
/// # Errors
/// Returns an error for each variable that names a setting that can't be set.
pub(crate) fn apply<'i>(source: &'i Source, table: &mut DeTable<'i>) -> Result<(), ConfigErrors> {
    let mut errors = ConfigErrors::default();
    for variable in source.variables() {
        let value = value_of(source, variable);
        errors.keep(set_in_table(table, &path(variable), value).map_err(|(at, problem)| {
            source.fault(at, problem, "unset the variable or correct its name")
        }));
    }
    errors.or(())
}

/// Returns the elements of the setting's path.
fn path(variable: &Variable) -> Vec<Element> {
    let mut start = variable.name_at.start + PREFIX.len();
    let elements = variable.name[PREFIX.len()..].split("__").map(|element| {
        let at = start..start + element.len();
        start = at.end + 2;
        Spanned::new(at, element.to_ascii_lowercase())
    });
    elements.collect()
}

/// Reads a number, boolean or list; any other text is a string.
fn value_of<'i>(source: &'i Source, variable: &Variable) -> Spanned<DeValue<'i>> {
    let at = variable.value_at.clone();
    let text = source.part(at.clone());
    match DeValue::parse(text) {
        // Quotes that are still there belong to the text: the shell took away its own.
        Ok(value) if !value.get_ref().is_str() => moved(value, at.start),
        _ => Spanned::new(at, DeValue::String(text.into())),
    }
}

/// Moves all positions in a value by a number of bytes.
fn moved(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let at = |span: Range<usize>| span.start + by..span.end + by;
    let span = at(value.span());
    let value = match value.into_inner() {
        DeValue::Array(list) => {
            let mut moved_list = DeArray::new();
            list.into_iter().for_each(|element| moved_list.push(moved(element, by)));
            DeValue::Array(moved_list)
        }
        DeValue::Table(table) => {
            let entries = table.into_iter().map(|(key, value)| {
                let key_at = at(key.span());
                (Spanned::new(key_at, key.into_inner()), moved(value, by))
            });
            DeValue::Table(entries.collect())
        }
        plain => plain,
    };
    Spanned::new(span, value)
}

/// Position of a path element that can't be followed, and the reason.
type Problem = (Range<usize>, String);

fn set_in_table<'i>(
    table: &mut DeTable<'i>,
    path: &[Element],
    value: Spanned<DeValue<'i>>,
) -> Result<(), Problem> {
    let [name, rest @ ..] = path else { return Err((0..0, "it names nothing".to_owned())) };
    if name.get_ref().is_empty() {
        return Err((name.span(), "the variable names no setting".to_owned()));
    }
    let key = Spanned::new(name.span(), name.get_ref().clone().into());
    let [next, ..] = rest else {
        // Removed first: the entry would keep the file's key, and so the position in the file.
        table.remove(name.get_ref().as_str());
        table.insert(key, value);
        return Ok(());
    };
    // The file need not have the setting: then the next path element shows what to create.
    let is_list = next.get_ref().parse::<usize>().is_ok();
    let child = table.entry(key).or_insert_with(|| {
        let empty =
            if is_list { DeValue::Array(DeArray::new()) } else { DeValue::Table(DeTable::new()) };
        Spanned::new(name.span(), empty)
    });
    set_in_value(child.get_mut(), rest, value)
}

fn set_in_value<'i>(
    target: &mut DeValue<'i>,
    path: &[Element],
    value: Spanned<DeValue<'i>>,
) -> Result<(), Problem> {
    match target {
        DeValue::Table(table) => set_in_table(table, path, value),
        DeValue::Array(list) => set_in_list(list, path, value),
        _ => {
            let at = path.first().map_or(0..0, Spanned::span);
            Err((at, "the variable goes deeper than the setting it names".to_owned()))
        }
    }
}

fn set_in_list<'i>(
    list: &mut DeArray<'i>,
    path: &[Element],
    value: Spanned<DeValue<'i>>,
) -> Result<(), Problem> {
    let [named, rest @ ..] = path else { return Err((0..0, "it names nothing".to_owned())) };
    let problem = |text: String| (named.span(), text);
    let index: usize = named
        .get_ref()
        .parse()
        .map_err(|_| problem(format!("{:?} is no number of a list's element", named.get_ref())))?;
    // A gap would leave elements without a value.
    if index > list.len() {
        return Err(problem(format!("the list has {} elements only", list.len())));
    }
    if index == list.len() {
        // The new element becomes a table, unless the value itself is the element.
        list.push(Spanned::new(named.span(), DeValue::Table(DeTable::new())));
    }
    let element = list.get_mut(index).ok_or_else(|| problem("there is no such element".into()))?;
    if rest.is_empty() {
        *element = value;
        return Ok(());
    }
    set_in_value(element.get_mut(), rest, value)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn source(pairs: &[(&str, &str)]) -> Source {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Source::new(Path::new("c.toml"), "a = 1\n").with_variables(overrides(pairs))
    }

    #[test]
    fn elements_of_a_list_come_in_the_order_of_their_numbers() {
        let names = (0..12).rev().map(|index| format!("SPILLWAY__REPLICA__{index}__NAME"));
        let given = overrides(names.map(|name| (name, "x".to_owned())));
        let source = Source::new(Path::new("c.toml"), "").with_variables(given);
        let mut table = DeTable::new();
        apply(&source, &mut table).unwrap();
        let replicas = table.get("replica").unwrap().get_ref().as_array().unwrap();
        assert_eq!(replicas.len(), 12);
    }

    #[test]
    fn every_value_has_its_place_in_the_variable() {
        let source = source(&[("SPILLWAY__A", "[7, { bc = 8 }]"), ("SPILLWAY__X__Y", "text")]);
        let mut table = DeTable::new();
        apply(&source, &mut table).unwrap();
        let (key, list) = table.get_key_value("a").unwrap();
        let list = list.get_ref().as_array().unwrap();
        assert_eq!((source.part(key.span()), source.part(list[0].span())), ("A", "7"));
        let (key, value) = list[1].get_ref().as_table().unwrap().get_key_value("bc").unwrap();
        assert_eq!((source.part(key.span()), source.part(value.span())), ("bc", "8"));
        let inner = table.get("x").unwrap();
        assert_eq!(source.part(inner.span()), "X");
        let value = inner.get_ref().as_table().unwrap().get("y").unwrap();
        assert_eq!(source.part(value.span()), "text");
    }
}
