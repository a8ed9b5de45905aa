//! An answer of `/v1/explain` for people: a sentence, tables of the compared places, and a legend.

use serde_json::{Map, Value, json};
use spillway_node::ReasonKind;

use super::words;
use crate::cluster::text::aligned;

/// Renders a decision: what would happen and why, the facts behind it, and a line for each place
/// with the terms of its cost. A star marks the chosen place.
pub(crate) fn picture(answer: &Value) -> String {
    let mut lines = vec![sentence(answer)];
    lines.extend(facts(answer));
    let tables = [(REPLICAS, replicas(answer)), (REGIONS, regions(answer))];
    let mut legend = Legend::default();
    for (table, places) in &tables {
        if !places.is_empty() {
            lines.extend([String::new(), aligned(&rows(table, places, &mut legend))]);
        }
        if let ("replica", Some(more @ 1..)) = (table.title, answer["candidates_left_out"].as_u64())
        {
            lines.push(format!("and {more} more"));
        }
    }
    lines.extend(legend.lines());
    lines.join("\n")
}

/// Table of the places of one kind.
struct CandidateTable {
    title: &'static str,
    /// Kind of the terms of a cost.
    terms: ReasonKind,
    /// Kinds of the reasons against a place.
    obstacles: &'static [ReasonKind],
}

const REPLICAS: CandidateTable = CandidateTable {
    title: "replica",
    terms: ReasonKind::ReplicaCost,
    obstacles: &[ReasonKind::ReplicaObstacle],
};

const REGIONS: CandidateTable = CandidateTable {
    title: "region",
    terms: ReasonKind::RegionCost,
    // A region that could take the request, and was not chosen, is worded like such a replica.
    obstacles: &[ReasonKind::RegionObstacle, ReasonKind::ReplicaObstacle],
};

/// Describes what would happen, and why.
fn sentence(answer: &Value) -> String {
    let (chosen, region) = (plain(&answer["chosen"]), plain(&answer["region"]));
    let reason = plain(&answer["reason"]);
    let why = words::meaning(reason_kinds(answer), &reason).unwrap_or(reason);
    match answer["decision"].as_str() {
        Some("replica") => {
            let time = answer["predicted"].as_object().map(predicted).unwrap_or_default();
            let place = answer["region"].as_str().map(|region| format!(" in {region}"));
            format!("It would go to {chosen}{}: {why}{time}.", place.unwrap_or_default())
        }
        Some("region") => {
            let there = regions(answer).into_iter().find(|place| place["chosen"] == true);
            let cost = match (there, own(answer)) {
                (Some(there), Some(here)) => {
                    format!(" ({} there, {} here)", ms(&there["cost_ms"]), ms(&here["cost_ms"]))
                }
                _ => String::new(),
            };
            format!("It would be forwarded to {chosen}: {why}{cost}.")
        }
        Some("wait") => format!("It would wait in {region} for a slot: {why}."),
        Some("shed") => format!("It would be rejected for now: {why}."),
        _ => format!("It can't be served: {why}."),
    }
}

/// Returns the kinds that the reason of the decision can be of.
fn reason_kinds(answer: &Value) -> &'static [ReasonKind] {
    match answer["decision"].as_str() {
        Some("replica") => &[ReasonKind::Replica],
        // A session's region is chosen like its replica; all replicas may have asked for a pause.
        Some("region" | "wait") => &[ReasonKind::Region, ReasonKind::Refusal],
        Some("shed") => &[ReasonKind::Shed, ReasonKind::Region, ReasonKind::Refusal],
        _ => &[ReasonKind::Refusal],
    }
}

/// Describes when the first token is expected, and the parts of that time.
fn predicted(predicted: &Map<String, Value>) -> String {
    let number = |name: &str| predicted.get(name).and_then(Value::as_f64).unwrap_or_default();
    let read = number("prompt_tokens") - number("cached_tokens");
    format!(
        "; first token in about {:.0} ms ({:.0} ms of it waiting, {:.0} ms reading {read:.0} of {:.0} \
         tokens)",
        number("first_token_ms"),
        number("wait_ms"),
        number("prefill_ms"),
        number("prompt_tokens")
    )
}

fn facts(answer: &Value) -> Vec<String> {
    let text = |name: &str| plain(&answer[name]);
    let mut lines = vec![
        format!("model {}, route {}, policy {}", text("model"), text("route"), text("policy")),
        format!(
            "{} blocks of prompt, {} of them cached here",
            text("blocks"),
            text("cached_blocks")
        ),
    ];
    if let Some(country) = answer["client_country"].as_str() {
        lines.push(format!("client in {country}"));
    }
    if let Some(places) = answer["may_be_served"].as_str().filter(|places| *places != "anywhere") {
        lines.push(format!("may be served {places}"));
    }
    if let Some(overflow) = answer["overflow"].as_str() {
        lines.push(match answer["decision"].as_str() {
            Some("wait") => format!("after some time the overflow replica {overflow} is asked"),
            _ => format!("the overflow replica {overflow} is asked first"),
        });
    }
    if let Some(rests_ms) = answer["rests_ms"].as_u64() {
        let s = rests_ms as f64 / 1e3;
        lines.push(format!("all replicas asked for a pause: the first for another {s:.1} s"));
    }
    lines
}

