//! `exec`: replaces this process by a command inside a region.

use std::ffi::OsString;
use std::path::Path;
use std::process;

use anyhow::Context as _;
use spillway_chaos::wan::{ControlAnswer, ControlCommand, NodeReport, become_inside};

use super::ctl::ask;

/// Replaces this process by `program`. Returns only on error.
pub(crate) fn run(socket: &Path, region: &str, node: u16, program: &[OsString]) -> anyhow::Error {
    let prepared = find(socket, region, node).and_then(|node| {
        let (name, arguments) = program.split_first().context("no command")?;
        let mut program = process::Command::new(name);
        program
            .args(arguments)
            .env("CHAOS_REGION", &node.region)
            .env("CHAOS_NODE", node.node.to_string())
            .env("CHAOS_ADDRESS", node.address.to_string())
            .env("CHAOS_PUBLIC_ADDRESS", node.public_address.to_string());
        Ok((node, program))
    });
    match prepared {
        Ok((node, program)) => {
            let error = become_inside(&node.namespace, program);
            anyhow::Error::new(error).context("run the command inside the region")
        }
        Err(error) => error,
    }
}

fn find(socket: &Path, region: &str, node: u16) -> anyhow::Result<NodeReport> {
    let ControlAnswer::Nodes(nodes) = ask(socket, &ControlCommand::Nodes {})? else {
        anyhow::bail!("the network answered something else");
    };
    let is_it = |one: &NodeReport| one.region == region && one.node == node;
    nodes.into_iter().find(is_it).with_context(|| format!("there is no node {node} of {region}"))
}
