//! Limits: `spillway limits set`, and the list with the shares that regions hold.

use anyhow::Result;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};
use spillway_node::Resource;
use spillway_types::Percent;

use super::fields::NONE;
use super::kind::path_of;
use crate::cluster::calls::{change, show};
use crate::cluster::change_args::ChangeArgs;
use crate::cluster::client::AdminClient;
use crate::cluster::text::{self, Column};
use crate::connect::Connect;
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

#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    command: LimitsCommand,
}

#[derive(Debug, Subcommand)]
enum LimitsCommand {
    /// Sets the given parts of a limit, and keeps the others.
    #[command(after_help = "Example: spillway limits set tenant:acme --requests-per-min 600 \
        --tokens-per-min 600000\n\
        Example: spillway limits set global --floor eu-central-1=40\n\
        Example: spillway limits set tenant:acme --tokens-per-min none\n\n\
        `spillway get limits` lists the limits, and `spillway remove limit NAME` removes one.")]
    Set {
        /// The limit: `global`, `tenant:NAME`, `model:NAME` or `key:ID`.
        name: String,
        #[command(flatten)]
        parts: LimitParts,
        /// Accepts a new name that looks like a misspelling of a known one.
        #[arg(long)]
        create: bool,
        #[command(flatten)]
        change: ChangeArgs,
    },
}

/// Parts of a limit to set.
#[derive(Clone, Debug, Default, Args)]
#[group(required = true, multiple = true)]
struct LimitParts {
    /// Requests per second, or `none`.
    #[arg(long, value_name = "COUNT", value_parser = count, conflicts_with = "requests_per_min")]
    requests_per_s: Option<Value>,
    /// Requests per minute, or `none`.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    requests_per_min: Option<Value>,
    /// Tokens per minute, or `none`.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    tokens_per_min: Option<Value>,
    /// Concurrent requests, or `none`.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    concurrency: Option<Value>,
    /// The share reserved for a region, in percent; can be repeated.
    #[arg(long = "floor", value_name = "REGION=PERCENT", value_parser = floor)]
    floors_percent: Vec<(String, Percent)>,
}

impl LimitParts {
    /// Returns the fields of the record that are set.
    fn fields(&self) -> Map<String, Value> {
        let counts = [
            ("requests_per_s", &self.requests_per_s),
            ("requests_per_min", &self.requests_per_min),
            ("tokens_per_min", &self.tokens_per_min),
            ("concurrency", &self.concurrency),
        ];
        let given = counts.into_iter().filter_map(|(name, count)| Some((name, count.clone()?)));
        let mut fields: Map<String, Value> =
            given.map(|(name, count)| (name.to_owned(), count)).collect();
        if !self.floors_percent.is_empty() {
            let floors = self.floors_percent.iter();
            let floors: Map<String, Value> =
                floors.map(|(region, share)| (region.clone(), json!(share))).collect();
            fields.insert("floors_percent".to_owned(), floors.into());
        }
        fields
    }
}

fn count(text: &str) -> Result<Value, String> {
    match text {
        NONE => Ok(Value::Null),
        text => text.parse::<u64>().map(Value::from).map_err(|error| error.to_string()),
    }
}

fn floor(text: &str) -> Result<(String, Percent), String> {
    let (region, share) = text.split_once('=').ok_or("write REGION=PERCENT")?;
    let share = share.parse().map_err(|error| format!("{share:?}: {error}"))?;
    Ok((region.to_owned(), share))
}

/// Sets parts of a limit.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn run(args: &LimitsArgs) -> Result<()> {
    let LimitsCommand::Set { name, parts, create, change: how } = &args.command;
    let path = path_of(Resource::Limits, name)?;
    let client = AdminClient::new(&args.connect)?;
    let fields = Value::Object(parts.fields());
    change(&client, Method::PATCH, &path, Some(&fields), &how.creating(*create)).await
}

/// Lists limits, and below them the shares of each region.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn list(client: &AdminClient) -> Result<()> {
    let answer = client.list(Resource::Limits.name()).await?;
    let items = &answer["items"];
    let shares = shares(items);
    show(client, &answer, &picture(&listed(&answer), &shares, width()))
}

/// Formats limits, and shares of them if there are some, in lines of at most `width` characters.
fn picture(limits: &Value, shares: &Value, width: usize) -> String {
    let shown = text::records(Resource::Limits.columns(), limits).text(width);
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
    fn flags_say_what_json_says() {
        let parts = LimitParts {
            requests_per_min: Some(json!(60)),
            tokens_per_min: count("none").ok(),
            floors_percent: vec![floor("eu=20").unwrap(), floor("us=12.5%").unwrap()],
            ..LimitParts::default()
        };
        let record = json!({
            "requests_per_min": 60, "tokens_per_min": null,
            "floors_percent": { "eu": 20, "us": 12.5 },
        });
        assert_eq!(Value::Object(parts.fields()), record);
        assert!(floor("eu").is_err() && floor("eu=many").is_err() && count("-1").is_err());
    }

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
        let shown = text::table(Resource::Limits.columns(), &listed(&answer));
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
