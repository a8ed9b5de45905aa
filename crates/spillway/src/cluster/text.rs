//! Answers as text for people.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::output;
use crate::screen::{Table, cells};

/// Column: its heading, and the JSON pointer of its value in an item.
pub(crate) type Column = (&'static str, &'static str);

/// Formats one line per item, with aligned columns.
pub(crate) fn table(columns: &[Column], items: &Value) -> String {
    records(columns, items).text(usize::MAX)
}

/// Makes a table of records, one line per item. In a narrow terminal it is shown without versions and
/// titles first.
pub(crate) fn records(columns: &[Column], items: &Value) -> Table {
    let headings: Vec<&str> = columns.iter().map(|(heading, _)| *heading).collect();
    let cells = |item: &Value| {
        let cell = |(_, pointer): &Column| {
            item.pointer(pointer).map_or_else(absent, |it| cell(pointer, it))
        };
        columns.iter().map(cell).collect()
    };
    let items = items.as_array().into_iter().flatten();
    Table::new(&headings, items.map(cells)).dropping(&["version", "title"])
}

/// Returns a value of a table in words: moments as date and time, roles of nodes as when they vote.
fn cell(pointer: &str, found: &Value) -> String {
    match (pointer, found) {
        (_, Value::Bool(true)) => "yes".to_owned(),
        (_, Value::Bool(false)) => "no".to_owned(),
        (_, Value::Number(at)) if pointer.ends_with("/expires_ms") => {
            at.as_u64().map_or_else(|| value(found), moment)
        }
        ("/record/role", Value::String(role)) if role == "any" => "if needed".to_owned(),
        ("/record/role", Value::String(role)) if role == "learner" => "never".to_owned(),
        _ => value(found),
    }
}

/// Formats one line per row, with aligned columns. All rows have as many cells as the first.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let rows: Vec<_> = rows.iter().cloned().map(cells).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let lines = rows.iter().map(|row| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats a moment in milliseconds since 1970: date and time in UTC.
pub(crate) fn moment(at_ms: u64) -> String {
    let text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms));
    // Without the name of the day, which comes first, and the zone, which comes last.
    text.get(5..25).unwrap_or(&text).to_owned()
}

/// Formats one line for each value in an item.
pub(crate) fn facts(item: &Value) -> String {
    let lines = leaves(item).into_iter().map(|(path, value)| {
        // Indented, so that no value looks like the next one.
        format!("{}: {}", output::cell(&path), value.replace('\n', "\n  "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the greatest age of a stale answer; None if the answer is up to date.
pub(crate) fn staleness(answer: &Value) -> Option<String> {
    if answer["consistency"] != "stale" {
        return None;
    }
    let index = answer["index"].as_u64().unwrap_or(0);
    let age = match answer["age_ms"].as_u64() {
        Some(age_ms) => format!("up to {}.{} s old", age_ms / 1_000, age_ms % 1_000 / 100),
        None => "from a node that has never known a leader".to_owned(),
    };
    Some(format!("stale: as of entry {index}, {age}"))
}

/// Formats the changes of a dry run: each record with its values before and after, where they
/// differ.
pub(crate) fn diff(answer: &Value) -> String {
    let changes = answer["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if changes.is_empty() {
        return "nothing would change".to_owned();
    }
    changes.iter().flat_map(change).collect::<Vec<_>>().join("\n")
}

fn change(change: &Value) -> Vec<String> {
    let (before, after) = (&change["before"], &change["after"]);
    let sign = match (before.is_null(), after.is_null()) {
        (true, _) => '+',
        (_, true) => '-',
        _ => '~',
    };
    let name = format!("{sign} {} {}", value(&change["resource"]), value(&change["key"]));
    let (before, after) = (leaves(before), leaves(after));
    // The version is that of the entry to come, which is not known yet.
    let is_shown = |(path, _): &&(String, String)| !matches!(path.as_str(), "version" | "key");
    let gone = before.iter().filter(|leaf| !after.contains(leaf)).filter(is_shown);
    let new = after.iter().filter(|leaf| !before.contains(leaf)).filter(is_shown);
    let gone = gone.map(|(path, value)| format!("  - {path}: {value}"));
    let new = new.map(|(path, value)| format!("  + {path}: {value}"));
    std::iter::once(name).chain(gone).chain(new).collect()
}

/// Returns every value in an item, with its path. A list counts as one value.
pub(crate) fn leaves(item: &Value) -> Vec<(String, String)> {
    let Value::Object(members) = item else { return Vec::new() };
    let mut all = Vec::new();
    for (name, member) in members {
        let inner = leaves(member);
        if inner.is_empty() {
            if !member.is_null() {
                all.push((name.clone(), value(member)));
            }
        } else {
            all.extend(inner.into_iter().map(|(path, value)| (format!("{name}.{path}"), value)));
        }
    }
    all
}

fn value(value: &Value) -> String {
    match value {
        Value::Null => absent(),
        Value::String(text) if text.is_empty() => absent(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => absent(),
        Value::Array(items) if items.iter().all(|item| !item.is_object()) => {
            items.iter().map(self::value).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

/// Returns the text for a missing value.
pub(crate) fn absent() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_and_what_is_missing_is_a_dash() {
        let items = json!([
            { "key": "a", "record": { "models": ["m", "n"] } },
            { "key": "longer", "record": { "models": [] } },
        ]);
        let columns = [("name", "/key"), ("models", "/record/models"), ("none", "/none")];
        assert_eq!(
            table(&columns, &items),
            "name    models  none\na       m,n     -\nlonger  -       -"
        );
    }

    #[test]
    fn tables_say_moments_rights_and_votes_in_words() {
        let items = json!([{ "key": "a", "info": { "operators": true, "is_revoked": false },
            "record": { "role": "any", "expires_ms": 1_795_732_541_049_u64 } }]);
        let columns = [
            ("node", "/key"),
            ("votes", "/record/role"),
            ("may order", "/info/operators"),
            ("revoked", "/info/is_revoked"),
            ("ends (UTC)", "/record/expires_ms"),
        ];
        let shown = table(&columns, &items);
        let row = shown.lines().nth(1).unwrap();
        let cells: Vec<&str> = row.split("  ").filter(|it| !it.is_empty()).map(str::trim).collect();
        assert_eq!(cells, ["a", "if needed", "yes", "no", "26 Nov 2026 22:35:41"]);
    }

    #[test]
    fn a_difference_shows_what_differs() {
        let item = |state: &str, version: u64| json!({ "key": "eu", "version": version, "record": { "state": state, "price_ms": 1 } });
        let answer = |before: Value, after: Value| {
            let change =
                json!({ "resource": "regions", "key": "eu", "before": before, "after": after });
            diff(&json!({ "changes": [change] }))
        };
        let updated = answer(item("active", 1), item("draining", 2));
        assert_eq!(updated, "~ regions eu\n  - record.state: active\n  + record.state: draining");
        let created = answer(Value::Null, item("active", 1));
        assert_eq!(created, "+ regions eu\n  + record.price_ms: 1\n  + record.state: active");
        assert!(answer(item("active", 1), Value::Null).starts_with("- regions eu\n  - "));
        assert_eq!(diff(&json!({ "changes": [] })), "nothing would change");
    }

    #[test]
    fn only_what_is_stale_is_called_so() {
        assert_eq!(staleness(&json!({ "consistency": "linearizable", "index": 3 })), None);
        let stale = json!({ "consistency": "stale", "index": 3, "age_ms": 2_345 });
        assert_eq!(staleness(&stale).unwrap(), "stale: as of entry 3, up to 2.3 s old");
    }
}
