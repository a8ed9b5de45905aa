//! Replicas as a table for people.

use serde_json::Value;

/// The columns: heading, and where the text comes from.
type Column = (&'static str, fn(&Value) -> String);

const COLUMNS: [Column; 9] = [
    ("replica", |member| text(&member["name"])),
    ("pool", |member| text(&member["pool"])),
    ("state", |member| text(&member["state"])),
    ("admission", |member| text(&member["admission"])),
    ("why", |member| text(&member["why"])),
    ("ramp", |member| percent(&member["ramp_permille"])),
    ("limit", |member| number(&member["concurrency_limit"])),
    ("votes", votes),
    ("breakers", |member| member["breakers"].as_array().map_or(0, Vec::len).to_string()),
];

/// One line a replica, columns aligned.
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
    lines.collect::<Vec<_>>().join("\n")
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

/// What each signal says, e.g. `active good, scrape bad`.
fn votes(member: &Value) -> String {
    let Some(votes) = member["votes"].as_object() else { return "-".to_owned() };
    let said = votes.iter().filter_map(|(signal, vote)| {
        let vote = vote.as_str().filter(|vote| *vote != "silent")?;
        Some(format!("{signal} {vote}"))
    });
    let said: Vec<String> = said.collect();
    if said.is_empty() { "-".to_owned() } else { said.join(", ") }
}
