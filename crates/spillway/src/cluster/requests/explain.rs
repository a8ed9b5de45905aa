//! `spillway explain`: where a request went or would go, and why not elsewhere.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::explanation::picture;
use super::request;
use crate::cluster::calls::show;
use crate::cluster::client::{AdminClient, escaped};
use crate::connect::Connect;
use crate::output::WrongUsage;

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway explain 4bf92f3577b34da6a3ce929d0e0e4736\n\
    Example: spillway explain --model llama-3.1-8b --prompt 'Why is the sky blue?'\n\
    Example: spillway explain --body request.json --tenant acme --header 'x-session-id: 7'\n\n\
    With an id, from the `x-request-id` of a reply, it shows a completed request, at each node that \
    handled it. Otherwise the request is not sent to a replica, and the answer holds for this node at this moment.")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    connect: Connect,
    /// The id of a completed request, to show where it was routed, and why.
    #[arg(conflicts_with_all = ["model", "prompt", "body", "path", "headers", "tenant", "client"])]
    request: Option<String>,
    /// The requested model.
    #[arg(long)]
    model: Option<String>,
    /// The user's message, in a chat of one message.
    #[arg(long, default_value = "Hello")]
    prompt: String,
    /// A file with the whole body as JSON, instead of model and prompt.
    #[arg(long, conflicts_with_all = ["model", "prompt"])]
    body: Option<PathBuf>,
    /// The path of the request.
    #[arg(long, default_value = "/v1/chat/completions")]
    path: String,
    /// A header of the request, `name: value`; can be repeated.
    #[arg(long = "header", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// The tenant of the request.
    #[arg(long)]
    tenant: Option<String>,
    /// The address of the client, for rules about the countries of clients; unknown by default.
    #[arg(long)]
    client: Option<IpAddr>,
}

/// Body of the API request. The explained body is sent unchanged, since cache hits depend on it.
#[derive(Serialize)]
struct ExplainOrder<'a> {
    path: &'a str,
    headers: BTreeMap<&'a str, &'a str>,
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    body: &'a RawValue,
}

/// Asks a node and shows its answer.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses, or the file can't be read.
pub(crate) async fn run(args: &ExplainArgs) -> Result<()> {
    if args.request.is_none() && args.model.is_none() && args.body.is_none() {
        bail!(WrongUsage(
            "say what to explain: `spillway explain ID` a request that ended, `spillway explain \
             --model MODEL` or `--body FILE` one that would come now"
                .to_owned()
        ));
    }
    let client = AdminClient::new(&args.connect)?;
    if let Some(id) = &args.request {
        return ended(&client, id).await;
    }
    let body = body(args)?;
    let order = ExplainOrder {
        path: &args.path,
        headers: args.headers.iter().map(|(name, value)| (&**name, &**value)).collect(),
        tenant: args.tenant.as_deref(),
        client: args.client,
        body: &body,
    };
    let answer = client.ask_about("/v1/explain", serde_json::to_string(&order)?).await?;
    show(&client, &answer, &picture(&answer))
}

/// Shows the requests of an id, which a client may have used several times.
async fn ended(client: &AdminClient, id: &str) -> Result<()> {
    let of_node = format!("/v1/requests?id={}", escaped(id));
    // A node of an older release can't ask the others.
    let answer = match client.read(&format!("{of_node}&scope=cluster")).await {
        Ok(answer) => answer,
        Err(_) => client.read(&of_node).await?,
    };
    let entries = answer["requests"].as_array().cloned().unwrap_or_default();
    let unasked = unasked(&answer);
    anyhow::ensure!(
        !entries.is_empty(),
        "no node remembers a request {id}: each keeps the last 4,096 that ended{}",
        unasked.iter().map(|it| format!("; {it}")).collect::<String>()
    );
    let stories = hops(entries).iter().map(request::story).chain(unasked).collect::<Vec<_>>();
    show(client, &answer, &stories.join("\n\n"))
}

/// Names the nodes that could not be asked, with the reason.
fn unasked(answer: &Value) -> Vec<String> {
    let nodes = answer["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let unasked = |node: &Value| {
        let (name, fault) = (node["name"].as_str()?, node["fault"].as_str()?);
        Some(format!("{name} could not be asked: {fault}"))
    };
    nodes.iter().filter_map(unasked).collect()
}

/// Puts the records of a request in the order of its hops: the client's own node, then the node of
/// another region that served it.
fn hops(mut entries: Vec<Value>) -> Vec<Value> {
    entries.sort_by_key(|entry| entry["is_guest"] == true);
    entries
}

fn body(args: &ExplainArgs) -> Result<Box<RawValue>> {
    let text = match &args.body {
        Some(file) => std::fs::read_to_string(file)
            .with_context(|| format!("{} can't be read", file.display()))?,
        None => {
            let message = json!({ "role": "user", "content": args.prompt });
            json!({ "model": args.model, "messages": [message] }).to_string()
        }
    };
    RawValue::from_string(text.trim().to_owned()).context("the body is no JSON")
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as 'name: value'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_could_not_be_asked_are_named() {
        let answer = json!({ "nodes": [{ "name": "n1", "fault": null },
            { "name": "n2", "fault": "there is no connection" }] });
        assert_eq!(unasked(&answer), ["n2 could not be asked: there is no connection"]);
        assert!(unasked(&json!({ "requests": [] })).is_empty());
    }

    #[test]
    fn a_header_has_a_name_and_a_value() {
        let header = ("x-session-id".to_owned(), "a:b".to_owned());
        assert_eq!(parse_header("x-session-id: a:b"), Ok(header));
        assert!(parse_header("x-session-id").is_err());
    }
}
