//! Overrides from the environment: `SPILLWAY__NODE__REGION=eu` sets `node.region`.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Prefix of every override; two underscores separate path elements, too.
const PREFIX: &str = "SPILLWAY__";

/// A setting from one environment variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Override {
    variable: String,
    text: String,
}

/// Returns the overrides among environment variables, sorted.
pub(crate) fn overrides(environment: impl IntoIterator<Item = (String, String)>) -> Vec<Override> {
    let mut overrides: Vec<Override> = environment
        .into_iter()
        .filter(|(variable, _)| variable.starts_with(PREFIX))
        .map(|(variable, text)| Override { variable, text })
        .collect();
    // The environment has no order, but an element of a list can only follow the one before it. As
    // text, element 10 would come before element 2.
    overrides.sort_by_cached_key(|given| {
        let elements = given.variable.split("__");
        elements.map(|element| (element.parse().ok(), element.to_owned())).collect::<Path>()
    });
    overrides
}

/// Elements of a setting's path, each with its number if it is an element of a list.
type Path = Vec<(Option<usize>, String)>;

/// Puts an override into a parsed document. Elements of lists are named by number, from 0.
///
/// # Errors
/// Returns a sentence that names the variable, if it names a setting that can't be set.
pub(crate) fn apply<'i>(table: &mut DeTable<'i>, given: &'i Override) -> Result<(), String> {
    let path: Vec<String> =
        given.variable[PREFIX.len()..].split("__").map(str::to_ascii_lowercase).collect();
    set_in_table(table, &path, value_of(&given.text))
        .map_err(|problem| format!("environment variable {}: {problem}", given.variable))
}

/// Reads a number, boolean or list; any other text is a string.
fn value_of(text: &str) -> DeValue<'_> {
    match DeValue::parse(text).map(Spanned::into_inner) {
        // Quotes that are still there belong to the text: the shell took away its own.
        Ok(value) if !value.is_str() => value,
        _ => DeValue::String(text.into()),
    }
}

fn set_in_table<'i>(
    table: &mut DeTable<'i>,
    path: &[String],
    value: DeValue<'i>,
) -> Result<(), String> {
    let [name, rest @ ..] = path else { return Err("it names nothing".to_owned()) };
    if name.is_empty() {
        return Err("it has an empty path element".to_owned());
    }
    // An empty span tells errors that the value does not come from the file.
    let key = Spanned::new(0..0, name.clone().into());
    if rest.is_empty() {
        table.insert(key, Spanned::new(0..0, value));
        return Ok(());
    }
    // The file need not have the setting: then the next path element tells what to create.
    let is_list = rest[0].parse::<usize>().is_ok();
    let child = table.entry(key).or_insert_with(|| {
        let empty =
            if is_list { DeValue::Array(DeArray::new()) } else { DeValue::Table(DeTable::new()) };
        Spanned::new(0..0, empty)
    });
    set_in_value(child.get_mut(), rest, value)
}

fn set_in_value<'i>(
    target: &mut DeValue<'i>,
    path: &[String],
    value: DeValue<'i>,
) -> Result<(), String> {
    match target {
        DeValue::Table(table) => set_in_table(table, path, value),
        DeValue::Array(list) => set_in_list(list, path, value),
        _ => Err("it goes deeper than the setting it names".to_owned()),
    }
}

fn set_in_list<'i>(
    list: &mut DeArray<'i>,
    path: &[String],
    value: DeValue<'i>,
) -> Result<(), String> {
    let [index, rest @ ..] = path else { return Err("it names nothing".to_owned()) };
    let index: usize = index.parse().map_err(|_| format!("{index} is no list index"))?;
    // A gap would leave elements without a value.
    if index > list.len() {
        return Err(format!("the list has {} elements only", list.len()));
    }
    if index == list.len() {
        // The new element becomes a table, unless the value itself is the element.
        list.push(Spanned::new(0..0, DeValue::Table(DeTable::new())));
    }
    let element = list.get_mut(index).ok_or("the list has no such element")?;
    if rest.is_empty() {
        *element = Spanned::new(0..0, value);
        return Ok(());
    }
    set_in_value(element.get_mut(), rest, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_a_list_come_in_the_order_of_their_numbers() {
        let names = (0..12).rev().map(|index| format!("SPILLWAY__REPLICA__{index}__NAME"));
        let given = overrides(names.map(|name| (name, "x".to_owned())));
        let mut table = DeTable::new();
        for given in &given {
            apply(&mut table, given).unwrap();
        }
        let replicas = table.get("replica").unwrap().get_ref().as_array().unwrap();
        assert_eq!(replicas.len(), 12);
    }
}
