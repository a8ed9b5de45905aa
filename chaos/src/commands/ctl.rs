//! `ctl`: sends a command to a running network and prints the answer.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use spillway_chaos::wan::{
    ControlAnswer, ControlCommand, NodeReport, WanStats, server::ControlReply,
};

use super::output::say;

/// Longest wait for an answer. A network that is not stopped answers within a millisecond.
const ANSWER: Duration = Duration::from_secs(10);

pub(crate) fn run(socket: &Path, request: &ControlCommand, json: bool) -> anyhow::Result<()> {
    let answer = ask(socket, request)?;
    if json {
        say(&serde_json::to_string(&answer)?);
        return Ok(());
    }
    match answer {
        ControlAnswer::Done => say("done"),
        ControlAnswer::Stats(stats) => print_stats(&stats),
        ControlAnswer::Nodes(nodes) => print_nodes(&nodes),
    }
    Ok(())
}

/// Sends `command` to the network that listens at `socket`, and returns the answer.
pub(crate) fn ask(socket: &Path, command: &ControlCommand) -> anyhow::Result<ControlAnswer> {
    let mut stream = UnixStream::connect(socket).with_context(|| {
        format!("no network listens at {}; start one with `spillway-chaos wan`", socket.display())
    })?;
    stream.set_read_timeout(Some(ANSWER))?;
    let mut line = serde_json::to_vec(command)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).context("the network does not answer")?;
    let reply: ControlReply = serde_json::from_str(&line).context("the network does not answer")?;
    reply.into_result().map_err(anyhow::Error::msg)
}

fn print_stats(stats: &WanStats) {
    let WanStats { lateness_p50_us, lateness_p99_us, lateness_max_us, strays, .. } = stats;
    say(&format!("on their way: {}, processor: {} us", stats.in_flight, stats.cpu_us));
    say(&format!(
        "late by us: p50 {lateness_p50_us}, p99 {lateness_p99_us}, max {lateness_max_us}"
    ));
    say(&format!("reached no link: {}", flat(strays)));
    for link in &stats.links {
        let cut = if link.is_cut { " CUT" } else { "" };
        let (from, to, delay_ms) = (&link.from, &link.to, link.delay_ms);
        say(&format!("{from} -> {to} ({delay_ms} ms{cut}): {}", flat(&link.counts)));
    }
}

/// Lists the counts that are not zero, as "name count" pairs; "nothing" if all are zero.
fn flat(counts: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(counts).unwrap_or_default();
    let words: Vec<String> = value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, count)| count.as_u64() != Some(0))
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

fn print_nodes(nodes: &[NodeReport]) {
    for report in nodes {
        let NodeReport { region, node, address, public_address, namespace } = report;
        say(&format!("{region} {node}: {address}, outside {public_address}, {namespace}"));
    }
}
