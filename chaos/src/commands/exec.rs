//! `exec`: replaces this process by a command inside a region.

use std::ffi::OsString;
use std::path::Path;
use std::process;

use anyhow::Context as _;
use spillway_chaos::wan::{ControlAnswer, ControlCommand, PlaceReport, become_inside};

use super::ctl::ask;

/// Replaces this process by `program`. Returns only on error.
pub(crate) fn run(socket: &Path, region: &str, node: u16, program: &[OsString]) -> anyhow::Error {
    let prepared = find(socket, region, node).and_then(|place| {
        let (name, arguments) = program.split_first().context("no command")?;
        let mut program = process::Command::new(name);
        program
            .args(arguments)
            .env("CHAOS_REGION", &place.region)
            .env("CHAOS_NODE", place.node.to_string())
            .env("CHAOS_ADDRESS", place.address.to_string())
            .env("CHAOS_PUBLIC_ADDRESS", place.public_address.to_string());
        Ok((place, program))
    });
    match prepared {
        Ok((place, program)) => {
            let error = become_inside(&place.namespace, program);
            anyhow::Error::new(error).context("run the command inside the region")
        }
        Err(error) => error,
    }
}

fn find(socket: &Path, region: &str, node: u16) -> anyhow::Result<PlaceReport> {
    let ControlAnswer::Places(places) = ask(socket, &ControlCommand::Places {})? else {
        anyhow::bail!("the network answered something else");
    };
    let is_it = |place: &&PlaceReport| place.region == region && place.node == node;
    places
        .iter()
        .find(is_it)
        .cloned()
        .with_context(|| format!("there is no node {node} of {region}"))
}
