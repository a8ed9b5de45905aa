//! Replicas as a table for people.

use serde_json::Value;

use crate::screen::{Table, duration};

/// Column: its heading, and the function that formats its cells.
type Column = (&'static str, fn(&Value) -> String);

const COLUMNS: [Column; 12] = [
    ("replica", |member| text(&member["name"])),
    ("address", address),
    ("state", state),
    ("in flight", in_flight),
    ("queue", |member| rounded(&member["queued"])),
    ("ms", |member| rounded(&member["latency_ms"])),
    ("p99 ms", |member| rounded(&member["p99_ms"])),
    ("breakers", breakers),
    ("models", models),
    ("kind", kind),
    ("pool", |member| text(&member["pool"])),
    ("votes", votes),
];

/// Columns in the order in which a narrow terminal is spared them.
const DROPPED: [&str; 7] = ["votes", "pool", "kind", "p99 ms", "models", "queue", "breakers"];

/// Mark of a kind that the node recognised by itself, and its meaning below the table.
const RECOGNISED_MARK: &str = "*";
const RECOGNISED: &str =
    "* recognised by its metrics page; docs/reference/tables.md explains the columns";

/// Models that a cell lists at most.
const MODELS_MAX: usize = 2;
/// Formats one line per replica of at most `width` characters, and below them the problems: slow
/// replicas, open circuit breakers, and models that replicas lack. A mark in the table is
/// explained.
pub(crate) fn table(members: &Value, width: usize) -> String {
    let headings = COLUMNS.map(|(heading, _)| heading);
    let members = members.as_array().map(Vec::as_slice).unwrap_or_default();
    let rows = members.iter().map(|member| COLUMNS.iter().map(|(_, cell)| cell(member)).collect());
    let table = Table::new(&headings, rows.collect::<Vec<_>>()).dropping(&DROPPED).text(width);
    let wrong = members.iter().filter_map(|it| wrong_models(it).or_else(|| hidden_models(it)));
    let open = members.iter().flat_map(open_breakers);
    let slow = members.iter().filter_map(slow);
    // Only where the column was not dropped.
    let mark = table.contains(RECOGNISED_MARK).then(|| RECOGNISED.to_owned());
    std::iter::once(table)
        .chain(slow)
        .chain(open)
        .chain(wrong)
        .chain(mark)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns a line about a replica whose first tokens come much later than those of others; `None` if
/// the node does not call it slow.
fn slow(member: &Value) -> Option<String> {
    let usual_ms = member["slower_than_ms"].as_f64()?;
    let (name, own_ms) = (text(&member["name"]), member["latency_ms"].as_f64()?);
    Some(format!(
        "{name} is slow: its first token takes {own_ms:.0} ms, that of others {usual_ms:.0} ms"
    ))
}

/// Returns a line about a replica that lacks models of the config; `None` if it has all of them, or
/// names none.
fn wrong_models(member: &Value) -> Option<String> {
    let denied = names(&member["models_denied"]);
    let told = names(&member["models_told"]);
    let (name, told) = (text(&member["name"]), told.join(", "));
    (!denied.is_empty()).then(|| format!("{name} serves {told}, not {}", denied.join(", ")))
}

/// Returns a line about a replica that serves and does not show its models; `None` for others.
fn hidden_models(member: &Value) -> Option<String> {
    let reason = member["reason"].as_str().filter(|_| member["models_status"].is_u64())?;
    Some(format!("{}: {reason}", text(&member["name"])))
}

/// Returns a line for each model whose circuit breaker on the replica is not closed.
fn open_breakers(member: &Value) -> Vec<String> {
    let name = text(&member["name"]);
    let open = open(member).map(|breaker| {
        let (model, state) = (text(&breaker["model"]), text(&breaker["state"]));
        format!("{name}: the circuit breaker of {model} is in state {state}")
    });
    open.collect()
}

fn open(member: &Value) -> impl Iterator<Item = &Value> {
    let breakers = member["breakers"].as_array().into_iter().flatten();
    breakers.filter(|breaker| breaker["state"] != "closed")
}

/// Returns the number of models whose circuit breaker is not closed; `-` if there are none.
fn breakers(member: &Value) -> String {
    match open(member).count() {
        0 => "-".to_owned(),
        count => count.to_string(),
    }
}

/// Returns where the replica is, without the scheme that most have.
fn address(member: &Value) -> String {
    let url = text(&member["url"]);
    url.strip_prefix("http://").map_or_else(|| url.clone(), str::to_owned)
}

/// Returns the state, with its reason unless the replica serves as usual.
fn state(member: &Value) -> String {
    let state = text(&member["state"]).replace('_', " ");
    let ramp = member["ramp_permille"].as_u64().filter(|ramp| *ramp < 1_000);
    let pause = member["busy_for_ms"].as_u64();
    match (member["reason"].as_str(), ramp, pause) {
        _ if state == "serving" => state,
        (_, _, Some(pause_ms)) if state == "busy" => {
            format!("busy for {}", duration(pause_ms / 1_000))
        }
        (_, Some(ramp), _) if state == "ramping" => format!("ramping {} %", ramp / 10),
        (Some(reason), ..) => format!("{state}: {reason}"),
        _ => state,
    }
}

/// Returns the requests of this node at the replica, and how many it may have at once.
fn in_flight(member: &Value) -> String {
    let in_flight = rounded(&member["in_flight"]);
    let limit = member["concurrency_limit"].as_u64();
    limit.map_or_else(|| in_flight.clone(), |limit| format!("{in_flight} of {limit}"))
}

/// Returns the first models of a replica, and how many there are beside them.
fn models(member: &Value) -> String {
    let models = names(&member["models"]);
    match models.len() {
        0 => "-".to_owned(),
        count if count <= MODELS_MAX => models.join(", "),
        count => format!("{} +{}", models[0], count - 1),
    }
}

/// Returns the software of a replica, marked with a star if it was recognised.
fn kind(member: &Value) -> String {
    let mark = if member["is_kind_recognised"] == true { RECOGNISED_MARK } else { "" };
    format!("{}{mark}", text(&member["kind"]))
}

fn names(names: &Value) -> Vec<String> {
    names.as_array().into_iter().flatten().map(text).collect()
}

fn text(value: &Value) -> String {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}

fn rounded(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |number| format!("{number:.0}"))
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

    fn member() -> Value {
        json!({
            "name": "gpu-a", "url": "http://10.20.30.40:8000", "models": ["m-1", "m-2", "m-3"],
            "state": "down", "reason": "connection refused", "in_flight": 12, "concurrency_limit": 64,
            "queued": 3.4, "latency_ms": 120.4, "p99_ms": 900.0, "pool": "default",
            "kind": "vllm", "is_kind_recognised": true, "ramp_permille": 1_000,
            "votes": { "active": "bad", "deep": "silent" },
            "breakers": [{ "model": "m-1", "state": "open" }, { "model": "m-2", "state": "closed" }],
        })
    }

    #[test]
    fn a_wide_terminal_shows_all_and_a_narrow_one_fits() {
        let wide = table(&json!([member()]), usize::MAX);
        let lines: Vec<&str> = wide.lines().collect();
        let cells: Vec<&str> =
            lines[1].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(
            cells,
            [
                "gpu-a",
                "10.20.30.40:8000",
                "down: connection refused",
                "12 of 64",
                "3",
                "120",
                "900",
                "1",
                "m-1 +2",
                "vllm*",
                "default",
                "active bad"
            ]
        );
        assert_eq!(lines[2], "gpu-a: the circuit breaker of m-1 is in state open");
        assert_eq!(lines.last(), Some(&RECOGNISED));
        let narrow = table(&json!([member()]), 80);
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        for shown in ["gpu-a", "10.20.30.40:8000", "down: connection refused", "12 of 64"] {
            assert!(narrow.contains(shown), "{narrow}");
        }
    }

    #[test]
    fn a_replica_that_is_slower_than_its_like_is_named_below_the_table() {
        let of = |slower_than_ms: Value| json!({ "name": "d", "models": ["m"], "latency_ms": 150, "slower_than_ms": slower_than_ms });
        let last = |member| table(&json!([member]), usize::MAX).lines().last().map(str::to_owned);
        assert_eq!(
            last(of(json!(50.0))).as_deref(),
            Some("d is slow: its first token takes 150 ms, that of others 50 ms")
        );
        assert!(!last(of(Value::Null)).is_some_and(|line| line.contains("slow")));
    }

    #[test]
    fn a_state_says_why_unless_all_is_well() {
        let of = |changes: Value| {
            let mut member = member();
            for (name, value) in changes.as_object().unwrap() {
                member[name] = value.clone();
            }
            state(&member)
        };
        assert_eq!(of(json!({ "state": "serving" })), "serving");
        assert_eq!(of(json!({ "state": "ramping", "ramp_permille": 450 })), "ramping 45 %");
        assert_eq!(of(json!({ "state": "busy", "busy_for_ms": 4_000 })), "busy for 4 s");
        let warming = "gets its warm-up prompts";
        let shown = of(json!({ "state": "warming_up", "reason": warming }));
        assert_eq!(shown, "warming up: gets its warm-up prompts");
        assert_eq!(of(json!({ "state": "standby", "reason": null })), "standby");
    }

    #[test]
    fn a_replica_that_has_other_models_is_told_below_the_table() {
        let member =
            json!({"name": "gpu-a", "models_told": ["llama-3.1-8b"], "models_denied": ["llama"]});
        let shown = table(&json!([member, {"name": "gpu-b", "models_told": null}]), usize::MAX);
        assert_eq!(shown.lines().last(), Some("gpu-a serves llama-3.1-8b, not llama"));
        assert_eq!(shown.lines().count(), 4);
    }
}
