//! `spillway import`: the records of a config file, taken over into the cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value, json};
use spillway_config::{Config, default_policy};
use spillway_quota::{LimitKind, LimitTerms, RequestWindow};
use spillway_types::{Allowed, Percent, Residency};

use super::apply::{Records, write};
use super::client::AdminClient;
use super::connect::Connect;
use super::kind::RecordKind;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    connect: Connect,
    /// The config file.
    config: PathBuf,
    /// Shows what would change, and changes nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Takes the records of a config file over into the cluster.
///
/// # Errors
/// Returns an error if the config can't be used, the node can't be reached, or it refuses a record.
pub(super) async fn run(args: &ImportArgs) -> Result<()> {
    let config = Config::load(&args.config)?;
    let client = AdminClient::new(&args.connect)?;
    let (records, stays) = records(&config);
    write(&client, &records, args.dry_run).await?;
    if !client.as_json {
        stays.iter().for_each(|text| output::note(text));
    }
    Ok(())
}

/// Returns the records that a config has, and what can't be taken over, in words.
fn records(config: &Config) -> (Records, Vec<String>) {
    let mut records = Records::default();
    let mut stays = Vec::new();
    tenants_and_keys(config, &mut records, &mut stays);
    names(config, &mut records, &mut stays);
    routes(config, &mut records);
    for limit in &config.limits {
        records.add(RecordKind::Limits, limit.scope.label(), limit_record(limit));
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
        records.add(RecordKind::Tenants, name.to_string(), json!({}));
    }
    for (name, terms) in &access.tenants {
        let mut record = residency(&terms.residency);
        record.insert("is_suspended".into(), terms.is_suspended.into());
        records.add(RecordKind::Tenants, name.to_string(), record.into());
        if terms.is_isolated {
            stays.push(format!("tenant {name}: isolate_prompts stays in the config file"));
        }
        if access.budgets.contains_key(name) {
            stays.push(format!("tenant {name}: its budget stays in the config file"));
        }
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

fn names(config: &Config, records: &mut Records, stays: &mut Vec<String>) {
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
    for (name, record) in models {
        records.add(RecordKind::Models, name, record.into());
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
        records.add(RecordKind::Splits, split.name.to_string(), json!({ "arms": arms }));
        if split.sticky.is_some() {
            stays.push(format!("split {}: its cookie stays in the config file", split.name));
        }
    }
}

fn routes(config: &Config, records: &mut Records) {
    for route in &config.world.routes {
        let policy = (route.policy != default_policy(route.path_prefix.is_none()))
            .then(|| route.policy.name());
        let has_rule = route.path_prefix.is_some()
            || !route.models.is_empty()
            || route.pool.is_some()
            || policy.is_some()
            || !route.residency.is_anywhere();
        // The route that each config has for everything else says nothing.
        if !has_rule {
            continue;
        }
        let models: Vec<&str> = route.models.iter().map(|model| model.as_str()).collect();
        let mut record = residency(&route.residency);
        record.insert("path_prefix".into(), json!(route.path_prefix));
        record.insert("models".into(), models.into());
        record.insert("pool".into(), route.pool.clone().unwrap_or_default().into());
        record.insert("policy".into(), policy.unwrap_or_default().into());
        records.add(RecordKind::Routes, route.name.to_string(), record.into());
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
        assert_eq!(record(RecordKind::Models, "gpt"), json!({ "alias_of": "big" }));
        assert_eq!(record(RecordKind::Models, "big"), json!({ "fallbacks": ["small"] }));
        assert_eq!(record(RecordKind::Tenants, "acme"), json!({}));
        assert_eq!(record(RecordKind::Tenants, "corp")["is_suspended"], true);
        let split = record(RecordKind::Splits, "canary");
        assert_eq!(split["arms"][0]["weight_percent"], json!(66.7));
        assert_eq!(split["arms"][1]["weight_percent"], json!(33.3));
        let route = record(RecordKind::Routes, "chat");
        assert_eq!(
            (&route["policy"], &route["countries"]),
            (&json!("power_of_two"), &json!(["DE"]))
        );
        let limit = record(RecordKind::Limits, "tenant:acme");
        assert_eq!(limit["requests_per_min"], 60);
        let key = records.get(RecordKind::Keys, "k1").unwrap();
        assert_eq!(key.record["models"], json!(["big"]));
        assert_eq!(key.secret.as_ref().unwrap()["salt"], "0a".repeat(16));
        assert_eq!(records.count(), 8, "the route for everything else says nothing");
        let stays = stays.join("\n");
        for what in ["corp: isolate_prompts", "canary: its cookie", "1 replicas"] {
            assert!(stays.contains(what), "{stays}");
        }
    }

    #[test]
    fn shares_make_a_hundred() {
        let shares = shares(&[1, 1, 1]);
        let permille: u16 = shares.iter().map(|share| share.permille()).sum();
        assert_eq!(permille, 1_000);
    }
}
