//! Flags for the fields of records.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use spillway_types::Percent;

use super::resource_args::Fields;

/// Word that empties a field.
const NONE: &str = "none";

/// Flags of a limit.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LimitFields {
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

/// Flags of a tenant.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TenantFields {
    /// Display name.
    #[arg(long, value_parser = text)]
    title: Option<Value>,
    /// True to refuse all keys of the tenant.
    #[arg(long, value_parser = truth, value_name = "true|false")]
    suspended: Option<Value>,
    /// Regions that may serve its requests, separated by commas; `none` for all.
    #[arg(long, value_parser = list)]
    regions: Option<Value>,
    /// Countries whose regions may serve its requests, e.g. DE,FR; `none` for all.
    #[arg(long, value_parser = list)]
    countries: Option<Value>,
    /// True to never share cached prompts with other tenants, even if they are equal.
    #[arg(long, value_parser = truth, value_name = "true|false")]
    isolate_prompts: Option<Value>,
    /// Budget for the tenant's requests per day (UTC), or `none`.
    #[arg(long, value_parser = money, value_name = "AMOUNT")]
    budget_per_day: Option<Value>,
    /// Budget for the tenant's requests per month (UTC), or `none`.
    #[arg(long, value_parser = money, value_name = "AMOUNT")]
    budget_per_month: Option<Value>,
}

/// Flags of a region.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RegionFields {
    /// Country, e.g. DE; `none` for unknown.
    #[arg(long, value_parser = text)]
    country: Option<Value>,
    /// Share of spilled requests that the region takes, in percent of the usual share.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    weight_percent: Option<Value>,
    /// Extra cost of serving in the region, in milliseconds of time to first token.
    #[arg(long, value_name = "MS", value_parser = count)]
    price_ms: Option<Value>,
}

/// Flags of a model's name.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ModelFields {
    /// The model that the alias refers to, or `none`.
    #[arg(long, value_name = "MODEL", value_parser = text_or_null)]
    alias_of: Option<Value>,
    /// Models to try instead, in this order, separated by commas; or `none`.
    #[arg(long, value_name = "MODELS", value_parser = list)]
    fallbacks: Option<Value>,
    /// Price of a million prompt tokens, or `none`.
    #[arg(long, value_name = "AMOUNT", value_parser = money)]
    prompt_per_million: Option<Value>,
    /// Price of a million cached prompt tokens, or `none` for the price of prompt tokens.
    #[arg(long, value_name = "AMOUNT", value_parser = money)]
    cached_per_million: Option<Value>,
    /// Price of a million generated tokens, or `none`.
    #[arg(long, value_name = "AMOUNT", value_parser = money)]
    completion_per_million: Option<Value>,
}

/// Flags of a route.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RouteFields {
    /// Path prefix of all requests of the route, or `none`.
    #[arg(long, value_name = "PATH", value_parser = text_or_null)]
    path_prefix: Option<Value>,
    /// Models that the route serves, separated by commas; `none` for all.
    #[arg(long, value_parser = list)]
    models: Option<Value>,
    /// The pool whose replicas the route uses; `none` for all.
    #[arg(long, value_parser = text)]
    pool: Option<Value>,
    /// The policy that chooses a replica; `none` for the default.
    #[arg(long, value_parser = text)]
    policy: Option<Value>,
    /// Regions that may serve its requests, separated by commas; `none` for all.
    #[arg(long, value_parser = list)]
    regions: Option<Value>,
    /// Countries whose regions may serve its requests, e.g. DE,FR; `none` for all.
    #[arg(long, value_parser = list)]
    countries: Option<Value>,
    /// Another setting of a `[[route]]`, e.g. slo_ms=800 or session={"header":"x-chat"}; the value
    /// `none` means the value in the config file. Can be repeated.
    #[arg(long = "setting", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, Value)>,
}

/// Flags of a split.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SplitFields {
    /// An arm and its share in percent, e.g. new=big-2:10; can be repeated. The arms replace all
    /// earlier ones, and their shares add up to 100.
    #[arg(long = "arm", value_name = "NAME=MODEL:PERCENT", value_parser = arm)]
    arms: Vec<Value>,
    /// Basis for choosing a request's arm: random, user, header:NAME or cookie:NAME; `none` for the
    /// value in the config file.
    #[arg(long, value_parser = text_or_null)]
    by: Option<Value>,
    /// Name of a cookie that keeps a client on the arm that was chosen for it, or `none`.
    #[arg(long, value_name = "NAME", value_parser = text_or_null)]
    sticky_cookie: Option<Value>,
    /// Seconds for which clients keep the cookie; `none` for 30 days.
    #[arg(long, value_name = "SECONDS", value_parser = count)]
    sticky_max_age_s: Option<Value>,
}

