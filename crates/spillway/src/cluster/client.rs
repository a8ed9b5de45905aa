//! Client of the admin API.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header, request};
use http_body_util::BodyExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::change_args::ChangeArgs;
use super::refusal;
use crate::admin_stream::{self, AdminConnection};
use crate::connect::{AdminUrl, Connect};
use crate::output;

/// Time for the whole exchange: longer than a node takes to settle a write.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Largest answer, in bytes: a page of 1,000 records has about as many kB, a backup at most 64 MiB.
const ANSWER_BYTES_MAX: usize = 80 << 20;
/// Number of times that a write of unknown outcome is repeated. The node carries it out once.
const REPEATS_MAX: usize = 2;
/// Number of times that a write is sent again that no leader could take: an election takes a second or
/// two, and longer only where a majority of the voters is gone.
const ELECTIONS_MAX: usize = 8;
/// Time between two of these.
const ELECTION: Duration = Duration::from_secs(1);
/// Records on one page.
const PAGE: usize = 1_000;

/// Characters, beside letters and digits, that a name in a path keeps as they are.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Client of the admin API of one node.
pub(crate) struct AdminClient {
    connect: Connect,
    token: Option<HeaderValue>,
    pub(crate) as_json: bool,
}

/// A refusal by the node.
pub(crate) struct Refusal {
    /// Code of the error, e.g. `conflict`.
    pub(crate) code: String,
    /// Cause and remedy.
    pub(crate) text: String,
}

/// A request to the API.
struct AdminAsk<'a> {
    method: Method,
    path: &'a str,
    body: Bytes,
    headers: Vec<(&'static str, String)>,
}

/// Escapes a name as a part of a path.
pub(crate) fn escaped(name: &str) -> String {
    utf8_percent_encode(name, PLAIN).to_string()
}

impl AdminClient {
    /// Creates a client.
    ///
    /// # Errors
    /// Returns an error if the token can't be read.
    pub(crate) fn new(connect: &Connect) -> Result<Self> {
        let (token, as_json) = (connect.authorization()?, connect.json);
        Ok(Self { connect: connect.clone(), token, as_json })
    }

    /// Returns the address of a page of the docs on the node that is asked.
    pub(crate) fn address_of(&self, page: &str) -> String {
        let AdminUrl { authority, is_tls } = &self.connect.admin;
        let scheme = if *is_tls { "https" } else { "http" };
        format!("{scheme}://{authority}{}", spillway_docs::address_of(page))
    }

    /// Returns the answer at `path`; without a quorum, the node's own state, which is marked as
    /// stale.
    ///
    /// # Errors
    /// Returns an error if the node can't be reached or refuses.
    pub(crate) async fn read(&self, path: &str) -> Result<Value> {
        let (status, answer) = self.ask(&get(path)).await?;
        let code = answer["error"]["code"].as_str();
        // Without a quorum, the node's own state is better than none.
        if matches!(code, Some("no_quorum" | "timed_out" | "stopped")) {
            let sign = if path.contains('?') { '&' } else { '?' };
            let (status, answer) =
                self.ask(&get(&format!("{path}{sign}consistency=stale"))).await?;
            return self.accept(status, answer);
        }
        self.accept(status, answer)
    }

