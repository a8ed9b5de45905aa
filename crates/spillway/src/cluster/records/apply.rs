//! `spillway apply`: a record or its fields, or all records of files that differ from the cluster's.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use clap::Args;
use http::Method;
use serde_json::{Map, Value, json};
use spillway_node::Resource;

use super::fields::record_of;
use super::kind::{Kind, path_of};
use super::record;
use super::served::note_unserved;
use crate::cluster::calls::change;
use crate::cluster::change_args::ChangeArgs;
use crate::cluster::client::{AdminClient, Refusal};
use crate::cluster::text;
use crate::connect::Connect;
use crate::output::{self, WrongUsage};

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway apply tenant acme title=Acme countries=DE,FR\n\
    Example: spillway apply model small fallbacks=big --dry-run\n\
    Example: spillway apply setting voters.dead_after_ms 30000\n\
    Example: spillway apply route chat '{\"models\": [\"big\"], \"policy\": \"power_of_two\"}'\n\
    Example: spillway apply -f tenants.toml --dry-run\n\n\
    The value `none` empties a field. `spillway get KIND --fields` explains the fields of a kind.\n\n\
    A file of -f is TOML or JSON: kinds of records, their names, their fields.\n\n\
    [tenants.acme]\n\
    title = \"Acme\"\n\n\
    [limits.\"tenant:acme\"]\n\
    tokens_per_min = 600000\n\n\
    Each of its records is written as a whole. Equal records are left unchanged, and no record is \
    removed.")]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    connect: Connect,
    /// Kind of record.
    #[arg(value_enum, required_unless_present = "files", requires = "name")]
    kind: Option<Kind>,
    /// Name of the record.
    name: Option<String>,
    /// Fields as FIELD=VALUE; or the record as JSON, a JSON file, or - for standard input.
    #[arg(value_name = "FIELD=VALUE")]
    fields: Vec<String>,
    /// Writes all records of a TOML or JSON file, or - for standard input; can be repeated.
    #[arg(long = "file", short = 'f', value_name = "FILE", conflicts_with = "kind")]
    files: Vec<String>,
    /// Replaces the whole record: fields that are not given get their defaults.
    #[arg(long, conflicts_with = "files")]
    replace: bool,
    /// Accepts a new name that looks like a misspelling of a known one.
    #[arg(long, conflicts_with = "files")]
    create: bool,
    /// Shows what would change, without changing anything.
    #[arg(long)]
    dry_run: bool,
    /// Changes the record only if it has this version.
    #[arg(long, conflicts_with = "files")]
    if_version: Option<u64>,
}

/// Records to write, by kind and name.
#[derive(Debug, Default)]
pub(crate) struct Records(BTreeMap<(Resource, String), Wanted>);

/// A record to write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) record: Value,
    /// Salt and hash of a key's secret, for a key that the cluster does not have yet.
    pub(crate) secret: Option<Value>,
    /// True for a record that others refer to and the file does not describe: an existing record
    /// stays unchanged.
    pub(crate) only_new: bool,
}

/// Outcome of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Created,
    Updated,
    Unchanged,
}

/// Writes fields of a record, or the records of files.
///
/// # Errors
/// Returns an error if a record or a file can't be read, the node can't be reached, or it refuses a
/// record. Records before it are written then.
pub(crate) async fn run(args: &ApplyArgs) -> Result<()> {
    if let (Some(Kind(resource)), Some(name)) = (args.kind, &args.name) {
        return write_fields(args, resource, name).await;
    }
    let mut records = Records::default();
    for file in &args.files {
        let (text, place) = record::read_text(file)?;
        records.read(&text, place)?;
    }
    let client = AdminClient::new(&args.connect)?;
    write(&client, &records, args.dry_run).await
}

async fn write_fields(args: &ApplyArgs, resource: Resource, name: &str) -> Result<()> {
    check_writable(resource)?;
    let path = path_of(resource, name)?;
    let record = record_of(resource, &args.fields)?;
    let client = AdminClient::new(&args.connect)?;
    let method = if args.replace { Method::PUT } else { Method::PATCH };
    let ApplyArgs { dry_run, if_version, create, .. } = *args;
    let how = ChangeArgs { dry_run, if_version, if_absent: false, create };
    change(&client, method, &path, Some(&record), &how).await?;
    if let Some(fields) = record.as_object() {
        note_unserved(&client, fields).await;
    }
    Ok(())
}

/// Checks that records of a kind can be written.
///
/// # Errors
/// Returns an error if they can only be shown and removed.
pub(crate) fn check_writable(resource: Resource) -> Result<()> {
    if !resource.is_writable() {
        let name = resource.name();
        bail!(WrongUsage(format!("{name} can't be written, only shown and removed")));
    }
    Ok(())
}

impl Records {
    /// Adds a record.
    pub(crate) fn add(&mut self, kind: Resource, name: impl Into<String>, record: Value) {
        self.0.insert((kind, name.into()), Wanted { record, secret: None, only_new: false });
    }

