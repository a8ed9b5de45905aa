//! Notes about models that a record names and no replica serves: they may come, and may be slips.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::cluster::client::AdminClient;
use crate::output;

/// Fields of records that name models.
const FIELDS: [&str; 3] = ["alias_of", "fallbacks", "models"];
/// Names that a note lists.
const LISTED_MAX: usize = 8;

/// Writes a note about each model in `fields` of a record that nothing in the cluster serves now.
pub(crate) async fn note_unserved(client: &AdminClient, fields: &Map<String, Value>) {
    let named = named(fields);
    if named.is_empty() {
        return;
    }
    // The change is done. An operator without the right to read the lists gets no note.
    let lists =
        (client.list("replicas").await, client.list("models").await, client.list("splits").await);
    let (Ok(replicas), Ok(models), Ok(splits)) = lists else { return };
    if let Some(note) = unserved(&named, &replicas, [&models, &splits]) {
        output::note(&note);
    }
}

/// Returns the models that a record names.
fn named(fields: &Map<String, Value>) -> BTreeSet<String> {
    let values = FIELDS.iter().filter_map(|field| fields.get(*field));
    let names = values.flat_map(|value| match value {
        Value::Array(all) => all.iter().collect(),
        one => vec![one],
    });
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns a note about the names that no replica serves and no record describes; None without such
/// names, or if no replica is known.
fn unserved(named: &BTreeSet<String>, replicas: &Value, records: [&Value; 2]) -> Option<String> {
    let items = |list: &Value| list["items"].as_array().cloned().unwrap_or_default();
    let served: BTreeSet<String> = items(replicas)
        .iter()
        .flat_map(|replica| replica["record"]["models"].as_array().cloned().unwrap_or_default())
        .filter_map(|model| model.as_str().map(str::to_owned))
        .collect();
    let known: BTreeSet<String> = records
        .into_iter()
        .flat_map(items)
        .filter_map(|item| item["key"].as_str().map(str::to_owned))
        .collect();
    let is_missing = |name: &&String| !served.contains(*name) && !known.contains(*name);
    let missing: Vec<&str> = named.iter().filter(is_missing).map(String::as_str).collect();
    if served.is_empty() || missing.is_empty() {
        return None;
    }
    let shown: Vec<&str> = served.iter().take(LISTED_MAX).map(String::as_str).collect();
    let more = match served.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "warning: no replica of the cluster serves {} now; served: {}{more}",
        missing.join(", "),
        shown.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn note(record: Value) -> Option<String> {
        let replicas = json!({ "items": [{ "record": { "models": ["big", "small"] } }] });
        let models = json!({ "items": [{ "key": "gpt" }] });
        let splits = json!({ "items": [{ "key": "half" }] });
        unserved(&named(record.as_object().unwrap()), &replicas, [&models, &splits])
    }

    #[test]
    fn a_model_that_nothing_serves_is_told_with_what_is_served() {
        let told = note(json!({ "alias_of": "nosuch" })).unwrap();
        assert_eq!(
            told,
            "warning: no replica of the cluster serves nosuch now; served: big, small"
        );
        assert!(note(json!({ "models": ["big", "other"] })).unwrap().contains("serves other now"));
        for known in [json!({ "models": ["big", "gpt", "half"] }), json!({ "title": "x" })] {
            assert_eq!(note(known), None);
        }
        let nothing = json!({ "items": [] });
        let named = BTreeSet::from(["big".to_owned()]);
        assert_eq!(unserved(&named, &nothing, [&nothing, &nothing]), None);
    }
}
