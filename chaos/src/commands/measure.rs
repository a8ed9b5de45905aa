//! `measure`: starts a network, measures it from inside, and ends it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use spillway_chaos::wan::probe::{ProbeEcho, flood, open, round_trips};
use spillway_chaos::wan::{ControlAnswer, ControlCommand, Topology, WanNetwork, WanStats, config};

use super::output::say;

const ECHO_PORT: u16 = 7;
const GAP: Duration = Duration::from_millis(5);
const FLOOD_PORT: u16 = 9;
const FLOOD_BYTES: usize = 1_000;
const FLOOD_S: u32 = 2;

#[derive(Debug, Serialize)]
struct MeasuredFigures {
    pairs: Vec<MeasuredPair>,
    flood: Flood,
}

#[derive(Debug, Serialize)]
struct MeasuredPair {
    between: [String; 2],
    configured_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    lost: u64,
}

#[derive(Debug, Serialize)]
struct Flood {
    sent: u32,
    arrived: u32,
    packets_per_s: u32,
    cpu_us_per_packet: f64,
    lateness_p50_us: u64,
    lateness_p99_us: u64,
}

pub(crate) fn run(file: &Path, probes: u32, per_second: u32, json: bool) -> anyhow::Result<()> {
    let topology = config::read(file).with_context(|| file.display().to_string())?;
    let open_to_all = topology.regions.iter().all(|region| region.nat.is_none());
    anyhow::ensure!(
        open_to_all,
        "a region behind address translation cannot be measured from outside"
    );
    anyhow::ensure!(topology.regions.len() > 1, "one region has no links");
    let network = WanNetwork::start(topology)?;
    let figures =
        MeasuredFigures { pairs: pairs(&network, probes)?, flood: flooded(&network, per_second)? };
    if json {
        say(&serde_json::to_string(&figures)?);
        return Ok(());
    }
    for MeasuredPair { between: [one, other], configured_ms, p50_ms, p99_ms, lost } in
        &figures.pairs
    {
        say(&format!(
            "{one} - {other}: {configured_ms} ms; p50 {p50_ms:.3}, p99 {p99_ms:.3}, lost {lost}"
        ));
    }
    let Flood { sent, arrived, cpu_us_per_packet, lateness_p50_us, lateness_p99_us, .. } =
        figures.flood;
    say(&format!(
        "{per_second} packets/s: {arrived} of {sent} arrived, {cpu_us_per_packet:.1} us of processor \
         each, late by p50 {lateness_p50_us} us, p99 {lateness_p99_us} us"
    ));
    Ok(())
}

fn address(topology: &Topology, region: usize) -> anyhow::Result<Ipv4Addr> {
    let namespace = topology.namespace(region, 1).context("a region has a node")?;
    Ok(topology.namespaces[namespace].nodes[0].1)
}

fn pairs(network: &WanNetwork, probes: u32) -> anyhow::Result<Vec<MeasuredPair>> {
    let topology = network.topology();
    let mut pairs = Vec::new();
    for (to, region) in topology.regions.iter().enumerate() {
        let there = network.namespace(&region.name, 1).context("namespace")?;
        let target = SocketAddrV4::new(address(topology, to)?, ECHO_PORT);
        // Kept until all other regions have measured their path to this one.
        let _echo = ProbeEcho::start(there, target)?;
        // Each pair once: a round trip measures both directions.
        for from in 0..to {
            let name = &topology.regions[from].name;
            let here = network.namespace(name, 1).context("namespace")?;
            let socket = open(here, SocketAddrV4::new(address(topology, from)?, 0))?;
            let measured = round_trips(&socket, target, probes, GAP)?;
            let way_ns = topology.shape(from, to).delay_ns + topology.shape(to, from).delay_ns;
            let ms = |quantile| measured.us.value_at_quantile(quantile) as f64 / 1e3;
            pairs.push(MeasuredPair {
                between: [name.clone(), region.name.clone()],
                configured_ms: way_ns as f64 / 1e6,
                p50_ms: ms(0.5),
                p99_ms: ms(0.99),
                lost: measured.lost,
            });
        }
    }
    Ok(pairs)
}

fn flooded(network: &WanNetwork, per_second: u32) -> anyhow::Result<Flood> {
    let topology = network.topology();
    let address = |index: usize, port: u16| {
        let namespace = network.namespace(&topology.regions[index].name, 1).context("namespace")?;
        let address = SocketAddrV4::new(address(topology, index)?, port);
        open(namespace, address).context("open a socket")
    };
    let (sender, receiver) = (address(0, 0)?, address(1, FLOOD_PORT)?);
    let handle = network.handle();
    handle.ask(ControlCommand::ResetStats {})?;
    let before = stats(network)?.cpu_us;
    let sent = per_second * FLOOD_S;
    let arrived = flood(&sender, &receiver, sent, FLOOD_BYTES, per_second)?;
    let after = stats(network)?;
    Ok(Flood {
        sent,
        arrived,
        packets_per_s: arrived / FLOOD_S,
        cpu_us_per_packet: (after.cpu_us - before) as f64 / f64::from(arrived.max(1)),
        lateness_p50_us: after.lateness_p50_us,
        lateness_p99_us: after.lateness_p99_us,
    })
}

fn stats(network: &WanNetwork) -> anyhow::Result<WanStats> {
    match network.handle().ask(ControlCommand::Stats {})? {
        ControlAnswer::Stats(stats) => Ok(stats),
        _ => anyhow::bail!("the network answered something else"),
    }
}
