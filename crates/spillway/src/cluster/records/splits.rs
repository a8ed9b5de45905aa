//! Splits: `spillway splits`, and the list with how the arms do at the node that is asked.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};
use spillway_harness::ScrapedPage;
use spillway_node::Resource;
use spillway_types::Percent;

use super::kind::path_of;
use crate::cluster::calls::{change, show};
use crate::cluster::change_args::ChangeArgs;
use crate::cluster::client::AdminClient;
use crate::cluster::text::{self, Column};
use crate::connect::Connect;

/// Figures of each arm since the node's start.
const ARMS: &[Column] = &[
    ("split", "/split"),
    ("arm", "/arm"),
    ("requests", "/requests"),
    ("errors", "/errors"),
    ("fallbacks", "/fallbacks"),
    ("first token ms", "/first_token_ms"),
    ("reply ms", "/reply_ms"),
    ("prompt tokens", "/prompt_tokens"),
    ("tokens", "/completion_tokens"),
];

#[derive(Debug, Args)]
pub(crate) struct SplitsArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    command: SplitsCommand,
}

#[derive(Debug, Subcommand)]
enum SplitsCommand {
    /// Sets the arms of a split, and keeps its other fields.
    #[command(
        after_help = "Example: spillway splits set big --arm old=big-1:90 --arm new=big-2:10\n\n\
        `spillway get splits` shows how the arms do. `spillway apply split NAME FIELD=VALUE` sets \
        other fields, and `spillway remove split NAME` ends a split."
    )]
    Set {
        /// Name of the split.
        name: String,
        /// An arm and its share in percent, e.g. new=big-2:10; can be repeated. The arms replace all
        /// earlier ones, and their shares add up to 100.
        #[arg(long = "arm", value_name = "NAME=MODEL:PERCENT", value_parser = arm, required = true)]
        arms: Vec<Value>,
        /// Basis for choosing a request's arm: random, user, header:NAME or cookie:NAME.
        #[arg(long)]
        by: Option<String>,
        /// Accepts a new name that looks like a misspelling of a known one.
        #[arg(long)]
        create: bool,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Shows the rollout of a split: its steps, and how the candidate compares with the baseline.
    #[command(after_help = "Example: spillway splits rollout chat")]
    Rollout {
        /// Name of the split.
        name: String,
    },
    /// Gives the candidate of a rollout the share of the next step.
    #[command(after_help = "Example: spillway splits promote chat\n\
        Example: spillway splits promote chat --full --why \"checked by hand\"")]
    Promote {
        #[command(flatten)]
        order: RolloutArgs,
        /// Gives it the share of the last step at once, and ends the rollout.
        #[arg(long)]
        full: bool,
    },
    /// Keeps a rollout at its present step. The guard can still roll it back.
    #[command(after_help = "Example: spillway splits pause chat")]
    Pause(RolloutArgs),
    /// Lets a paused rollout go on.
    #[command(after_help = "Example: spillway splits resume chat")]
    Resume(RolloutArgs),
    /// Takes all traffic from the candidate of a rollout.
    #[command(after_help = "Example: spillway splits roll-back chat --why \"wrong answers\"")]
    RollBack(RolloutArgs),
    /// Begins a rollout again with its first step.
    #[command(after_help = "Example: spillway splits restart chat")]
    Restart(RolloutArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RolloutArgs {
    /// Name of the split.
    name: String,
    /// Reason for the change, for the audit trail.
    #[arg(long, default_value = "")]
    why: String,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Columns of a comparison of arms.
const FINDINGS: &[Column] = &[
    ("measure", "/measure"),
    ("candidate", "/candidate"),
    ("baseline", "/baseline"),
    ("evidence %", "/evidence_percent"),
];

fn arm(text: &str) -> Result<Value, String> {
    let form = "write NAME=MODEL:PERCENT";
    let (name, rest) = text.split_once('=').ok_or(form)?;
    // Models' names have colons, too.
    let (model, share) = rest.rsplit_once(':').ok_or(form)?;
    let share: Percent = share.parse().map_err(|error| format!("{share:?}: {error}"))?;
    Ok(json!({ "name": name, "model": model, "weight_percent": share }))
}

/// Carries out an order about splits.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn run(args: &SplitsArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    let (verb, order) = match &args.command {
        SplitsCommand::Set { name, arms, by, create, change: how } => {
            let path = path_of(Resource::Splits, name)?;
            let mut fields = Map::from_iter([("arms".to_owned(), Value::from(arms.clone()))]);
            fields.extend(by.iter().map(|by| ("by".to_owned(), by.as_str().into())));
            let record = Value::Object(fields);
            let how = how.creating(*create);
            return change(&client, Method::PATCH, &path, Some(&record), &how).await;
        }
        SplitsCommand::Rollout { name } => return show_rollout(&client, name).await,
        SplitsCommand::Promote { order, full: false } => ("promote", order),
        SplitsCommand::Promote { order, full: true } => ("complete", order),
        SplitsCommand::Pause(order) => ("pause", order),
        SplitsCommand::Resume(order) => ("resume", order),
        SplitsCommand::RollBack(order) => ("roll-back", order),
        SplitsCommand::Restart(order) => ("restart", order),
    };
    let path = format!("{}/{verb}", path_of(Resource::Splits, &order.name)?);
    let why = json!({ "why": order.why });
    change(&client, Method::POST, &path, Some(&why), &order.change).await
}