    /// Adds a record without fields, for others to refer to, if there is none.
    pub(crate) fn add_missing(&mut self, kind: Resource, name: impl Into<String>) {
        let wanted = Wanted { record: json!({}), secret: None, only_new: true };
        self.0.entry((kind, name.into())).or_insert(wanted);
    }

    /// Adds a key with the salt and hash of its secret.
    pub(crate) fn add_key(&mut self, id: impl Into<String>, record: Value, secret: Value) {
        let wanted = Wanted { record, secret: Some(secret), only_new: false };
        self.0.insert((Resource::Keys, id.into()), wanted);
    }

    /// Returns the record of that kind and name.
    #[cfg(test)]
    pub(crate) fn get(&self, kind: Resource, name: &str) -> Option<&Wanted> {
        self.0.get(&(kind, name.to_owned()))
    }

    /// Returns the number of records.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Adds the records of a text in TOML or JSON.
    fn read(&mut self, text: &str, place: &str) -> Result<()> {
        let is_json = text.trim_start().starts_with('{');
        let all: Map<String, Value> = if is_json {
            serde_json::from_str(text).with_context(|| format!("{place} is no JSON"))?
        } else {
            toml::from_str(text).with_context(|| format!("{place} is no TOML"))?
        };
        for (kind_name, items) in all {
            let mut writable = Resource::ALL.iter().copied().filter(|kind| kind.is_writable());
            let Some(kind) = writable.clone().find(|kind| kind.name() == kind_name) else {
                let kinds: Vec<&str> = writable.by_ref().map(Resource::name).collect();
                let kinds = kinds.join(", ");
                bail!("{place}: {kind_name} is no kind of record: the kinds are {kinds}");
            };
            let Value::Object(items) = items else {
                bail!("{place}: {kind_name} has to hold names with their records");
            };
            for (name, item) in items {
                let item = match item {
                    // A setting may be its bare value.
                    Value::Object(_) => item,
                    value if kind == Resource::Settings => record::setting(
                        &value.as_str().map_or_else(|| value.to_string(), str::to_owned),
                    )?,
                    _ => bail!("{place}: {kind_name}.{name} is no record"),
                };
                if self.0.contains_key(&(kind, name.clone())) {
                    bail!("{place}: {kind_name}.{name} is said twice");
                }
                self.add(kind, name, item);
            }
        }
        Ok(())
    }
}

/// Writes records, and prints a line for each that is new or changes.
///
/// # Errors
/// Returns an error if the node can't be reached, or refuses a record.
pub(crate) async fn write(client: &AdminClient, records: &Records, dry_run: bool) -> Result<()> {
    let mut done = Vec::new();
    let mut waiting: Vec<(&(Resource, String), &Wanted)> = records.0.iter().collect();
    // A record may refer to one that comes later, so refused records are tried again as long as
    // others are accepted.
    while !waiting.is_empty() {
        let mut refused = Vec::new();
        let count = waiting.len();
        let mut last = None;
        for ((kind, name), wanted) in std::mem::take(&mut waiting) {
            match write_one(client, *kind, name, wanted, dry_run).await? {
                Ok((outcome, changes)) => {
                    tell(client, *kind, name, outcome, &changes)?;
                    done.push((*kind, name.clone(), outcome));
                }
                // It is only refused because records before it are missing, which a dry run does
                // not write.
                Err(refusal) if dry_run && refusal.code == "unknown_reference" => {
                    tell(client, *kind, name, Outcome::Created, &preview(wanted))?;
                    done.push((*kind, name.clone(), Outcome::Created));
                }
                Err(refusal) => {
                    refused.push((*kind, name, wanted));
                    last = last.or(Some(refusal));
                }
            }
        }
        if let (Some(refusal), true) = (last, refused.len() == count) {
            let (kind, name, _) = &refused[0];
            bail!("{} {name}: {}", kind.name(), refusal.text);
        }
        let again = |(kind, name, _): &(Resource, &String, &Wanted)| {
            records.0.get_key_value(&(*kind, (*name).clone()))
        };
        waiting = refused.iter().filter_map(again).collect();
    }
    sum_up(client, &done, dry_run)
}

