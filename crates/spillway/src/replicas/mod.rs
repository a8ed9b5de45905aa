//! `spillway replicas`: state of a node's replicas, and orders to them.

mod admin;
mod args;

use anyhow::Result;
use serde_json::{Value, json};

pub(crate) use self::args::ReplicasArgs;
use self::args::ReplicasCommand;
use crate::connect::wait_for;
pub(crate) use crate::replica_table::table;
use crate::{output, screen};

/// Shows the replicas, or carries out an order.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) fn run(args: &ReplicasArgs) -> Result<()> {
    wait_for(answer(args))
}

async fn answer(args: &ReplicasArgs) -> Result<()> {
    match &args.command {
        None => {
            let members = admin::get(&args.connect, "/replicas").await?;
            show(&members, args.connect.json)
        }
        Some(ReplicasCommand::Drain { name, limit_s, preemption }) => {
            let body = json!({ "limit_s": limit_s, "preemption": preemption });
            order(args, name, "drain", &body).await
        }
        Some(ReplicasCommand::Undrain { name }) => order(args, name, "resume", &json!({})).await,
        Some(ReplicasCommand::Load { name, report }) => order(args, name, "load", report).await,
    }
}

async fn order(args: &ReplicasArgs, name: &str, action: &str, body: &Value) -> Result<()> {
    admin::post(&args.connect, &admin::replica_path(name, action), body).await?;
    let done = if args.connect.json {
        json!({ "ok": true, "replica": name, "action": action }).to_string()
    } else {
        // The API's older word for it.
        format!("{name}: {}", if action == "resume" { "undrained" } else { action })
    };
    Ok(output::line(&done)?)
}

fn show(members: &Value, as_json: bool) -> Result<()> {
    let text = if as_json { members.to_string() } else { table(members, screen::width()) };
    Ok(output::line(&text)?)
}
