//! `spillway get regions`: every region as it is now, with the orders about it.

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster::calls::show;
use crate::cluster::client::AdminClient;
use crate::cluster::text;
use crate::screen::{Table, duration, width};

/// Shows every region: its load, the requests there, its distance, and operators' orders.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn list(client: &AdminClient) -> Result<()> {
    let answer = read(client).await?;
    show(client, &answer, &table(&answer["items"]).text(width()))
}

/// Returns every region as an item of the list that [`list`] shows.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn items(client: &AdminClient) -> Result<Value> {
    Ok(read(client).await?["items"].take())
}

async fn read(client: &AdminClient) -> Result<Value> {
    let world = client.read("/v1/world").await?;
    // A node in no cluster has no records, and still knows its own region.
    let records = client.optional("/v1/regions?limit=1000").await?.unwrap_or_default();
    let steering = client.optional("/v1/steering").await?.unwrap_or_default();
    Ok(merged(&world, records, &steering))
}

/// Returns the list of records, each with the known state of the region, followed by regions
/// without a record.
fn merged(world: &Value, mut records: Value, steering: &Value) -> Value {
    let regions = || world["regions"].as_array().into_iter().flatten();
    let mut items = records["items"].as_array().cloned().unwrap_or_default();
    for region in regions() {
        if !items.iter().any(|item| item["key"] == region["region"]) {
            items.push(json!({ "key": region["region"], "record": null, "version": null }));
        }
    }
    for item in &mut items {
        let known = regions().find(|region| region["region"] == item["key"]);
        let mut steered = steering["regions"].as_array().into_iter().flatten();
        let steered = steered.find(|region| region["region"] == item["key"]);
        item["world"] = known.cloned().unwrap_or_default();
        item["steering"] = steered.cloned().unwrap_or_default();
    }
    // Where the question is asked comes first.
    items.sort_by_key(|item| item["world"]["is_own"] != true);
    if !records.is_object() {
        records = json!({});
    }
    records["items"] = items.into();
    records
}

/// Formats regions as a table.
pub(crate) fn table(items: &Value) -> Table {
    let headings = [
        "region", "state", "replicas", "load", "waiting", "from", "to", "sent", "rtt ms", "seen",
        "orders",
    ];
    let rows = items.as_array().into_iter().flatten().map(|item| {
        let world = &item["world"];
        let is_own = world["is_own"] == true;
        let spilling = number(&world["spilling"]);
        // The last report of a silent region does not count any more.
        let said = if world["is_heard"] == true { world } else { &Value::Null };
        let (from, to) = if is_own { (spilling, "-".into()) } else { ("-".into(), spilling) };
        vec![
            item["key"].as_str().unwrap_or("-").to_owned(),
            state(item),
            number(&said["replicas_up"]),
            load(said),
            number(&said["waiting"]),
            from,
            to,
            number(&world["sent"]),
            if is_own { "-".to_owned() } else { number(&world["rtt_ms"]) },
            heard(world),
            orders(&item["record"]),
        ]
    });
    Table::new(&headings, rows.collect::<Vec<_>>()).dropping(&["waiting", "sent", "from", "seen"])
}

/// Describes a region, as this node sees it, in a word or two.
fn state(item: &Value) -> String {
    let world = &item["world"];
    match () {
        () if world.is_null() => "unknown".to_owned(),
        () if world["is_own"] == true => "here".to_owned(),
        () if world["is_heard"] != true => "silent".to_owned(),
        () if world["is_reachable"] != true => "unreachable".to_owned(),
        () if world["is_broken"] == true => "failing".to_owned(),
        () => "up".to_owned(),
    }
}

/// Returns requests at replicas, and how many those take at once.
fn load(world: &Value) -> String {
    let Some(in_flight) = world["in_flight"].as_f64() else { return "-".to_owned() };
    match world["places"].as_f64() {
        Some(places) => format!("{in_flight:.0} of {places:.0}"),
        None => format!("{in_flight:.0}"),
    }
}

fn heard(world: &Value) -> String {
    let ago = |ms: u64| match ms {
        0..1_000 => format!("{ms} ms ago"),
        _ => format!("{} ago", duration(ms / 1_000)),
    };
    world["heard_ms"].as_u64().map_or_else(|| "-".to_owned(), ago)
}

/// Returns operators' orders about a region; `-` if there are none.
fn orders(record: &Value) -> String {
    let state = record["state"].as_str().filter(|state| *state != "active").map(str::to_owned);
    let weight = record["weight_percent"].as_f64().filter(|weight| *weight != 100.0);
    let price = record["price_ms"].as_f64().filter(|price| *price > 0.0);
    let orders = [
        state,
        weight.map(|weight| format!("weight {weight} %")),
        price.map(|price| format!("price {price} ms")),
    ];
    let orders: Vec<String> = orders.into_iter().flatten().collect();
    if orders.is_empty() { text::absent() } else { orders.join(", ") }
}

fn number(value: &Value) -> String {
    let rounded = |number: f64| {
        let tenths = (number * 10.0).round() / 10.0;
        tenths.to_string()
    };
    value.as_f64().map_or_else(text::absent, rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_shown_with_load_distance_and_orders() {
        let world = json!({ "regions": [
            { "region": "us", "is_own": true, "is_heard": true, "is_reachable": true,
              "replicas_up": 2, "in_flight": 12.0, "places": 64.0, "waiting": 0.0, "spilling": 3,
              "rtt_ms": 0.0 },
            { "region": "eu", "is_own": false, "is_heard": true, "is_reachable": true,
              "replicas_up": 4, "in_flight": 7.0, "places": null, "waiting": 1.5, "spilling": 2,
              "sent": 90, "rtt_ms": 81.2, "heard_ms": 120 },
            { "region": "ap", "is_own": false, "is_heard": false, "heard_ms": 12_000,
              "spilling": 0, "sent": 0, "rtt_ms": 150.0, "in_flight": 0.0 },
        ]});
        let records = json!({ "index": 7, "items": [
            { "key": "eu", "record": { "state": "draining", "weight_percent": 50.0, "price_ms": 0 } },
            { "key": "us", "record": { "state": "active", "weight_percent": 100.0, "price_ms": 5 } },
        ]});
        let answer = merged(&world, records, &json!({}));
        assert_eq!(answer["index"], 7);
        let shown = table(&answer["items"]).text(usize::MAX);
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect())
            .collect();
        assert_eq!(
            lines[1],
            ["us", "here", "2", "12 of 64", "0", "3", "-", "-", "-", "-", "price 5 ms"]
        );
        assert_eq!(
            lines[2],
            [
                "eu",
                "up",
                "4",
                "7",
                "1.5",
                "-",
                "2",
                "90",
                "81.2",
                "120 ms ago",
                "draining, weight 50 %"
            ]
        );
        assert_eq!(
            lines[3],
            ["ap", "silent", "-", "-", "-", "-", "0", "0", "150", "12 s ago", "-"]
        );
        let narrow = table(&answer["items"]).text(80);
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        assert!(narrow.contains("draining"), "{narrow}");
    }

    #[test]
    fn a_node_in_no_cluster_shows_its_own_region() {
        let world = json!({ "regions": [{ "region": "local", "is_own": true, "is_heard": true, "in_flight": 0.0 }] });
        let answer = merged(&world, Value::Null, &Value::Null);
        assert_eq!(answer["items"][0]["key"], "local");
        assert!(table(&answer["items"]).text(80).contains("local   here"));
    }
}
