//! `spillway status`: a node and its cluster, in a sentence first.

use anyhow::{Result, bail};
use serde_json::Value;

use crate::cluster::client::AdminClient;
use crate::output;
use crate::screen::{Table, duration, width};

/// Shows a node and the nodes of its cluster.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses, or if it is not healthy. The status is
/// printed first, since it contains the reason.
pub(crate) async fn run(client: &AdminClient) -> Result<()> {
    let answer = client.read("/v1/node").await?;
    let docs = answer["problems"][0]["doc"].as_str().map(|page| client.address_of(page));
    let text = if client.as_json {
        answer.to_string()
    } else {
        picture(&answer, docs.as_deref(), width())
    };
    output::line(&text)?;
    if answer["health"] == "healthy" {
        return Ok(());
    }
    // The first line is enough for people and scripts.
    bail!(output::Silent)
}

/// Formats the status of a node in lines of at most `width` characters, with the page of the docs
/// about its most urgent problem.
fn picture(answer: &Value, docs: Option<&str>, width: usize) -> String {
    let mut lines = vec![text(&answer["summary"])];
    lines.extend(docs.map(|address| format!("see {address}")));
    lines.push(String::new());
    lines.extend(facts(answer));
    if answer["node"]["is_in_cluster"] == true {
        lines.extend([String::new(), nodes(answer, width)]);
    }
    lines.join("\n")
}

fn facts(answer: &Value) -> Vec<String> {
    let node = &answer["node"];
    let up = duration(node["uptime_s"].as_u64().unwrap_or(0));
    let version = text(&node["version"]);
    let region = text(&node["region"]);
    let line = |name: &str, value: String| format!("{name:<10}{value}");
    let mut lines = vec![
        line("node", format!("{} in region {region}", text(&node["name"]))),
        line("version", format!("{version}, up for {up}")),
        line("config", text(&node["config_file"])),
    ];
    let listeners = node["listeners"].as_array().into_iter().flatten();
    lines.extend(listeners.map(|listener| line("listens", listens(listener))));
    lines.push(line("replicas", replicas(&node["replicas"])));
    let discoveries = node["discoveries"].as_array().into_iter().flatten();
    lines.extend(discoveries.map(|it| line("discovery", discovery(it))));
    lines.extend(node["data"].as_object().map(|_| line("data", room(&node["data"]))));
    if let Some(log) = answer["log"].as_object() {
        let number =
            |name: &str| log[name].as_u64().map_or_else(|| "-".to_owned(), |it| it.to_string());
        let leader = log["leader"]["node"].as_str().unwrap_or("nobody");
        lines.push(line("cluster", text(&log["cluster"])));
        lines.push(line(
            "log",
            format!(
                "{leader} leads in term {}; {} of {} entries applied here",
                number("term"),
                number("applied_index"),
                number("last_index"),
            ),
        ));
    }
    lines
}

/// Returns the data folder, and the free room of its file system.
fn room(data: &Value) -> String {
    let mib = |name: &str| data[name].as_u64().unwrap_or(0) >> 20;
    format!("{}: {} of {} MiB free", text(&data["folder"]), mib("free_bytes"), mib("total_bytes"))
}

fn listens(listener: &Value) -> String {
    let auth = match listener["auth"].as_str() {
        Some("keys") => "clients need a key",
        Some("headers") => "a trusted proxy names the tenant",
        _ => "no authentication",
    };
    let tls = if listener["is_tls"] == true { ", TLS" } else { "" };
    format!("{}: {auth}{tls}", text(&listener["address"]))
}

fn replicas(replicas: &Value) -> String {
    let number = |name: &str| replicas[name].as_u64().unwrap_or(0);
    let (up, known, draining) = (number("up"), number("known"), number("draining"));
    let drained = if draining > 0 { format!(", {draining} drained") } else { String::new() };
    let lacking = replicas["lacking"].as_array().into_iter().flatten();
    let lacking: String =
        lacking.map(|it| format!(", {} {}", text(&it["name"]), text(&it["state"]))).collect();
    format!("{up} of {known} up{drained}{lacking}")
}

