//! Replicas as a table for people.

use serde_json::Value;

/// Column: its heading, and the function that formats its cells.
type Column = (&'static str, fn(&Value) -> String);

const COLUMNS: [Column; 10] = [
    ("replica", |member| text(&member["name"])),
    ("kind", kind),
    ("pool", |member| text(&member["pool"])),
    ("state", |member| text(&member["state"])),
    ("admission", |member| text(&member["admission"])),
    ("why", |member| text(&member["why"])),
    ("ramp", |member| percent(&member["ramp_permille"])),
    ("limit", |member| number(&member["concurrency_limit"])),
    ("votes", votes),
    ("breakers", breakers),
];

/// Formats one line per replica, with aligned columns, and below them the models that replicas
/// lack.
pub(crate) fn table(members: &Value) -> String {
    let rows: Vec<Vec<String>> = std::iter::once(headings())
        .chain(members.as_array().into_iter().flatten().map(cells))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..COLUMNS.len()).map(|column| width(column).unwrap_or(0)).collect();
    let lines = rows.iter().map(|row| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    let wrong = members.as_array().into_iter().flatten().filter_map(wrong_models);
    lines.chain(wrong).collect::<Vec<_>>().join("\n")
}

/// Returns a line about a replica that lacks models of the config; `None` if it has all of them, or
/// names none.
fn wrong_models(member: &Value) -> Option<String> {
    let names = |models: &Value| -> Vec<String> {
        models.as_array().into_iter().flatten().map(text).collect()
    };
    let denied = names(&member["models_denied"]);
    let told = names(&member["models_told"]);
    let (name, told) = (text(&member["name"]), told.join(", "));
    (!denied.is_empty()).then(|| format!("{name} serves {told}, not {}", denied.join(", ")))
}

/// Returns the software of a replica, marked with a star if it was recognised.
fn kind(member: &Value) -> String {
    let mark = if member["is_kind_recognised"] == true { "*" } else { "" };
    format!("{}{mark}", text(&member["kind"]))
}

/// Returns the number of models whose circuit breaker on the replica is not closed.
fn breakers(member: &Value) -> String {
    let breakers = member["breakers"].as_array().into_iter().flatten();
    breakers.filter(|breaker| breaker["state"] != "closed").count().to_string()
}

fn headings() -> Vec<String> {
    COLUMNS.iter().map(|(heading, _)| (*heading).to_owned()).collect()
}

fn cells(member: &Value) -> Vec<String> {
    COLUMNS.iter().map(|(_, cell)| cell(member)).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

fn number(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn percent(permille: &Value) -> String {
    permille.as_u64().map_or_else(|| "-".to_owned(), |share| format!("{} %", share / 10))
}

/// Returns the vote of each signal, e.g. `active good, scrape bad`.
fn votes(member: &Value) -> String {
    let Some(votes) = member["votes"].as_object() else { return "-".to_owned() };
    let said = votes.iter().filter_map(|(signal, vote)| {
        let vote = vote.as_str().filter(|vote| *vote != "silent")?;
        Some(format!("{signal} {vote}"))
    });
    let said: Vec<String> = said.collect();
    if said.is_empty() { "-".to_owned() } else { said.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn breakers_that_are_closed_do_not_count() {
        let breaker = |state: &str| json!({"model": "m", "state": state});
        let member = |states: &[&str]| {
            let states: Vec<Value> = states.iter().map(|state| breaker(state)).collect();
            breakers(&json!({"breakers": states}))
        };
        assert_eq!(member(&["closed", "closed"]), "0");
        assert_eq!(member(&["closed", "open", "trial"]), "2");
        assert_eq!(breakers(&json!({})), "0");
    }

    #[test]
    fn a_kind_that_was_recognised_is_marked() {
        assert_eq!(kind(&json!({"kind": "vllm", "is_kind_recognised": true})), "vllm*");
        assert_eq!(kind(&json!({"kind": "vllm", "is_kind_recognised": false})), "vllm");
        assert_eq!(kind(&json!({"kind": null, "is_kind_recognised": false})), "-");
    }

    #[test]
    fn a_replica_that_has_other_models_is_told_below_the_table() {
        let member =
            json!({"name": "gpu-a", "models_told": ["llama-3.1-8b"], "models_denied": ["llama"]});
        let shown = table(&json!([member, {"name": "gpu-b", "models_told": null}]));
        assert_eq!(shown.lines().last(), Some("gpu-a serves llama-3.1-8b, not llama"));
        assert_eq!(shown.lines().count(), 4);
    }
}