/// Writes one record, if the cluster has it otherwise. Returns the changes as a dry run shows them.
async fn write_one(
    client: &AdminClient,
    kind: Resource,
    name: &str,
    wanted: &Wanted,
    dry_run: bool,
) -> Result<std::result::Result<(Outcome, Value), Refusal>> {
    let path = path_of(kind, name)?;
    let known = client.optional(&path).await?;
    let item = known.map(|answer| answer["item"].clone()).unwrap_or_default();
    let is_new = item.is_null();
    if wanted.only_new && !is_new {
        return Ok(Ok((Outcome::Unchanged, Value::Null)));
    }
    let (method, path, body) = match (&wanted.secret, is_new) {
        (Some(secret), true) => {
            let body = json!({ "key": name, "record": wanted.record, "secret": secret });
            (Method::POST, "/v1/keys".to_owned(), body)
        }
        _ => (Method::PUT, path, wanted.record.clone()),
    };
    let if_version = item["version"].as_u64();
    // Files describe everything that is to exist, so a new name is no slip. Only kinds with chosen
    // names have the option: keys are made by another request.
    let create = method == Method::PUT;
    let how = ChangeArgs { dry_run: true, if_version, if_absent: false, create };
    let tried = client.try_change(method.clone(), &path, Some(&body), &how).await?;
    let changes = match tried {
        Ok(answer) => answer["changes"].clone(),
        Err(refusal) => return Ok(Err(refusal)),
    };
    if changes.as_array().is_none_or(Vec::is_empty) {
        return Ok(Ok((Outcome::Unchanged, changes)));
    }
    if !dry_run {
        let how = ChangeArgs { dry_run: false, ..how };
        if let Err(refusal) = client.try_change(method, &path, Some(&body), &how).await? {
            return Ok(Err(refusal));
        }
    }
    Ok(Ok((if is_new { Outcome::Created } else { Outcome::Updated }, changes)))
}

/// Returns the changes of a dry run for a record that only comes after others.
fn preview(wanted: &Wanted) -> Value {
    json!([{ "before": null, "after": { "record": wanted.record } }])
}

fn tell(
    client: &AdminClient,
    kind: Resource,
    name: &str,
    outcome: Outcome,
    changes: &Value,
) -> Result<()> {
    if client.as_json || outcome == Outcome::Unchanged {
        return Ok(());
    }
    let mut changes = changes.clone();
    for change in changes.as_array_mut().into_iter().flatten() {
        if change["resource"].is_null() {
            change["resource"] = kind.name().into();
            change["key"] = name.into();
        }
    }
    Ok(output::line(&text::diff(&json!({ "changes": changes })))?)
}

fn sum_up(client: &AdminClient, done: &[(Resource, String, Outcome)], dry_run: bool) -> Result<()> {
    let count = |wanted: Outcome| done.iter().filter(|(_, _, outcome)| *outcome == wanted).count();
    let (created, updated) = (count(Outcome::Created), count(Outcome::Updated));
    let unchanged = count(Outcome::Unchanged);
    if client.as_json {
        let records = done.iter().map(|(kind, name, outcome)| {
            let outcome = match outcome {
                Outcome::Created => "created",
                Outcome::Updated => "updated",
                Outcome::Unchanged => "unchanged",
            };
            json!({ "kind": kind.name(), "name": name, "outcome": outcome })
        });
        let records: Vec<Value> = records.collect();
        let answer = json!({
            "ok": true, "dry_run": dry_run, "created": created, "updated": updated,
            "unchanged": unchanged, "records": records,
        });
        return Ok(output::line(&answer.to_string())?);
    }
    let verb = if dry_run { "would be " } else { "" };
    let text = format!("{created} {verb}created, {updated} {verb}updated, {unchanged} unchanged");
    Ok(output::line(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Records> {
        let mut records = Records::default();
        records.read(text, "file")?;
        Ok(records)
    }

    #[test]
    fn a_file_names_kinds_and_records_in_toml_or_json() {
        let toml = "[limits.\"tenant:acme\"]\ntokens_per_min = 6\n[tenants.acme]\n[settings]\n\
                    \"voters.dead_after_ms\" = 30000\n";
        let json = "{\"limits\": {\"tenant:acme\": {\"tokens_per_min\": 6}}, \"tenants\": {\"acme\": \
                    {}}, \"settings\": {\"voters.dead_after_ms\": {\"value\": 30000}}}";
        for text in [toml, json] {
            let records = read(text).unwrap();
            let limit = records.get(Resource::Limits, "tenant:acme").unwrap();
            assert_eq!(limit.record, json!({ "tokens_per_min": 6 }));
            let kinds: Vec<Resource> = records.0.keys().map(|(kind, _)| *kind).collect();
            assert_eq!(kinds, [Resource::Settings, Resource::Tenants, Resource::Limits]);
        }
        let setting = read(toml).unwrap();
        let setting = setting.get(Resource::Settings, "voters.dead_after_ms").unwrap();
        assert_eq!(setting.record, json!({ "value": "30000" }));
    }

    #[test]
    fn what_is_no_record_is_refused_by_name() {
        for (text, fault) in [
            ("[limit.global]\n", "file: limit is no kind of record"),
            ("[tenants]\nacme = 1\n", "tenants.acme is no record"),
            ("tenants = 1\n", "has to hold names"),
            ("{", "file is no JSON"),
            ("=", "file is no TOML"),
        ] {
            let error = format!("{:#}", read(text).unwrap_err());
            assert!(error.contains(fault), "{text}: {error}");
        }
        let mut records = read("[tenants.acme]\n").unwrap();
        let twice = records.read("[tenants.acme]\n", "other").unwrap_err().to_string();
        assert!(twice.contains("other: tenants.acme is said twice"), "{twice}");
    }
}
