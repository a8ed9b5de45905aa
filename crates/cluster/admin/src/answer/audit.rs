//! Audit trail: past commands and their outcome.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::{Actor, AuditRecord, Outcome, State};

use super::cluster::Cluster;
use super::freshness::Freshness;
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::query::Trail;
use crate::reply::{Reply, json};

/// Past commands, newest first.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AuditPage {
    /// Freshness of the answer.
    #[serde(flatten)]
    pub(crate) freshness: Freshness,
    /// Commands, newest first.
    pub(crate) items: Vec<Deed>,
    /// Value to send as `after` for older commands; null at the end.
    pub(crate) next: Option<String>,
}

/// A command that was carried out or refused.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Deed {
    /// Index of the entry in the log.
    pub(crate) index: u64,
    /// Time of the command, in milliseconds since 1970.
    pub(crate) stamp_ms: u64,
    /// Operator that gave the command; null for commands of nodes themselves.
    pub(crate) operator: Option<String>,
    /// Node that proposed the command.
    pub(crate) node: String,
    /// The command in words.
    pub(crate) what: String,
    /// `applied`, `unchanged`, `conflict` or `refused`.
    pub(crate) outcome: String,
    /// Reason why the command was not applied; null if there is none.
    pub(crate) cause: Option<String>,
}

pub(super) async fn audit(cluster: &Cluster<'_>, call: &AdminCall) -> Result<Reply, ApiError> {
    let query = &call.query;
    let before: Option<u64> = match &query.after {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| wrong())?),
    };
    let look = |state: &State| {
        let ring = match query.trail {
            Trail::Operators => state.operator_audit(),
            Trail::System => state.system_audit(),
        };
        // Newest first, so the next page has lower indices.
        let rows = ring.iter().rev().filter(|(at, _)| before.is_none_or(|before| **at < before));
        // One row more than the page shows if there is another page.
        rows.take(query.limit + 1).map(|(at, record)| deed(*at, record)).collect::<Vec<_>>()
    };
    let read = cluster.read(call, look).await?;
    let freshness = Freshness::of(&read, query.consistency);
    let mut items = read.value;
    let is_more = items.len() > query.limit;
    items.truncate(query.limit);
    let next = items.last().filter(|_| is_more).map(|deed| deed.index.to_string());
    Ok(json(StatusCode::OK, &AuditPage { freshness, items, next }))
}

fn wrong() -> ApiError {
    let remedy = "send what `next` of the page before says";
    ApiError::bad_request("the parameter \"after\" is no index", remedy)
}

/// Returns the text of a record with its share in percent, as all texts for people have it. The
/// record itself has thousandths: it is a part of the state, the same on nodes of all versions.
fn in_percent(what: &str) -> String {
    let parts = what.strip_suffix(" permille").and_then(|rest| rest.rsplit_once(' '));
    match parts.and_then(|(rest, share)| Some((rest, share.parse::<u32>().ok()?))) {
        Some((rest, permille)) => format!("{rest} {} %", f64::from(permille) / 10.0),
        None => what.to_owned(),
    }
}

fn deed(index: u64, record: &AuditRecord) -> Deed {
    let (outcome, cause) = match &record.outcome {
        Outcome::Applied { .. } => ("applied", None),
        Outcome::Unchanged => ("unchanged", None),
        Outcome::Conflict { key, .. } => {
            ("conflict", Some(format!("{key} had another version than expected")))
        }
        Outcome::Refused(refusal) => ("refused", Some(refusal.cause.clone())),
    };
    Deed {
        index,
        stamp_ms: record.stamp_ms,
        operator: match &record.actor {
            Actor::Node => None,
            Actor::Operator(name) => Some(name.clone()),
        },
        node: record.node.to_string(),
        what: in_percent(&record.what),
        outcome: outcome.to_owned(),
        cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_shown_in_percent() {
        let shown = in_percent("set weight of region eu to 125 permille");
        assert_eq!(shown, "set weight of region eu to 12.5 %");
        assert_eq!(
            in_percent("set weight of region eu to 500 permille"),
            "set weight of region eu to 50 %"
        );
        for text in ["put key permille", " permille", "x permille", "reset weight"] {
            assert_eq!(in_percent(text), text);
        }
    }
}
