//! Admin API of one node, as far as trials need it. Tenants serve as registers.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{ApiAnswer, ApiClient, CallError};
use super::patience::patiently;

/// Time limit of a call, longer than the 10 s that the API takes at most.
const LIMIT: Duration = Duration::from_secs(13);
/// Time limit of a status, which the API answers at once.
const STATUS_LIMIT: Duration = Duration::from_secs(2);

/// Time limit of a chat request, longer than a forwarded one ever takes.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// Result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// The write is in the log, at this index.
    Done(u64),
    /// The record has another version.
    Conflict,
    /// The write had no effect, for this reason.
    Refused(String),
    /// No answer came: the write may have taken effect, or may still do so.
    Unknown,
}

/// Result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiRead {
    /// Value and version; `None` if the key is absent.
    Value(Option<(u64, u64)>, Freshness),
    /// The node gave no value, for this reason.
    Refused(String),
}

/// Freshness that an answer states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Freshness {
    pub(crate) consistency: String,
    pub(crate) age_ms: Option<u64>,
}

/// Status that a node reports of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) cluster: Option<String>,
    pub(crate) role: String,
    pub(crate) term: u64,
    pub(crate) leader: Option<String>,
    pub(crate) applied_index: Option<u64>,
    pub(crate) voters: usize,
    pub(crate) members: usize,
    /// Names of the members that vote.
    voter_names: Vec<String>,
}

impl Status {
    /// Returns true if the node `name` votes.
    pub(crate) fn votes(&self, name: &str) -> bool {
        self.voter_names.iter().any(|voter| voter == name)
    }
}

impl ApiClient {
    /// Writes a value: always, or only if the version is still `over`.
    pub(crate) async fn write(&self, key: &str, value: u64, over: Option<u64>) -> Write {
        let path = format!("/v1/tenants/{key}");
        let body = json!({ "title": value.to_string() }).to_string();
        let version = over.map(|version| format!("\"{version}\""));
        let headers = version.as_deref().map(|version| ("if-match", version));
        let headers: Vec<_> = headers.into_iter().collect();
        match self.send(("PUT", &path), &headers, body, LIMIT).await {
            Ok(answer) => of_write(&answer),
            // A request that was not sent cannot take effect.
            Err(CallError::Unsent(why)) => Write::Refused(why),
            Err(CallError::Lost(_)) => Write::Unknown,
        }
    }

    /// Reads a value with the given consistency: `linearizable` or `stale`.
    pub(crate) async fn read(&self, key: &str, consistency: &str) -> ApiRead {
        let path = format!("/v1/tenants/{key}?consistency={consistency}");
        let answer = match self.send(("GET", &path), &[], String::new(), LIMIT).await {
            Ok(answer) => answer,
            Err(error) => return ApiRead::Refused(error.to_string()),
        };
        let body = &answer.body;
        let freshness = Freshness {
            consistency: body["consistency"].as_str().unwrap_or_default().to_owned(),
            age_ms: body["age_ms"].as_u64(),
        };
        match (answer.status, code(body)) {
            (200, _) => match value(&body["item"]) {
                Some(found) => ApiRead::Value(Some(found), freshness),
                None => ApiRead::Refused(format!("not readable: {body}")),
            },
            // Only this code means that the key is absent; any other 404 does not.
            (404, "not_found") => ApiRead::Value(None, freshness),
            (status, code) => ApiRead::Refused(format!("{status} {code}")),
        }
    }

    pub(crate) async fn status(&self) -> Option<Status> {
        let answer =
            self.send(("GET", "/v1/status"), &[], String::new(), STATUS_LIMIT).await.ok()?;
        let Value::Object(body) = &answer.body else { return None };
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let members = body.get("members").and_then(Value::as_array);
        let is_voter = |member: &&Value| member["is_voter"] == true;
        let voters = members.into_iter().flatten().filter(is_voter);
        let voter_names: Vec<String> = voters.filter_map(|voter| text(voter.get("name"))).collect();
        Some(Status {
            cluster: text(body.get("cluster")),
            role: text(body.get("role"))?,
            term: body.get("term")?.as_u64()?,
            leader: text(body.get("leader").and_then(|leader| leader.get("node"))),
            applied_index: body.get("applied_index").and_then(Value::as_u64),
            voters: voter_names.len(),
            members: members.map_or(0, Vec::len),
            voter_names,
        })
    }

    /// Asks a node to transfer leadership to `to`, and returns true if it did. Only the leader
    /// does.
    pub(crate) async fn hand_over(&self, to: &str) -> bool {
        let body = json!({ "to": to }).to_string();
        let answer = self.send(("POST", "/v1/leader"), &[], body, LIMIT).await;
        answer.is_ok_and(|answer| answer.is_success())
    }

    /// Allows operators' commands from a node. Returns false if that was refused or not answered.
    pub(crate) async fn trust(&self, node: &str) -> bool {
        let body = json!({ "operators": true }).to_string();
        let path = format!("/v1/nodes/{node}/operators");
        let answer = self.send(("POST", &path), &[], body, LIMIT).await;
        answer.is_ok_and(|answer| answer.is_success())
    }

    /// Waits until chat requests are served.
    pub(crate) async fn serves(&self) -> anyhow::Result<()> {
        patiently("requests are not served", async || self.chat().await).await
    }

    /// Sends a chat request. Anything but a successful reply is an error.
    pub(crate) async fn chat(&self) -> Result<(), String> {
        let body = json!({
            "model": "tiny", "max_tokens": 4,
            "messages": [{ "role": "user", "content": "Count to four." }],
        });
        let headers = [("content-type", "application/json")];
        let to = ("POST", "/v1/chat/completions");
        match self.send(to, &headers, body.to_string(), REQUEST_LIMIT).await {
            Ok(answer) if answer.is_success() => Ok(()),
            Ok(answer) => Err(format!("{} {}", answer.status, answer.body)),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn code(body: &Value) -> &str {
    body["error"]["code"].as_str().unwrap_or_default()
}

fn value(item: &Value) -> Option<(u64, u64)> {
    let value = item["record"]["title"].as_str()?.parse().ok()?;
    Some((value, item["version"].as_u64()?))
}

fn of_write(answer: &ApiAnswer) -> Write {
    match (answer.status, code(&answer.body)) {
        (200, _) => answer.body["version"].as_u64().map_or(Write::Unknown, Write::Done),
        (409, "conflict") => Write::Conflict,
        // These statuses leave open if the write takes effect.
        (500 | 504, _) => Write::Unknown,
        (status, code) => Write::Refused(format!("{status} {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_promise_counts_as_refused() {
        let write = |status, code: &str| {
            let body = json!({ "error": { "code": code } });
            of_write(&ApiAnswer { status, body })
        };
        assert_eq!(write(503, "no_quorum"), Write::Refused("503 no_quorum".to_owned()));
        assert_eq!(write(409, "conflict"), Write::Conflict);
        assert_eq!(write(504, "unknown_outcome"), Write::Unknown);
        assert_eq!(write(500, "internal"), Write::Unknown);
        let done = ApiAnswer { status: 200, body: json!({ "version": 7 }) };
        assert_eq!(of_write(&done), Write::Done(7));
    }
}
