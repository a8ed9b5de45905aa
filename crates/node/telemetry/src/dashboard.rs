//! Grafana dashboard, made from the catalog: a row of panels to look at first, then a folded row
//! for each group with a panel for each metric.

use serde_json::{Value, json};

use crate::catalog::{GROUPS, MetricSpec};

/// Columns of Grafana's grid.
const COLUMNS: usize = 24;
/// Width and height of a panel in that grid.
const PANEL: [usize; 2] = [8, 7];

/// Panels that an engineer on call looks at first: title, unit and query.
const FIRST: [(&str, &str, &str); 9] = [
    ("Requests", "reqps", "sum by (instance) (rate(spillway_requests_total[1m]))"),
    (
        "Failed, without refusals",
        "percentunit",
        r#"sum by (instance) (rate(spillway_requests_total{status=~"5..",status!="503"}[1m])) / sum by (instance) (rate(spillway_requests_total[1m]))"#,
    ),
    ("Refused, by reason", "reqps", "sum by (instance, reason) (rate(spillway_sheds_total[1m]))"),
    (
        "First token, 95th percentile",
        "s",
        "histogram_quantile(0.95, sum by (le, instance) (rate(spillway_time_to_first_token_seconds_bucket[1m])))",
    ),
    ("Waiting for a slot", "short", "sum by (instance, model) (spillway_waiting)"),
    (
        "Sent to other regions",
        "reqps",
        "sum by (instance, region, result) (rate(spillway_spill_requests_total[1m]))",
    ),
    ("Regions in reach", "short", "sum by (instance) (spillway_region_reachable)"),
    ("Replicas by standing", "short", "sum by (instance, admission) (spillway_replica_admission)"),
    (
        "Prompt tokens found in caches",
        "percentunit",
        r#"sum by (model) (rate(spillway_tokens_total{kind="cached"}[5m])) / sum by (model) (rate(spillway_tokens_total{kind="prompt"}[5m]))"#,
    ),
];

/// Returns deploy/observability/dashboard.json.
#[must_use]
pub fn dashboard() -> Value {
    let first = FIRST.iter().map(|(title, unit, query)| panel(title, unit, query, ""));
    let mut panels = placed(first.collect(), 0);
    let below = FIRST.len().div_ceil(COLUMNS / PANEL[0]) * PANEL[1];
    for (top, group) in (below..).zip(GROUPS) {
        let metrics = group.metrics.iter().map(of_metric).collect();
        panels.push(json!({
            "type": "row", "title": group.title, "collapsed": true,
            "gridPos": { "x": 0, "y": top, "w": COLUMNS, "h": 1 },
            "panels": placed(metrics, top + 1),
        }));
    }
    for (id, panel) in (1..).zip(&mut panels) {
        panel["id"] = json!(id * 1_000);
        let inner = panel.get_mut("panels").and_then(Value::as_array_mut);
        for (inner_id, inner) in (1..).zip(inner.into_iter().flatten()) {
            inner["id"] = json!(id * 1_000 + inner_id);
        }
    }
    json!({
        "title": "Spillway", "uid": "spillway", "schemaVersion": 39, "editable": true,
        "refresh": "10s", "time": { "from": "now-1h", "to": "now" }, "tags": ["spillway"],
        "templating": { "list": [{
            "name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus",
        }]},
        "panels": panels,
    })
}

fn of_metric(metric: &MetricSpec) -> Value {
    panel(metric.name, unit(metric.name), &metric.query(), &metric.help())
}

/// Returns Grafana's name for the unit that a name ends with.
fn unit(name: &str) -> &'static str {
    match () {
        () if name.ends_with("_seconds") => "s",
        () if name.ends_with("_bytes") => "bytes",
        () if name.ends_with("_ratio") => "percentunit",
        () => "short",
    }
}

fn panel(title: &str, unit: &str, query: &str, about: &str) -> Value {
    json!({
        "type": "timeseries", "title": title, "description": about,
        "datasource": { "type": "prometheus", "uid": "${source}" },
        "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
        "options": { "legend": { "displayMode": "list", "placement": "bottom" } },
        "targets": [{ "expr": query, "refId": "A" }],
    })
}

/// Gives panels their places in rows from `top` on.
fn placed(mut panels: Vec<Value>, top: usize) -> Vec<Value> {
    let [width, height] = PANEL;
    let each_row = COLUMNS / width;
    for (index, panel) in panels.iter_mut().enumerate() {
        let (x, y) = (index % each_row * width, top + index / each_row * height);
        panel["gridPos"] = json!({ "x": x, "y": y, "w": width, "h": height });
    }
    panels
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_metric_has_a_panel_and_every_panel_an_id_of_its_own() {
        let made = dashboard();
        let rows = made["panels"].as_array().unwrap();
        let inner = rows.iter().flat_map(|row| row["panels"].as_array().into_iter().flatten());
        let all: Vec<&Value> = rows.iter().chain(inner).collect();
        let ids: BTreeSet<u64> = all.iter().filter_map(|panel| panel["id"].as_u64()).collect();
        assert_eq!(ids.len(), all.len());
        for metric in GROUPS.iter().flat_map(|group| group.metrics) {
            assert!(all.iter().any(|panel| panel["title"] == metric.name), "{}", metric.name);
        }
    }

    #[test]
    fn no_panel_covers_another_or_leaves_the_grid() {
        fn check(panels: &[Value]) {
            let mut taken = BTreeSet::new();
            for panel in panels {
                let side = |name: &str| panel["gridPos"][name].as_u64().unwrap();
                let (x, y, w, h) = (side("x"), side("y"), side("w"), side("h"));
                assert!(x + w <= COLUMNS as u64, "{}", panel["title"]);
                for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                    assert!(taken.insert(cell), "{} covers another panel", panel["title"]);
                }
                check(panel["panels"].as_array().map_or(&[], Vec::as_slice));
            }
        }
        check(dashboard()["panels"].as_array().unwrap());
    }

    #[test]
    fn a_unit_is_that_of_the_name() {
        for (name, expected) in [
            ("spillway_a_seconds", "s"),
            ("spillway_a_bytes", "bytes"),
            ("spillway_a_ratio", "percentunit"),
            ("spillway_a", "short"),
            ("spillway_seconds_a", "short"),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
    }

    #[test]
    fn the_file_is_what_the_code_says() {
        let file =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../../deploy/observability/dashboard.json");
        let written = std::fs::read_to_string(file).unwrap_or_default();
        let remedy = "run: cargo xtask pages";
        assert!(serde_json::from_str::<Value>(&written).ok() == Some(dashboard()), "{remedy}");
    }
}
