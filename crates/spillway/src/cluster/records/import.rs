//! `spillway import`: the records of a config file, taken over into the cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value, json};
use spillway_cluster_state::Model;
use spillway_config::{Config, default_policy, said_routes};
use spillway_node::Resource;
use spillway_rate_limit::{LimitKind, LimitTerms, RequestWindow};
use spillway_types::{Allowed, Percent, Residency};

use super::apply::{Records, write};
use crate::cluster::client::AdminClient;
use crate::connect::Connect;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    connect: Connect,
    /// The config file.
    config: PathBuf,
    /// Shows what would change, without changing anything.
    #[arg(long)]
    dry_run: bool,
}

/// Takes the records of a config file over into the cluster.
///
/// # Errors
/// Returns an error if the config can't be used, the node can't be reached, or it refuses a record.
pub(crate) async fn run(args: &ImportArgs) -> Result<()> {
    let config = Config::load(&args.config)?;
    let client = AdminClient::new(&args.connect)?;
    let (records, stays) = records(&config);
    write(&client, &records, args.dry_run).await?;
    if !client.as_json {
        stays.iter().for_each(|text| output::note(text));
    }
    Ok(())
}

/// Returns the records of a config, and the parts that can't be imported, in words.
fn records(config: &Config) -> (Records, Vec<String>) {
    let mut records = Records::default();
    let mut stays = Vec::new();
    tenants_and_keys(config, &mut records, &mut stays);
    names(config, &mut records);
    routes(config, &mut records);
    for limit in &config.limits {
        records.add(Resource::Limits, limit.scope.label(), limit_record(limit));
    }
    let replicas = config.world.replicas.len();
    if replicas > 0 {
        stays.push(format!("{replicas} replicas: their nodes register them by themselves"));
    }
    (records, stays)
}

fn tenants_and_keys(config: &Config, records: &mut Records, stays: &mut Vec<String>) {
    let access = &config.access;
    let named = access.keys.values().filter_map(|key| key.tenant.clone());
    // A key needs its tenant, which a config file does not have to name.
    for name in named {
        records.add_missing(Resource::Tenants, name.to_string());
    }
    for (name, terms) in &access.tenants {
        let mut record = residency(&terms.residency);
        record.insert("is_suspended".into(), terms.is_suspended.into());
        record.insert("isolate_prompts".into(), terms.is_isolated.into());
        let budget = access.budgets.get(name).copied().unwrap_or_default();
        // The amounts of a file are whole millionths.
        let [day, month] = [budget.per_day, budget.per_month]
            .map(|money| money.and_then(|it| it.millionths()).map_or(Value::Null, millionths));
        record.insert("budget_per_day".into(), day);
        record.insert("budget_per_month".into(), month);
        records.add(Resource::Tenants, name.to_string(), record.into());
    }
    for (id, key) in &access.keys {
        if key.is_revoked {
            stays.push(format!("key {id}: it is revoked, and lets nobody in without a record"));
            continue;
        }
        let record = json!({
            "role": "client", "tenant": key.tenant, "models": key.models, "regions": key.regions,
            "priority": key.priority, "expires_ms": key.expires_ms,
        });
        let secret = json!({ "salt": hex(&key.salt), "hash": hex(key.hash.reveal()) });
        records.add_key(id.to_string(), record, secret);
    }
}