fn replicas(answer: &Value) -> Vec<Value> {
    answer["candidates"].as_array().cloned().unwrap_or_default()
}

/// Returns the regions that were compared, this one first.
fn regions(answer: &Value) -> Vec<Value> {
    let mut others = answer["regions"].as_array().cloned().unwrap_or_default();
    for other in others.iter_mut().filter(|other| other["chosen"] != true && other["why"].is_null())
    {
        // It could take the request, but another place costs less.
        other["why"] = json!("not_chosen");
    }
    let cost = |place: &Value| place["cost_ms"].as_f64().unwrap_or(f64::INFINITY);
    others.sort_by(|left, right| cost(left).total_cmp(&cost(right)));
    own(answer).into_iter().chain(others).collect()
}

/// Returns this region as a line of the table; `None` if regions were not compared.
fn own(answer: &Value) -> Option<Value> {
    let terms = answer["own"].as_object()?;
    let cost: f64 = terms.values().filter_map(Value::as_f64).sum();
    let stays = matches!(answer["decision"].as_str(), Some("replica" | "wait"));
    let name = format!("{} (here)", plain(&answer["region"]));
    let why = if stays { Value::Null } else { answer["reason"].clone() };
    let text = why.as_str().and_then(|why| words::meaning(reason_kinds(answer), why));
    Some(json!({
        "name": name, "chosen": stays, "cost_ms": cost, "terms": terms, "why": why, "text": text,
    }))
}

/// Names in the tables, each with its meaning.
#[derive(Debug, Default)]
struct Legend {
    terms: Vec<[String; 2]>,
    reasons: Vec<[String; 2]>,
}

impl Legend {
    fn lines(self) -> Vec<String> {
        let row = |[name, text]: [String; 2]| vec![format!("  {name}"), text];
        let rows = [self.terms, self.reasons].map(|known| known.into_iter().map(row).collect());
        let parts = rows.into_iter().zip(["cost, in milliseconds:", "why not:"]);
        let parts = parts.filter(|(rows, _): &(Vec<Vec<String>>, _)| !rows.is_empty());
        parts.flat_map(|(rows, title)| [String::new(), title.to_owned(), aligned(&rows)]).collect()
    }
}

/// Adds a name to a legend, unless it is there with this meaning.
fn explain(legend: &mut Vec<[String; 2]>, name: String, meaning: Option<String>) {
    let Some(meaning) = meaning else { return };
    let line = [name, meaning];
    if !legend.contains(&line) {
        legend.push(line);
    }
}

/// Lays out places as rows below a heading. Terms that are 0 everywhere have no column.
fn rows(table: &CandidateTable, places: &[Value], legend: &mut Legend) -> Vec<Vec<String>> {
    let counts = |value: &Value| value.as_f64().is_some_and(|number| number.abs() >= 0.05);
    let mut terms: Vec<&str> = Vec::new();
    for (name, value) in places.iter().filter_map(|it| it["terms"].as_object()).flatten() {
        if counts(value) && !terms.contains(&name.as_str()) {
            terms.push(name);
        }
    }
    let short = |name: &str| name.trim_end_matches("_ms").to_owned();
    let known = table.terms.reasons();
    terms.sort_by_key(|name| known.iter().position(|it| it.name == *name).unwrap_or(known.len()));
    for name in &terms {
        explain(&mut legend.terms, short(name), words::meaning(&[table.terms], name));
    }
    for place in places {
        let Some(why) = place["why"].as_str() else { continue };
        let own = place["text"].as_str().map(str::to_owned);
        let meaning = own.or_else(|| words::meaning(table.obstacles, why));
        explain(&mut legend.reasons, why.to_owned(), meaning);
    }
    let fixed = ["", table.title, "cost"].map(str::to_owned).into_iter();
    let heading = fixed.chain(terms.iter().map(|name| short(name))).chain(["why not".to_owned()]);
    let row = |place: &Value| {
        let mark = if place["chosen"] == true { "*" } else { "" }.to_owned();
        let fixed = [mark, plain(&place["name"]), plain(&place["cost_ms"])];
        let of_terms = terms.iter().map(|name| plain(&place["terms"][*name]));
        fixed.into_iter().chain(of_terms).chain([plain(&place["why"])]).collect()
    };
    std::iter::once(heading.collect()).chain(places.iter().map(row)).collect()
}

fn ms(value: &Value) -> String {
    value.as_f64().map_or_else(|| "unknown".to_owned(), |number| format!("{number:.0} ms"))
}