/// Returns the state of a discovery, with the age of its last answer and its last failure.
fn discovery(it: &Value) -> String {
    let answered = match it["answered_ms"].as_u64() {
        Some(age_ms) => format!(", answered {} ago", duration(age_ms / 1_000)),
        None => ", never answered".to_owned(),
    };
    let failure = it["failure"].as_str().map(|failure| format!(": {failure}")).unwrap_or_default();
    let (name, state, source) = (text(&it["name"]), text(&it["state"]), text(&it["source"]));
    let replicas = it["replicas"].as_u64().unwrap_or(0);
    format!("{name} ({source}): {state}, {replicas} replicas{answered}{failure}")
}

fn nodes(answer: &Value, width: usize) -> String {
    let rows = answer["nodes"].as_array().into_iter().flatten().map(|node| {
        let number =
            |name: &str| node[name].as_f64().map_or_else(|| "-".to_owned(), |it| it.to_string());
        let state = match node["silent_ms"].as_u64() {
            Some(silent_ms) => format!("silent for {}", duration(silent_ms / 1_000)),
            None => text(&node["state"]),
        };
        vec![
            text(&node["name"]),
            text(&node["region"]),
            text(&node["role"]),
            state,
            number("lag_entries"),
            text(&node["version"]),
            number("rtt_ms"),
            text(&node["fault"]),
        ]
    });
    let headings = ["node", "region", "role", "state", "lag", "version", "rtt ms", "fault"];
    let rows: Vec<Vec<String>> = rows.collect();
    let is_faultless = rows.iter().all(|row| row[7] == "-");
    let table = if is_faultless {
        let rows = rows.into_iter().map(|row| row[..7].to_vec());
        Table::new(&headings[..7], rows)
    } else {
        Table::new(&headings, rows)
    };
    table.dropping(&["fault", "version", "region"]).text(width)
}

fn text(value: &Value) -> String {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node() -> Value {
        json!({
            "name": "us-1", "region": "us-east-1", "version": "0.1.0", "uptime_s": 11_100,
            "config_file": "/etc/spillway/spillway.toml", "is_in_cluster": false,
            "listeners": [{ "address": "0.0.0.0:8080", "auth": "keys", "is_tls": true }],
            "replicas": { "known": 2, "up": 1, "draining": 0,
                "lacking": [{ "name": "gpu-b", "state": "down" }] },
            "data": { "folder": "/var/lib/spillway", "free_bytes": 5_u64 << 20,
                "total_bytes": 64_u64 << 20 },
        })
    }

    #[test]
    fn a_node_alone_is_a_sentence_and_its_facts() {
        let answer = json!({ "summary": "degraded: it is", "node": node(), "log": null });
        let lines = [
            "degraded: it is",
            "",
            "node      us-1 in region us-east-1",
            "version   0.1.0, up for 3 h 5 min",
            "config    /etc/spillway/spillway.toml",
            "listens   0.0.0.0:8080: clients need a key, TLS",
            "replicas  1 of 2 up, gpu-b down",
            "data      /var/lib/spillway: 5 of 64 MiB free",
        ];
        assert_eq!(picture(&answer, None, usize::MAX).lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn nodes_of_a_cluster_are_a_table_that_fits() {
        let mut node = node();
        node["is_in_cluster"] = true.into();
        let answer = json!({
            "summary": "degraded", "node": node,
            "log": { "cluster": "c", "leader": { "node": "us-1" }, "term": 3, "applied_index": 9,
                "last_index": 10 },
            "nodes": [
                { "name": "us-1", "region": "us-east-1", "role": "leader", "state": "this node",
                  "lag_entries": 0, "version": "0.1.0" },
                { "name": "eu-1", "region": "eu-central-1", "role": "voter", "state": "silent",
                  "silent_ms": 12_400, "fault": "timed out" },
            ],
        });
        let shown = picture(&answer, None, 80);
        assert!(shown.contains("log       us-1 leads in term 3; 9 of 10 entries"), "{shown}");
        let last = shown.lines().last().unwrap();
        assert_eq!(
            last.split_whitespace().collect::<Vec<_>>(),
            [
                "eu-1",
                "eu-central-1",
                "voter",
                "silent",
                "for",
                "12",
                "s",
                "-",
                "-",
                "-",
                "timed",
                "out"
            ]
        );
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    }
}