fn names(config: &Config, records: &mut Records) {
    let spec = &config.world.names;
    let mut models: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for (name, stands_for) in &spec.aliases {
        let model = models.entry(name.to_string()).or_default();
        model.insert("alias_of".into(), stands_for.as_str().into());
    }
    for (name, fallbacks) in &spec.fallbacks {
        let names: Vec<&str> = fallbacks.iter().map(|model| model.as_str()).collect();
        models.entry(name.to_string()).or_default().insert("fallbacks".into(), names.into());
    }
    let all = config.prices.default.map(|price| (Model::EVERY.to_owned(), price));
    let priced = config.prices.models.iter().map(|(name, price)| (name.to_string(), *price));
    for (name, price) in all.into_iter().chain(priced) {
        let model = models.entry(name).or_default();
        model.insert("prompt_per_million".into(), millionths(price.prompt));
        model.insert("cached_per_million".into(), millionths(price.cached));
        model.insert("completion_per_million".into(), millionths(price.completion));
    }
    for (name, record) in models {
        records.add(Resource::Models, name, record.into());
    }
    for split in &spec.splits {
        let weights: Vec<u32> = split.split.arms().iter().map(|arm| arm.weight).collect();
        let arms = split.arms.iter().zip(shares(&weights)).map(|(arm, share)| {
            json!({
                "name": arm.arm.arm.as_str(), "model": arm.model.as_str(),
                "version": arm.version.as_ref().map(|version| version.as_str()),
                "weight_percent": share,
            })
        });
        let arms: Vec<Value> = arms.collect();
        let sticky = split.sticky.as_ref();
        let record = json!({
            "arms": arms,
            "by": split.by.to_string(),
            "sticky_cookie": sticky.map(|sticky| sticky.name.as_str()),
            "sticky_max_age_s": sticky.map(|sticky| sticky.max_age.as_secs()),
        });
        records.add(Resource::Splits, split.name.to_string(), record);
    }
}

fn routes(config: &Config, records: &mut Records) {
    let said = said_routes(&config.text);
    for route in &config.world.routes {
        let policy = (route.policy != default_policy(route.path_prefix.is_none()))
            .then(|| route.policy.name());
        // Each config's route for all other requests is in no file, and sets no fields.
        let Some(fields) = said.get(route.name.as_str()) else { continue };
        let models: Vec<&str> = route.models.iter().map(|model| model.as_str()).collect();
        let mut record = residency(&route.residency);
        record.insert("path_prefix".into(), json!(route.path_prefix));
        record.insert("models".into(), models.into());
        record.insert("pool".into(), route.pool.clone().unwrap_or_default().into());
        record.insert("policy".into(), policy.unwrap_or_default().into());
        let others = fields.iter().filter(|(name, _)| !record.contains_key(name.as_str()));
        let others: Vec<_> = others.map(|(name, value)| (name.clone(), value.clone())).collect();
        record.extend(others);
        records.add(Resource::Routes, route.name.to_string(), record.into());
    }
}

/// Returns an amount of money as config files have it.
fn millionths(millionths: u64) -> Value {
    match millionths % 1_000_000 {
        0 => json!(millionths / 1_000_000),
        _ => json!(millionths as f64 / 1_000_000.0),
    }
}

fn limit_record(limit: &LimitTerms) -> Value {
    let count = |kind: LimitKind| limit.whole[kind as usize];
    let requests = |window| count(LimitKind::RequestRate).filter(|_| limit.requests == window);
    json!({
        "requests_per_s": requests(RequestWindow::Second),
        "requests_per_min": requests(RequestWindow::Minute),
        "tokens_per_min": count(LimitKind::TokenRate),
        "concurrency": count(LimitKind::Concurrency),
    })
}

fn residency(rule: &Residency) -> Map<String, Value> {
    let regions = match &rule.regions {
        Allowed::All => Vec::new(),
        Allowed::Only(regions) => regions.iter().map(ToString::to_string).collect(),
    };
    let countries = match &rule.countries {
        Allowed::All => Vec::new(),
        Allowed::Only(countries) => countries.iter().map(ToString::to_string).collect(),
    };
    let mut record = Map::new();
    record.insert("regions".into(), json!(regions));
    record.insert("countries".into(), json!(countries));
    record
}