/// Formats a value. Numbers with a fraction are milliseconds, of which one decimal is enough.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.1}", number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, chosen: bool, cost: Value, terms: Value, why: Value) -> Value {
        json!({ "name": name, "chosen": chosen, "cost_ms": cost, "terms": terms, "why": why })
    }

    fn cells(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    #[test]
    fn a_sentence_comes_first_and_each_term_that_counts_has_a_column_and_words() {
        let none = Value::Null;
        let answer = json!({
            "decision": "replica", "chosen": "gpu-b", "reason": "soonest", "route": "chat",
            "region": "eu", "model": "m", "policy": "predicted_latency", "blocks": 16,
            "cached_blocks": 4, "predicted": { "first_token_ms": 41.4, "wait_ms": 1.0,
                "prefill_ms": 40.4, "prompt_tokens": 1024, "cached_tokens": 256 },
            "candidates": [
                place("gpu-b", true, json!(4.0), json!({ "prefill_ms": 4.0, "tie_ms": 0.0 }), none),
                place("gpu-a", false, json!(20.25), json!({ "wait_ms": 18.0 }), json!("busy")),
            ],
            "candidates_left_out": 3,
        });
        let shown = picture(&answer);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[0],
            "It would go to gpu-b in eu: the replica had the lowest predicted cost, which is mostly \
             the time to the first token; first token in about 41 ms (1 ms of it waiting, 40 ms \
             reading 768 of 1024 tokens)."
        );
        assert_eq!(lines[1], "model m, route chat, policy predicted_latency");
        assert_eq!(cells(lines[4]), ["replica", "cost", "wait", "prefill", "why", "not"]);
        assert_eq!(cells(lines[5]), ["*", "gpu-b", "4.0", "-", "4.0", "-"]);
        assert_eq!(cells(lines[6]), ["gpu-a", "20.2", "18.0", "-", "busy"]);
        assert_eq!(lines[7], "and 3 more");
        assert!(
            shown.contains("\n  wait     time until the request's turn comes there\n"),
            "{shown}"
        );
        assert!(
            shown.ends_with("why not:\n  busy  the replica is at its limit of concurrent requests")
        );
    }

    #[test]
    fn the_own_region_stands_beside_the_others() {
        let terms = json!({ "wait_ms": 300.0, "prefill_ms": 100.0 });
        let there = json!({ "network_ms": 80.0 });
        let mut answer = json!({
            "decision": "region", "chosen": "us", "reason": "better", "region": "eu", "own": terms,
            "regions": [place("us", true, json!(80.0), there, Value::Null)],
        });
        let shown = picture(&answer);
        assert!(
            shown.starts_with(
                "It would be forwarded to us: waiting here costs more (80 ms there, 400 ms here)."
            ),
            "{shown}"
        );
        let line = |start: &str, shown: &str| {
            shown.lines().find(|line| line.contains(start)).unwrap_or_default().to_owned()
        };
        assert_eq!(
            cells(&line("(here)", &shown)),
            ["eu", "(here)", "400.0", "-", "300.0", "100.0", "better"]
        );
        assert!(line("us  ", &shown).starts_with('*'), "{shown}");
        answer["decision"] = json!("wait");
        answer["reason"] = json!("none_better");
        let shown = picture(&answer);
        assert!(shown.starts_with("It would wait in eu for a slot: every other"), "{shown}");
        assert!(line("(here)", &shown).starts_with('*'), "{shown}");
    }

    #[test]
    fn a_name_is_worded_as_the_table_that_it_is_in_means_it() {
        let (cost, none) = (json!(10.0), Value::Null);
        let answer = json!({
            "decision": "shed", "reason": "late", "region": "eu", "own": { "wait_ms": 9.0 },
            "candidates": [place("gpu-a", false, cost.clone(), json!({ "context_ms": 3.0 }),
                json!("full"))],
            "regions": [
                place("us", false, cost.clone(), json!({ "network_ms": 80.0 }), json!("full")),
                place("ap", false, cost.clone(), json!({ "network_ms": 90.0 }), json!("late")),
                place("sa", false, cost, json!({ "network_ms": 95.0 }), none),
            ],
        });
        let shown = picture(&answer);
        for line in [
            "It would be rejected for now: the deadline has passed, or would pass before the request \
             is served.",
            "  full        the replica's KV cache or queue is predicted to have no room",
            "  full        the region shows no room for requests from other regions",
            "  late        the deadline has passed, or would pass before the request is served",
            "  late        the reply would come after the deadline, or its first token",
            "  not_chosen  another candidate was preferred",
            "  context  delay of the request",
        ] {
            assert!(shown.contains(line), "{line}\n{shown}");
        }
    }

    #[test]
    fn a_request_that_nobody_can_serve_has_no_tables() {
        let answer = json!({ "decision": "refuse", "reason": "no_replica", "candidates": [] });
        let shown = picture(&answer);
        assert_eq!(
            shown.lines().next(),
            Some("It can't be served: no replica serves this request.")
        );
        assert_eq!(shown.lines().count(), 3, "{shown}");
    }

    #[test]
    fn a_reason_of_a_newer_node_is_shown_as_it_is() {
        let answer = json!({ "decision": "shed", "reason": "full_moon" });
        assert!(picture(&answer).starts_with("It would be rejected for now: full_moon."));
    }
}