/// Flags of a key of the cluster.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct KeyFields {
    /// Role of the key: client, read, operate or admin.
    #[arg(long, value_parser = text)]
    role: Option<Value>,
    /// Tenant of the key.
    #[arg(long, value_parser = text_or_null)]
    tenant: Option<Value>,
    /// Models that the key may use, separated by commas; `none` for all.
    #[arg(long, value_parser = list)]
    models: Option<Value>,
    /// Regions that may serve its requests, separated by commas; `none` for all.
    #[arg(long, value_parser = list)]
    regions: Option<Value>,
    /// Priority class of its requests: 0 is served first.
    #[arg(long, value_parser = count)]
    priority: Option<Value>,
}

/// Flags of a node.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NodeFields {
    /// Role of the node: whether it may vote.
    #[arg(long, value_enum)]
    role: Option<VoteRole>,
    /// Permission of the node to send operators' orders.
    #[arg(long, value_enum)]
    pub(crate) operators: Option<Permission>,
}

/// Whether a node may vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VoteRole {
    /// It may: the rule chooses.
    Any,
    /// It never votes.
    Learner,
}

/// Permission that a node has or has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Permission {
    /// It is.
    Allow,
    /// It is not.
    Deny,
}

impl Fields for LimitFields {
    fn fields(&self) -> Map<String, Value> {
        let mut fields = named([
            ("requests_per_s", &self.requests_per_s),
            ("requests_per_min", &self.requests_per_min),
            ("tokens_per_min", &self.tokens_per_min),
            ("concurrency", &self.concurrency),
        ]);
        // Requests are counted over one time, so one of the two takes the other's place.
        for (given, other) in
            [("requests_per_s", "requests_per_min"), ("requests_per_min", "requests_per_s")]
        {
            if fields.get(given).is_some_and(Value::is_u64) {
                fields.insert(other.to_owned(), Value::Null);
            }
        }
        if !self.floors_percent.is_empty() {
            let floors = self.floors_percent.iter();
            let floors: Map<String, Value> =
                floors.map(|(region, share)| (region.clone(), json!(share))).collect();
            fields.insert("floors_percent".to_owned(), floors.into());
        }
        fields
    }
}

impl Fields for TenantFields {
    fn fields(&self) -> Map<String, Value> {
        named([
            ("title", &self.title),
            ("is_suspended", &self.suspended),
            ("regions", &self.regions),
            ("countries", &self.countries),
            ("isolate_prompts", &self.isolate_prompts),
            ("budget_per_day", &self.budget_per_day),
            ("budget_per_month", &self.budget_per_month),
        ])
    }
}

impl Fields for RegionFields {
    fn fields(&self) -> Map<String, Value> {
        named([
            ("country", &self.country),
            ("weight_percent", &self.weight_percent),
            ("price_ms", &self.price_ms),
        ])
    }
}

impl Fields for ModelFields {
    fn fields(&self) -> Map<String, Value> {
        named([
            ("alias_of", &self.alias_of),
            ("fallbacks", &self.fallbacks),
            ("prompt_per_million", &self.prompt_per_million),
            ("cached_per_million", &self.cached_per_million),
            ("completion_per_million", &self.completion_per_million),
        ])
    }
}

impl Fields for RouteFields {
    fn fields(&self) -> Map<String, Value> {
        let mut fields = named([
            ("path_prefix", &self.path_prefix),
            ("models", &self.models),
            ("pool", &self.pool),
            ("policy", &self.policy),
            ("regions", &self.regions),
            ("countries", &self.countries),
        ]);
        fields.extend(self.settings.iter().cloned());
        fields
    }
}

impl Fields for SplitFields {
    fn fields(&self) -> Map<String, Value> {
        let arms = Some(Value::from(self.arms.clone())).filter(|_| !self.arms.is_empty());
        named([
            ("arms", &arms),
            ("by", &self.by),
            ("sticky_cookie", &self.sticky_cookie),
            ("sticky_max_age_s", &self.sticky_max_age_s),
        ])
    }
}

impl Fields for KeyFields {
    fn fields(&self) -> Map<String, Value> {
        named([
            ("role", &self.role),
            ("tenant", &self.tenant),
            ("models", &self.models),
            ("regions", &self.regions),
            ("priority", &self.priority),
        ])
    }
}

impl Fields for NodeFields {
    fn fields(&self) -> Map<String, Value> {
        let role = self.role.map(|role| match role {
            VoteRole::Any => "any".into(),
            VoteRole::Learner => "learner".into(),
        });
        named([("role", &role)])
    }
}

