//! Command line of `spillway limits`.

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use spillway_types::Percent;

use super::record;
use super::resource_args::Recorded;

/// A limit to write, in JSON or in flags.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PutLimit {
    /// A file with JSON, - for standard input, or JSON; not with the flags below. What is left out is
    /// not limited.
    record: Option<String>,
    #[command(flatten)]
    flags: LimitFlags,
}

impl Recorded for PutLimit {
    fn record(&self, resource: &str) -> Result<Value> {
        let flags = self.flags.named();
        match &self.record {
            Some(_) if !flags.is_empty() => bail!("say the limit in JSON or in flags, not in both"),
            Some(given) => record::read(resource, given),
            None if flags.is_empty() => bail!(
                "say what is limited: --requests-per-s, --requests-per-min, --tokens-per-min or \
                 --concurrency, or give a file, - for standard input, or JSON"
            ),
            None => Ok(Value::Object(flags)),
        }
    }
}

/// A limit in flags instead of JSON.
#[derive(Clone, Debug, Default, Args)]
struct LimitFlags {
    /// Requests a second.
    #[arg(long, value_name = "COUNT", conflicts_with = "requests_per_min")]
    requests_per_s: Option<u32>,
    /// Requests a minute.
    #[arg(long, value_name = "COUNT")]
    requests_per_min: Option<u32>,
    /// Tokens a minute.
    #[arg(long, value_name = "COUNT")]
    tokens_per_min: Option<u64>,
    /// Requests at a time.
    #[arg(long, value_name = "COUNT")]
    concurrency: Option<u32>,
    /// The part that a region has for itself, in percent; several times for several.
    #[arg(long = "floor", value_name = "REGION=PERCENT", value_parser = floor)]
    floors_percent: Vec<(String, Percent)>,
}

impl LimitFlags {
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
        if !self.floors_percent.is_empty() {
            let floors = self.floors_percent.iter();
            let floors: Map<String, Value> =
                floors.map(|(region, share)| (region.clone(), json!(share))).collect();
            named.insert("floors_percent".to_owned(), floors.into());
        }
        named
    }
}

fn floor(text: &str) -> Result<(String, Percent), String> {
    let (region, share) = text.split_once('=').ok_or("write REGION=PERCENT")?;
    let share = share.parse().map_err(|error| format!("{share:?}: {error}"))?;
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
            floors_percent: vec![floor("eu=20").unwrap(), floor("us=12.5%").unwrap()],
            ..LimitFlags::default()
        };
        let record = json!({
            "requests_per_min": 60, "tokens_per_min": 600_000, "concurrency": 64,
            "floors_percent": { "eu": 20, "us": 12.5 },
        });
        let put = |given: Option<&str>, flags: &LimitFlags| {
            let put = PutLimit { record: given.map(ToOwned::to_owned), flags: flags.clone() };
            put.record("limits")
        };
        assert_eq!(put(None, &flags).unwrap(), record);
        assert!(put(Some("{}"), &flags).is_err(), "one or the other");
        let none = LimitFlags::default();
        assert!(put(None, &none).unwrap_err().to_string().contains("--requests-per-min"));
        assert_eq!(put(Some("{\"concurrency\": 1}"), &none).unwrap(), json!({ "concurrency": 1 }));
        assert!(floor("eu").is_err() && floor("eu=many").is_err());
    }
}
