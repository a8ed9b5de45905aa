//! `spillway explain`: the place where a request would go, and why not elsewhere.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::calls::show;
use super::client::AdminClient;
use super::connect::Connect;
use super::text::aligned;

#[derive(Debug, Args)]
#[command(
    after_help = "Example: spillway explain --model llama-3.1-8b --prompt 'Why is the sky blue?'\n\
    Example: spillway explain --body request.json --tenant acme --header 'x-session-id: 7'\n\n\
    The request is sent to no replica. The answer is about this moment and this node."
)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    connect: Connect,
    /// The model that is asked for.
    #[arg(long, required_unless_present = "body")]
    model: Option<String>,
    /// What the user says, in a chat of one message.
    #[arg(long, default_value = "Hello")]
    prompt: String,
    /// A file with the whole body as JSON, instead of model and prompt.
    #[arg(long, conflicts_with_all = ["model", "prompt"])]
    body: Option<PathBuf>,
    /// Where a client would send it.
    #[arg(long, default_value = "/v1/chat/completions")]
    path: String,
    /// A header that a client would send, `name: value`; several times for several.
    #[arg(long = "header", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// Whose request it would be.
    #[arg(long)]
    tenant: Option<String>,
    /// The address of its client, for rules about the countries of clients; unknown, if left out.
    #[arg(long)]
    client: Option<IpAddr>,
}

/// Body of the API request. The explained body is sent unchanged, since cache hits depend on it.
#[derive(Serialize)]
struct ExplainOrder<'a> {
    path: &'a str,
    headers: BTreeMap<&'a str, &'a str>,
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    body: &'a RawValue,
}

/// Asks a node and shows its answer.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses, or the file can't be read.
pub(super) async fn run(args: &ExplainArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    let body = body(args)?;
    let order = ExplainOrder {
        path: &args.path,
        headers: args.headers.iter().map(|(name, value)| (&**name, &**value)).collect(),
        tenant: args.tenant.as_deref(),
        client: args.client,
        body: &body,
    };
    let answer = client.ask_about("/v1/explain", serde_json::to_string(&order)?).await?;
    show(&client, &answer, &picture(&answer))
}

fn body(args: &ExplainArgs) -> Result<Box<RawValue>> {
    let text = match &args.body {
        Some(file) => std::fs::read_to_string(file)
            .with_context(|| format!("{} can't be read", file.display()))?,
        None => {
            let message = json!({ "role": "user", "content": args.prompt });
            json!({ "model": args.model, "messages": [message] }).to_string()
        }
    };
    RawValue::from_string(text.trim().to_owned()).context("the body is no JSON")
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as 'name: value'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Renders the decision, and a line for each candidate with the terms of its cost. A star marks the
/// chosen one.
fn picture(answer: &Value) -> String {
    let text = |name: &str| plain(&answer[name]);
    let mut lines = vec![
        format!("{} {} ({})", text("decision"), text("chosen"), text("reason")),
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
    if let Some(rests_ms) = answer["rests_ms"].as_u64() {
        let s = rests_ms as f64 / 1e3;
        lines.push(format!("all replicas asked to be left alone: the first for another {s:.1} s"));
    }
    for (kind, name) in [("candidates", "replica"), ("regions", "region")] {
        let places = answer[kind].as_array().map(Vec::as_slice).unwrap_or_default();
        if !places.is_empty() {
            lines.extend([String::new(), aligned(&rows(name, places))]);
        }
        if let Some(more @ 1..) = answer[format!("{kind}_left_out")].as_u64() {
            lines.push(format!("and {more} more"));
        }
    }
    lines.join("\n")
}

fn rows(kind: &str, places: &[Value]) -> Vec<Vec<String>> {
    // Candidates differ in their terms, so the columns are all terms that any of them has.
    let mut terms: Vec<&str> = Vec::new();
    for name in places.iter().filter_map(|it| it["terms"].as_object()).flat_map(|it| it.keys()) {
        if !terms.contains(&name.as_str()) {
            terms.push(name);
        }
    }
    let short = |name: &&str| name.trim_end_matches("_ms").to_owned();
    let fixed = ["", kind, "cost_ms"].map(str::to_owned).into_iter();
    let heading = fixed.chain(terms.iter().map(short)).chain(["why not".to_owned()]);
    let row = |place: &Value| {
        let mark = if place["chosen"] == true { "*" } else { "" }.to_owned();
        let fixed = [mark, plain(&place["name"]), plain(&place["cost_ms"])];
        let of_terms = terms.iter().map(|name| plain(&place["terms"][*name]));
        fixed.into_iter().chain(of_terms).chain([plain(&place["why"])]).collect()
    };
    std::iter::once(heading.collect()).chain(places.iter().map(row)).collect()
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

    #[test]
    fn the_chosen_one_is_marked_and_each_term_has_a_column() {
        let none = Value::Null;
        let answer = json!({
            "decision": "replica", "chosen": "gpu-b", "reason": "soonest", "route": "chat",
            "model": "m", "policy": "predicted_latency", "blocks": 16, "cached_blocks": 4,
            "candidates": [
                place("gpu-b", true, json!(4.0), json!({ "prefill_ms": 4.0, "price": 0 }), none),
                place("gpu-a", false, json!(20.25), json!({ "wait_ms": 18.0 }), json!("busy")),
            ],
            "candidates_left_out": 3,
            "regions": [place("us", false, Value::Null, json!({}), json!("not_better"))],
        });
        let shown = picture(&answer);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "replica gpu-b (soonest)");
        assert_eq!(lines[1], "model m, route chat, policy predicted_latency");
        assert_eq!(lines[2], "16 blocks of prompt, 4 of them cached here");
        let cells = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>();
        assert_eq!(cells(4), ["replica", "cost_ms", "prefill", "price", "wait", "why", "not"]);
        assert_eq!(cells(5), ["*", "gpu-b", "4.0", "4.0", "0", "-", "-"]);
        assert_eq!(cells(6), ["gpu-a", "20.2", "-", "-", "18.0", "busy"]);
        assert!(lines[5].starts_with("*  gpu-b"), "{shown}");
        assert_eq!(lines[7], "and 3 more");
        assert_eq!(cells(9), ["region", "cost_ms", "why", "not"]);
        assert_eq!(cells(10), ["us", "-", "not_better"]);
    }

    #[test]
    fn a_request_that_nobody_can_serve_has_no_tables() {
        let answer = json!({ "decision": "refuse", "reason": "no_replica", "candidates": [] });
        let shown = picture(&answer);
        assert_eq!(shown.lines().next(), Some("refuse - (no_replica)"));
        assert_eq!(shown.lines().count(), 3, "{shown}");
    }

    #[test]
    fn a_header_has_a_name_and_a_value() {
        let header = ("x-session-id".to_owned(), "a:b".to_owned());
        assert_eq!(parse_header("x-session-id: a:b"), Ok(header));
        assert!(parse_header("x-session-id").is_err());
    }
}