fn named<const COUNT: usize>(fields: [(&str, &Option<Value>); COUNT]) -> Map<String, Value> {
    let given = fields.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
    given.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn count(text: &str) -> Result<Value, String> {
    match text {
        NONE => Ok(Value::Null),
        text => text.parse::<u64>().map(Value::from).map_err(|error| error.to_string()),
    }
}

fn percent(text: &str) -> Result<Value, String> {
    let share: Percent = text.parse().map_err(|error| format!("{error}"))?;
    Ok(json!(share))
}

fn money(text: &str) -> Result<Value, String> {
    match text {
        NONE => Ok(Value::Null),
        // Kept as it is written: the node judges amounts.
        text => serde_json::from_str(text)
            .ok()
            .filter(Value::is_number)
            .ok_or_else(|| format!("{text:?} is no amount: give a number, or `{NONE}`")),
    }
}

fn setting(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    let value = match value {
        NONE => Value::Null,
        // A bare word needs no quotes.
        value => serde_json::from_str(value).unwrap_or_else(|_| value.into()),
    };
    Ok((name.to_owned(), value))
}

fn truth(text: &str) -> Result<Value, String> {
    text.parse::<bool>().map(Value::from).map_err(|_| "say true or false".to_owned())
}

#[expect(clippy::unnecessary_wraps, reason = "a parser of clap returns a result")]
fn text(text: &str) -> Result<Value, String> {
    Ok(if text == NONE { "".into() } else { text.into() })
}

#[expect(clippy::unnecessary_wraps, reason = "a parser of clap returns a result")]
fn text_or_null(text: &str) -> Result<Value, String> {
    Ok(if text == NONE { Value::Null } else { text.into() })
}

#[expect(clippy::unnecessary_wraps, reason = "a parser of clap returns a result")]
fn list(text: &str) -> Result<Value, String> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    Ok(if text == NONE { json!([]) } else { items.collect::<Vec<_>>().into() })
}

fn floor(text: &str) -> Result<(String, Percent), String> {
    let (region, share) = text.split_once('=').ok_or("write REGION=PERCENT")?;
    let share = share.parse().map_err(|error| format!("{share:?}: {error}"))?;
    Ok((region.to_owned(), share))
}

fn arm(text: &str) -> Result<Value, String> {
    let form = "write NAME=MODEL:PERCENT";
    let (name, rest) = text.split_once('=').ok_or(form)?;
    // Models' names have colons, too.
    let (model, share) = rest.rsplit_once(':').ok_or(form)?;
    Ok(json!({ "name": name, "model": model, "weight_percent": percent(share)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_what_json_says() {
        let flags = LimitFields {
            requests_per_min: Some(json!(60)),
            tokens_per_min: count("none").ok(),
            floors_percent: vec![floor("eu=20").unwrap(), floor("us=12.5%").unwrap()],
            ..LimitFields::default()
        };
        let record = json!({
            "requests_per_min": 60, "requests_per_s": null, "tokens_per_min": null,
            "floors_percent": { "eu": 20, "us": 12.5 },
        });
        assert_eq!(Value::Object(flags.fields()), record);
        assert!(LimitFields::default().fields().is_empty());
        assert!(floor("eu").is_err() && floor("eu=many").is_err() && count("-1").is_err());
    }

    #[test]
    fn lists_have_commas_and_none_is_the_empty_one() {
        assert_eq!(list("DE, FR,").unwrap(), json!(["DE", "FR"]));
        assert_eq!(list("none").unwrap(), json!([]));
        assert_eq!(text("none").unwrap(), "");
        assert_eq!(text_or_null("none").unwrap(), Value::Null);
    }

    #[test]
    fn a_setting_is_a_name_and_a_value_in_json_or_a_word() {
        assert_eq!(setting("slo_ms=800").unwrap(), ("slo_ms".to_owned(), json!(800)));
        assert_eq!(setting("hash_by=header:x-user").unwrap().1, "header:x-user");
        let session = setting("session={\"header\":\"x\"}").unwrap().1;
        assert_eq!(session, json!({ "header": "x" }));
        assert_eq!(setting("slo_ms=none").unwrap().1, Value::Null);
        assert!(setting("slo_ms").is_err());
        assert_eq!(money("2.5").unwrap(), json!(2.5));
        assert_eq!(money("none").unwrap(), Value::Null);
        assert!(money("many").is_err());
    }

    #[test]
    fn an_arm_is_a_name_a_model_and_a_share() {
        let expected = json!({ "name": "new", "model": "qwen:7b", "weight_percent": 12.5 });
        assert_eq!(arm("new=qwen:7b:12.5").unwrap(), expected);
        assert!(arm("new").is_err() && arm("new=big").is_err() && arm("new=big:many").is_err());
    }
}
