//! `spillway leader`: who leads, and handing the lead over.

use anyhow::Result;
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use crate::cluster::calls::show;
use crate::cluster::change_args::ChangeArgs;
use crate::cluster::client::AdminClient;
use crate::connect::Connect;

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway leader\n\
    Example: spillway leader --to b --admin http://127.0.0.1:9901\n\n\
    Only the leader can transfer leadership, so give its address. Requests continue; writes wait for \
    a moment.")]
pub(crate) struct LeaderArgs {
    #[command(flatten)]
    connect: Connect,
    /// Transfers leadership to this node, which has to be a voter.
    #[arg(long)]
    to: Option<String>,
}

/// Shows the leader, or transfers leadership.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn run(args: &LeaderArgs) -> Result<()> {
    let client = AdminClient::new(&args.connect)?;
    let answer = match &args.to {
        None => client.read("/v1/leader").await?,
        Some(to) => {
            let (body, how) = (json!({ "to": to }), ChangeArgs::default());
            client.change(Method::POST, "/v1/leader", Some(&body), &how).await?
        }
    };
    show(&client, &answer, &sentence(&answer))
}

fn sentence(answer: &Value) -> String {
    let leader = &answer["leader"];
    match (leader["node"].as_str(), answer["term"].as_u64()) {
        (Some(node), Some(term)) => format!("{node} leads in term {term}"),
        (Some(node), None) => format!("{node} leads"),
        (None, _) => "nobody leads, as far as this node knows".to_owned(),
    }
}