/// Returns weights as percent with one decimal, which make 100 together.
fn shares(weights: &[u32]) -> Vec<Percent> {
    let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let permille = |weight: &u32| {
        let share = (u64::from(*weight) * 1_000).checked_div(total).unwrap_or(0);
        u16::try_from(share).unwrap_or(1_000)
    };
    let mut shares: Vec<u16> = weights.iter().map(permille).collect();
    let rest = 1_000_u16.saturating_sub(shares.iter().sum());
    // The largest arm changes least by what rounding left over.
    if let Some(largest) = shares.iter_mut().max() {
        *largest += rest;
    }
    shares.into_iter().map(Percent::of_permille).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const CONFIG: &str = r#"
[[listener]]
address = "127.0.0.1:0"

[[replica]]
name = "a"
url = "http://127.0.0.1:1"
models = ["big", "small"]

[aliases]
gpt = "big"

[fallback]
big = ["small"]

[[split]]
model = "canary"
by = "header:X-User"
sticky_cookie = "arm"
arms = [
  { name = "old", model = "big", weight = 2 },
  { name = "new", model = "small", weight = 1 },
]

[[route]]
name = "chat"
models = ["big"]
policy = "power_of_two"
countries = ["DE"]
slo_ms = 800
session = { header = "x-chat" }

[[price]]
model = "big"
prompt_per_million = 2.5
completion_per_million = 10

[[price]]
prompt_per_million = 0.1
completion_per_million = 0.2

[[key]]
id = "k1"
salt = "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
hash = "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b"
tenant = "acme"
models = ["big"]

[[tenant]]
name = "corp"
suspended = true
isolate_prompts = true
budget_per_month = 99.5

[[limit]]
name = "tenant:acme"
requests_per_min = 60
"#;

    #[test]
    fn what_a_cluster_can_hold_is_taken_over() {
        let config = Config::parse(CONFIG, Path::new("test"), []).unwrap();
        let (records, stays) = records(&config);
        let record =
            |kind, name: &str| records.get(kind, name).map(|it| it.record.clone()).unwrap();
        assert_eq!(record(Resource::Models, "gpt"), json!({ "alias_of": "big" }));
        let big = record(Resource::Models, "big");
        assert_eq!(
            (&big["fallbacks"], &big["prompt_per_million"]),
            (&json!(["small"]), &json!(2.5))
        );
        assert_eq!(record(Resource::Models, "*")["completion_per_million"], json!(0.2));
        assert_eq!(record(Resource::Tenants, "acme"), json!({}));
        let corp = record(Resource::Tenants, "corp");
        assert_eq!((&corp["is_suspended"], &corp["isolate_prompts"]), (&json!(true), &json!(true)));
        assert_eq!(
            (&corp["budget_per_day"], &corp["budget_per_month"]),
            (&Value::Null, &json!(99.5))
        );
        let split = record(Resource::Splits, "canary");
        assert_eq!(split["arms"][0]["weight_percent"], json!(66.7));
        assert_eq!(split["arms"][1]["weight_percent"], json!(33.3));
        assert_eq!(
            (&split["by"], &split["sticky_cookie"], &split["sticky_max_age_s"]),
            (&json!("header:x-user"), &json!("arm"), &json!(2_592_000))
        );
        let route = record(Resource::Routes, "chat");
        assert_eq!(
            (&route["policy"], &route["countries"]),
            (&json!("power_of_two"), &json!(["DE"]))
        );
        assert_eq!(
            (&route["slo_ms"], &route["session"]["header"]),
            (&json!(800), &json!("x-chat"))
        );
        let limit = record(Resource::Limits, "tenant:acme");
        assert_eq!(limit["requests_per_min"], 60);
        let key = records.get(Resource::Keys, "k1").unwrap();
        assert_eq!(key.record["models"], json!(["big"]));
        assert_eq!(key.secret.as_ref().unwrap()["salt"], "0a".repeat(16));
        assert_eq!(records.count(), 9, "the route for everything else says nothing");
        let stays = stays.join("\n");
        assert!(stays.contains("1 replicas"), "{stays}");
    }

    #[test]
    fn shares_make_a_hundred() {
        let shares = shares(&[1, 1, 1]);
        let permille: u16 = shares.iter().map(|share| share.permille()).sum();
        assert_eq!(permille, 1_000);
    }
}
