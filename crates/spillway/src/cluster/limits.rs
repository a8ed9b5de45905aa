//! `spillway limits`: the limits, and the shares that regions hold of them.

use anyhow::Result;
use serde_json::{Value, json};

use super::calls::{carry_out, show};
use super::client::AdminClient;
use super::columns::LIMITS;
use super::field_args::LimitFields;
use super::resource_args::ResourceArgs;
use super::text::{self, Column};
use crate::screen::width;

const SHARES: &[Column] = &[
    ("limit", "/limit"),
    ("of", "/kind"),
    ("region", "/region"),
    ("floor", "/floor"),
    ("leased", "/leased"),
    ("needed", "/needed"),
];

/// Kinds that a limit can count, as records name them.
const KINDS: [&str; 4] = ["requests_per_s", "requests_per_min", "tokens_per_min", "concurrency"];

/// Carries out a command about limits.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses, or the limit can't be read.
pub(super) async fn run(args: &ResourceArgs<LimitFields>) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    carry_out(&client, "limits", args.command.as_ref(), list(&client)).await
}

/// Lists limits, and below them the shares of each region.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
async fn list(client: &AdminClient) -> Result<()> {
    let answer = client.list("limits").await?;
    let items = &answer["items"];
    let shares = shares(items);
    show(client, &answer, &picture(&listed(&answer), &shares, width()))
}

/// Formats limits, and shares of them if there are some, in lines of at most `width` characters.
fn picture(limits: &Value, shares: &Value, width: usize) -> String {
    let shown = text::records(LIMITS, limits).text(width);
    match shares.as_array().is_some_and(|rows| !rows.is_empty()) {
        true => format!("{shown}\n\n{}", text::records(SHARES, shares).text(width)),
        false => shown,
    }
}

/// Returns the limits of the cluster and of the node's config file, with the origin of each.
fn listed(answer: &Value) -> Value {
    let rows = |name: &str| answer[name].as_array().cloned().unwrap_or_default().into_iter();
    let from = |mut item: Value, from: &str| {
        item["from"] = from.into();
        item
    };
    let agreed = rows("items").map(|item| from(item, "cluster"));
    let file = rows("file").map(|item| match item["info"]["file"]["is_replaced"] == true {
        true => from(item, "file (the cluster's holds)"),
        false => from(item, "file"),
    });
    agreed.chain(file).collect()
}

/// Returns a row for each limit, each kind that it counts, and each region that holds some of it.
fn shares(items: &Value) -> Value {
    let items = items.as_array().map(Vec::as_slice).unwrap_or_default();
    let rows = items.iter().flat_map(|item| {
        let regions = item["info"]["regions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let kinds = KINDS.into_iter().filter(|kind| !item["record"][*kind].is_null());
        kinds.flat_map(move |kind| {
            regions.iter().map(move |region| {
                json!({
                    "limit": item["key"], "kind": kind, "region": region["region"],
                    "floor": region["floor"][kind], "leased": region["leased"][kind],
                    "needed": region["needed"][kind],
                })
            })
        })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_file_are_listed_and_say_so() {
        let file = |name: &str, is_replaced: bool| {
            let file = json!({ "is_replaced": is_replaced, "used": {} });
            json!({ "key": name, "record": { "concurrency": 2 }, "info": { "file": file } })
        };
        let answer = json!({
            "items": [{ "key": "global", "version": 7, "record": { "concurrency": 9 } }],
            "file": [file("global", true), file("key:a", false)],
        });
        let shown = text::table(LIMITS, &listed(&answer));
        let lines: Vec<Vec<&str>> =
            shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["global", "-", "-", "-", "9", "cluster", "7"]);
        assert_eq!(lines[2][..6], ["global", "-", "-", "-", "2", "file"]);
        assert_eq!(lines[3], ["key:a", "-", "-", "-", "2", "file", "-"], "{shown}");
        let narrow = picture(&listed(&answer), &shares(&answer["items"]), 80);
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    }

    #[test]
    fn each_region_has_a_row_for_each_kind_that_is_limited() {
        let units = |tokens: u64| json!({ "tokens_per_min": tokens, "requests_per_s": 9 });
        let region = |name: &str, leased: u64| {
            json!({
                "region": name, "floor": units(5), "leased": units(leased), "needed": units(0),
            })
        };
        let items = json!([
            {
                "key": "global",
                "record": { "tokens_per_min": 100, "requests_per_s": null, "concurrency": null },
                "info": { "regions": [region("eu", 60), region("us", 30)] },
            },
            { "key": "key:k", "record": { "concurrency": 1 }, "info": { "regions": [] } },
        ]);
        let shown = text::table(SHARES, &shares(&items));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 3, "{shown}");
        assert_eq!(lines[0], "limit   of              region  floor  leased  needed");
        assert_eq!(lines[1], "global  tokens_per_min  eu      5      60      0");
        assert_eq!(lines[2], "global  tokens_per_min  us      5      30      0");
    }
}