    /// Returns the answer at `path`; `None` if the node has none, e.g. since it is in no cluster.
    ///
    /// # Errors
    /// Returns an error if the node can't be reached.
    pub(crate) async fn optional(&self, path: &str) -> Result<Option<Value>> {
        let sign = if path.contains('?') { '&' } else { '?' };
        let stale = format!("{path}{sign}consistency=stale");
        for path in [path, &stale] {
            let (status, answer) = self.ask(&get(path)).await?;
            if status.is_success() {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// Returns the answer to a change, or the error that the node refused it with, by its code and
    /// text.
    ///
    /// # Errors
    /// Returns an error if the node can't be reached.
    pub(crate) async fn try_change(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        change: &ChangeArgs,
    ) -> Result<Result<Value, Refusal>> {
        let (status, answer) = self.send(method, path, body, change).await?;
        if status.is_success() {
            return Ok(Ok(answer));
        }
        let code = answer["error"]["code"].as_str().unwrap_or(status.as_str()).to_owned();
        Ok(Err(Refusal { text: self.text_of(status, &answer), code }))
    }

    /// Returns all records of a kind: `items` of all pages, and the other fields of the last page.
    ///
    /// # Errors
    /// Returns an error if the node can't be reached or refuses.
    pub(crate) async fn list(&self, resource: &str) -> Result<Value> {
        let (mut items, mut after) = (Vec::new(), String::new());
        loop {
            let mut page = self.read(&format!("/v1/{resource}?limit={PAGE}{after}")).await?;
            if let Value::Array(more) = page["items"].take() {
                items.extend(more);
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={}", escaped(next)),
                None => {
                    page["items"] = items.into();
                    return Ok(page);
                }
            }
        }
    }

    /// Sends a change to `path`. A change of unknown outcome is repeated under one idempotency key.
    /// A change that met no leader, or a cluster that is not formed, is retried for some seconds.
    ///
    /// # Errors
    /// Returns an error if the node can't be reached or refuses.
    pub(crate) async fn change(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        change: &ChangeArgs,
    ) -> Result<Value> {
        let (status, answer) = self.send(method, path, body, change).await?;
        self.accept(status, answer)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        change: &ChangeArgs,
    ) -> Result<(StatusCode, Value)> {
        let mut headers = vec![("idempotency-key", request_name()?)];
        if let Some(version) = change.if_version {
            headers.push(("if-match", format!("\"{version}\"")));
        }
        if change.if_absent {
            headers.push(("if-none-match", "*".to_owned()));
        }
        let query = [("dry_run", change.dry_run), ("create", change.create)];
        let query =
            query.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| format!("{name}=true"));
        let query = query.collect::<Vec<_>>().join("&");
        let path = if query.is_empty() { path } else { &format!("{path}?{query}") };
        let body = body.map(|body| body.to_string().into()).unwrap_or_default();
        let mut ask = AdminAsk { method, path, body, headers };
        let (mut repeats, mut elections) = (0, 0);
        loop {
            let (status, answer) = self.ask(&ask).await?;
            match answer["error"]["code"].as_str() {
                Some("unknown_outcome") if repeats < REPEATS_MAX => repeats += 1,
                // A new cluster has neither leader nor records in its first second.
                Some(code @ ("no_quorum" | "not_formed")) if elections < ELECTIONS_MAX => {
                    if elections == 0 {
                        let why = match code {
                            "not_formed" => "the cluster is not formed yet",
                            _ => "no leader can be reached",
                        };
                        output::note(&format!("{why}; trying again for some seconds"));
                    }
                    if code == "not_formed" {
                        // Under its first name the request would get its first answer again.
                        ask.headers[0].1 = request_name()?;
                    }
                    elections += 1;
                    sleep(ELECTION).await;
                }
                _ => return Ok((status, answer)),
            }
        }
    }

    /// Sends `body` to an endpoint that changes nothing, and returns the answer.
    ///
    /// # Errors
    /// Returns an error if the node can't be reached or refuses.
    pub(crate) async fn ask_about(&self, path: &str, body: String) -> Result<Value> {
        let ask = AdminAsk { method: Method::POST, path, body: body.into(), headers: Vec::new() };
        let (status, answer) = self.ask(&ask).await?;
        self.accept(status, answer)
    }

    /// Returns the bytes at `path`.
    ///
    /// # Errors
    /// Returns an error if the node can't be reached or refuses.
    pub(crate) async fn bytes(&self, path: &str) -> Result<Bytes> {
        let (status, bytes) = self.exchange(&get(path)).await?;
        if !status.is_success() {
            self.accept(status, serde_json::from_slice(&bytes).unwrap_or_default())?;
        }
        Ok(bytes)
    }

    /// Returns the bytes at `path`, and prints nothing if the node refuses.
    ///
    /// # Errors
    /// Returns an error if the node can't be reached or refuses.
    pub(crate) async fn silent_bytes(&self, path: &str) -> Result<Bytes> {
        let (status, bytes) = self.exchange(&get(path)).await?;
        if !status.is_success() {
            let answer = serde_json::from_slice(&bytes).unwrap_or_default();
            bail!("{}", self.text_of(status, &answer));
        }
        Ok(bytes)
    }

    /// Follows the server-sent events at `path`, and hands each over with its kind and its data.
    ///
    /// # Errors
    /// Returns an error if the node can't be reached, refuses or ends the stream, or `each` does.
    pub(crate) async fn events(
        &self,
        path: &str,
        mut each: impl FnMut(&str, &str) -> Result<()>,
    ) -> Result<()> {
        let mut connection = AdminConnection::open(&self.connect).await?;
        let response = connection.send(self.request(&get(path)), Bytes::new()).await?;
        let status = response.status();
        if !status.is_success() {
            let bytes = admin_stream::read(response, ANSWER_BYTES_MAX).await?;
            let answer = serde_json::from_slice(&bytes).unwrap_or_default();
            return self.accept(status, answer).map(drop);
        }
        let mut body = response.into_body();
        let (mut kind, mut line) = (String::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            let Some(bytes) = frame?.into_data().ok() else { continue };
            for byte in bytes {
                if byte != b'\n' {
                    line.push(byte);
                    // No event of a node is longer than an answer.
                    anyhow::ensure!(line.len() <= ANSWER_BYTES_MAX, "an event without end");
                    continue;
                }
                let text = String::from_utf8_lossy(&line).into_owned();
                line.clear();
                if let Some(name) = text.strip_prefix("event:") {
                    name.trim().clone_into(&mut kind);
                } else if let Some(data) = text.strip_prefix("data:") {
                    each(&kind, data.trim())?;
                }
            }
        }
        bail!("the node ended the stream")
    }

    fn accept(&self, status: StatusCode, answer: Value) -> Result<Value> {
        if status.is_success() {
            return Ok(answer);
        }
        // Scripts get the error with all its fields, beside the sentence on standard error.
        if self.as_json {
            output::line(&answer.to_string())?;
        }
        bail!("{}", self.text_of(status, &answer))
    }

    fn text_of(&self, status: StatusCode, answer: &Value) -> String {
        refusal::text_of(&self.connect.admin, self.token.is_some(), status, answer)
    }

    async fn ask(&self, ask: &AdminAsk<'_>) -> Result<(StatusCode, Value)> {
        let (status, bytes) = self.exchange(ask).await?;
        // An intermediary may answer with a page instead of JSON. Its status is enough then.
        Ok((status, serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    async fn exchange(&self, ask: &AdminAsk<'_>) -> Result<(StatusCode, Bytes)> {
        let (request, body) = (self.request(ask), ask.body.clone());
        let asked = admin_stream::ask(&self.connect, request, body, ANSWER_BYTES_MAX);
        let asked = timeout(TIMEOUT, asked).await;
        asked.with_context(|| format!("the node at {} does not answer", self.connect.admin))?
    }

    fn request(&self, ask: &AdminAsk<'_>) -> request::Builder {
        let mut request = Request::builder()
            .method(&ask.method)
            .uri(ask.path)
            .header(header::CONTENT_TYPE, "application/json");
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        request
    }
}

fn get(path: &str) -> AdminAsk<'_> {
    AdminAsk { method: Method::GET, path, body: Bytes::new(), headers: Vec::new() }
}

/// Returns a random idempotency key for a request and its repeats.
fn request_name() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("the system has no random numbers")?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_paths() {
        assert_eq!(escaped("gpu-1.a_b~c"), "gpu-1.a_b~c");
        assert_eq!(escaped("meta/llama 3:é"), "meta%2Fllama%203%3A%C3%A9");
    }
}