async fn show_rollout(client: &AdminClient, name: &str) -> Result<()> {
    let path = format!("{}/rollout", path_of(Resource::Splits, name)?);
    let answer = client.read(&path).await?;
    let text = |pointer: &str| match answer.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    let why = text("/why");
    let mut shown = format!(
        "{}: step {} of {}, {} has {} %, judged {}\n{} requests against {} of {}\n",
        text("/phase").replace('_', " "),
        text("/step"),
        text("/steps"),
        text("/candidate"),
        text("/candidate_percent"),
        text("/judgement"),
        text("/candidate_requests"),
        text("/baseline_requests"),
        text("/baseline"),
    );
    if !why.is_empty() {
        shown = format!("{shown}last change: {why}\n");
    }
    shown = format!("{shown}\n{}", text::table(FINDINGS, &answer["findings"]));
    show(client, &answer, &shown)
}

/// Lists splits, and below them the arms of all splits that had requests, those of the node's config
/// file included.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn list(client: &AdminClient) -> Result<()> {
    let mut answer = client.list(Resource::Splits.name()).await?;
    // Figures are an addition: without them the list is still worth showing.
    let arms = client.silent_bytes("/metrics").await.ok().and_then(|page| arms(&page));
    let mut shown = text::table(Resource::Splits.columns(), &answer["items"]);
    if let Some(arms) = arms.filter(|arms| arms.as_array().is_some_and(|rows| !rows.is_empty())) {
        shown = format!("{shown}\n\n{}", text::table(ARMS, &arms));
        answer["arms"] = arms;
    }
    show(client, &answer, &shown)
}

/// Returns a row for each arm on a page of metrics; None if the page can't be read.
fn arms(page: &[u8]) -> Option<Value> {
    let is_of_arms = |line: &&str| {
        line.starts_with("spillway_split_") || line.starts_with("# TYPE spillway_split_")
    };
    let lines = std::str::from_utf8(page).ok()?.lines().filter(is_of_arms);
    let text: String = lines.flat_map(|line| [line, "\n"]).chain(["# EOF\n"]).collect();
    let page = ScrapedPage::parse(&text).ok()?;
    let names: BTreeSet<(&str, &str)> = page
        .samples
        .iter()
        .filter_map(|sample| Some((&**sample.labels.get("split")?, &**sample.labels.get("arm")?)))
        .collect();
    Some(names.into_iter().map(|name| row(&page, name)).collect())
}

fn row(page: &ScrapedPage, (split, arm): (&str, &str)) -> Value {
    let sum = |name: &str, more: Option<(&str, &str)>| {
        let labels: Vec<_> = [("split", split), ("arm", arm)].into_iter().chain(more).collect();
        page.sum(&format!("spillway_split_{name}"), &labels)
    };
    let count = |name: &str, more| sum(name, more) as u64;
    let mean_ms = |name: &str| {
        let replies = sum(&format!("{name}_count"), None);
        let mean_s = sum(&format!("{name}_sum"), None) / replies;
        (replies > 0.0).then(|| (mean_s * 1e3).round() as u64)
    };
    json!({
        "split": split,
        "arm": arm,
        "requests": count("requests_total", None),
        "errors": count("errors_total", None),
        "fallbacks": count("requests_total", Some(("status", "fallback"))),
        "first_token_ms": mean_ms("time_to_first_token_seconds"),
        "reply_ms": mean_ms("reply_seconds"),
        "prompt_tokens": count("tokens_total", Some(("kind", "prompt"))),
        "completion_tokens": count("tokens_total", Some(("kind", "completion"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_is_a_name_a_model_and_a_share() {
        let expected = json!({ "name": "new", "model": "qwen:7b", "weight_percent": 12.5 });
        assert_eq!(arm("new=qwen:7b:12.5").unwrap(), expected);
        assert!(arm("new").is_err() && arm("new=big").is_err() && arm("new=big:many").is_err());
    }

    #[test]
    fn each_arm_has_a_row() {
        let page = "# HELP spillway_split_requests_total by \"arm\"\n\
            # TYPE spillway_split_requests_total counter\n\
            spillway_split_requests_total{split=\"chat\",arm=\"new\",status=\"2xx\"} 3\n\
            spillway_split_requests_total{split=\"chat\",arm=\"new\",status=\"fallback\"} 1\n\
            spillway_split_requests_total{split=\"chat\",arm=\"old\",status=\"2xx\"} 7\n\
            # TYPE spillway_split_errors_total counter\n\
            spillway_split_errors_total{split=\"chat\",arm=\"new\",reason=\"fallback\"} 1\n\
            # TYPE spillway_split_reply_seconds histogram\n\
            spillway_split_reply_seconds_sum{split=\"chat\",arm=\"old\"} 1.4\n\
            spillway_split_reply_seconds_count{split=\"chat\",arm=\"old\"} 7\n\
            other{quoted=\"a \\\"b\\\"\"} 1 # {trace_id=\"1\"} 0.1\n";
        let arms = arms(page.as_bytes()).unwrap();
        assert_eq!(arms[0]["arm"], "new");
        assert_eq!((&arms[0]["requests"], &arms[0]["errors"]), (&json!(4), &json!(1)));
        assert_eq!((&arms[0]["fallbacks"], &arms[0]["reply_ms"]), (&json!(1), &Value::Null));
        assert_eq!((&arms[1]["arm"], &arms[1]["reply_ms"]), (&json!("old"), &json!(200)));
        assert_eq!(super::arms(b"# EOF\n").unwrap(), json!([]));
    }
}
