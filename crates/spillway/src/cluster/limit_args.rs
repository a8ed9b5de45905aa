//! What can be said to `spillway limits`.

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::args::ChangeArgs;
use super::connect::Connect;
use super::record;

#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(subcommand)]
    pub(crate) command: Option<LimitsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LimitsCommand {
    /// Lists all; the same as no command.
    List,
    /// Shows one.
    Show {
        /// Its name.
        name: String,
    },
    /// Writes one as a whole: what is left out is not limited.
    Put {
        /// Its name: `global`, `tenant:NAME`, `model:NAME` or `key:ID`.
        name: String,
        /// A file with JSON, - for standard input, or JSON; not with the flags below.
        record: Option<String>,
        #[command(flatten)]
        terms: LimitFlags,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Removes one.
    Remove {
        /// Its name.
        name: String,
        #[command(flatten)]
        change: ChangeArgs,
    },
}

/// A limit in flags instead of JSON.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LimitFlags {
    /// Requests a second.
    #[arg(long, value_name = "COUNT", conflicts_with = "requests_per_min")]
    pub(crate) requests_per_s: Option<u32>,
    /// Requests a minute.
    #[arg(long, value_name = "COUNT")]
    pub(crate) requests_per_min: Option<u32>,
    /// Tokens a minute.
    #[arg(long, value_name = "COUNT")]
    pub(crate) tokens_per_min: Option<u64>,
    /// Requests at a time.
    #[arg(long, value_name = "COUNT")]
    pub(crate) concurrency: Option<u32>,
    /// The part that a region has for itself, in thousandths; several times for several.
    #[arg(long = "floor-permille", value_name = "REGION=COUNT", value_parser = floor)]
    pub(crate) floors_permille: Vec<(String, u16)>,
}

impl LimitFlags {
    /// The limit's record, by JSON or by flags.
    ///
    /// # Errors
    /// If both or neither are given, or the JSON can't be read.
    pub(super) fn record(&self, given: Option<&str>) -> Result<Value> {
        let flags = self.named();
        match given {
            Some(_) if !flags.is_empty() => bail!("say the limit in JSON or in flags, not in both"),
            Some(given) => record::read("limits", given),
            None if flags.is_empty() => bail!(
                "say what is limited: --requests-per-s, --requests-per-min, --tokens-per-min or \
                 --concurrency, or give a file, - for standard input, or JSON"
            ),
            None => Ok(Value::Object(flags)),
        }
    }

    fn named(&self) -> Map<String, Value> {
        let mut named = Map::new();
        let counts = [
            ("requests_per_s", self.requests_per_s.map(u64::from)),
            ("requests_per_min", self.requests_per_min.map(u64::from)),
            ("tokens_per_min", self.tokens_per_min),
            ("concurrency", self.concurrency.map(u64::from)),
        ];
        for (name, count) in counts {
            named.extend(count.map(|count| (name.to_owned(), json!(count))));
        }
        if !self.floors_permille.is_empty() {
            let floors = self.floors_permille.iter();
            let floors: Map<String, Value> =
                floors.map(|(region, share)| (region.clone(), json!(share))).collect();
            named.insert("floors_permille".to_owned(), floors.into());
        }
        named
    }
}

fn floor(text: &str) -> Result<(String, u16), String> {
    let (region, share) = text.split_once('=').ok_or("write REGION=COUNT")?;
    let share = share.parse().map_err(|_| format!("{share:?} is no number of thousandths"))?;
    Ok((region.to_owned(), share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_what_json_says() {
        let flags = LimitFlags {
            requests_per_min: Some(60),
            tokens_per_min: Some(600_000),
            concurrency: Some(64),
            floors_permille: vec![floor("eu=200").unwrap()],
            ..LimitFlags::default()
        };
        let record = json!({
            "requests_per_min": 60, "tokens_per_min": 600_000, "concurrency": 64,
            "floors_permille": { "eu": 200 },
        });
        assert_eq!(flags.record(None).unwrap(), record);
        assert!(flags.record(Some("{}")).is_err(), "one or the other");
        let none = LimitFlags::default();
        assert!(none.record(None).unwrap_err().to_string().contains("--requests-per-min"));
        assert_eq!(none.record(Some("{\"concurrency\": 1}")).unwrap(), json!({ "concurrency": 1 }));
        assert!(floor("eu").is_err() && floor("eu=many").is_err());
    }
}
