//! `spillway demo`: three regions in one process, far apart, one of which gets more than it can
//! serve. It shows the load without spilling, with spilling, and while another region is lost. In
//! between, an order at one region drains another one.

mod client;
mod control;
mod region;
mod report;
mod sample;
mod stage;
mod table;
mod workload;
mod world;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::DemoArgs;
use crate::output;
use region::DemoRegion;
use report::DemoReport;
use stage::DemoStage;
use table::DemoTable;
use workload::{Loads, MODEL, PLACES, REPLICAS, capacity_per_s};
use world::{DemoWorld, Spill};

/// Load of each region in percent of its capacity: two thirds of the capacity of all regions.
const LOADS: Loads = [120, 40, 40];
/// Load of each region while one is lost, in percent of its capacity. The two regions that are left
/// could only just serve [`LOADS`], and queues grow at full load under any policy.
const LOADS_OUTAGE: Loads = [80, 40, 40];
/// The region that is lost.
const LOST: DemoRegion = DemoRegion::ApNortheast;
/// Phases 1 and 2 get the same requests.
const SEED: u64 = 1;
const SEED_OUTAGE: u64 = 2;
/// Percent of the demo's time in which requests of one of the three phases come. The rest is for
/// starting and for requests that have not ended yet.
const PHASE_PERCENT: u32 = 27;

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stop = Stop::new()?;
        tokio::select! {
            shown = show(args) => {
                let (world, report) = shown?;
                if !args.once {
                    output::line(&farewell(&world))?;
                    stop.requested().await;
                }
                Box::pin(world.stop()).await;
                report.check()
            }
            () = stop.requested() => bail!("stopped before its end"),
        }
    })
}

/// Signals that end the demo.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    fn new() -> Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Runs all phases and prints their summary. The regions that are left stay up.
async fn show(args: &DemoArgs) -> Result<(DemoWorld, DemoReport)> {
    let started = Instant::now();
    let length = Duration::from_secs(args.seconds) * PHASE_PERCENT / 100;
    let mut table = (!args.json).then(DemoTable::new);
    say(args, &introduction(args.seconds))?;

    let stage = |title: &str, loads, seed| {
        let [us, eu, ap] = loads;
        let title = format!("{title}; load {us}/{eu}/{ap} % of what each region can serve");
        DemoStage { title, loads, seed, length, loss: None }
    };
    let without = stage("1/3  without spilling", LOADS, SEED);
    let mut world = Box::pin(DemoWorld::start(args.listen, Spill::Off)).await?;
    let without = without.run(&mut world, table.as_mut()).await?;
    Box::pin(world.stop()).await;

    let with = stage("2/3  the same with spilling", LOADS, SEED);
    let mut world = Box::pin(DemoWorld::start(args.listen, Spill::On)).await?;
    let with = with.run(&mut world, table.as_mut()).await?;

    let control = control::show(&world).await?;
    say(args, &control.text())?;

    let title = format!("3/3  {} is lost after a third of the time", LOST.name());
    let outage =
        DemoStage { loss: Some((LOST, length / 3)), ..stage(&title, LOADS_OUTAGE, SEED_OUTAGE) };
    let outage = outage.run(&mut world, table.as_mut()).await?;

    let report = DemoReport::new(started, [&without, &with, &outage], control);
    let text = if args.json { serde_json::to_string(&report)? } else { report.text() };
    output::line(&text)?;
    Ok((world, report))
}

fn say(args: &DemoArgs, text: &str) -> Result<()> {
    if !args.json {
        output::line(text)?;
    }
    Ok(())
}

fn introduction(seconds: u64) -> String {
    let [us, eu, ap] = DemoRegion::ALL.map(DemoRegion::name);
    let rtt_ms = |one: DemoRegion, other| one.rtt_to(other).as_millis();
    format!(
        "Three regions in one process, a node and {REPLICAS} emulated replicas each (32B model on two \
         NVIDIA H100, {PLACES} requests at a time, {:.0} requests/s a region).\n\
         Between the nodes real QUIC, with the time that the way takes: {us} - {eu} {} ms there and \
         back, {us} - {ap} {} ms, {eu} - {ap} {} ms.\n\
         Chats, most of them streams, come at random times, whatever became of those before. About \
         {seconds} s.",
        capacity_per_s(),
        rtt_ms(DemoRegion::UsEast, DemoRegion::EuCentral),
        rtt_ms(DemoRegion::UsEast, DemoRegion::ApNortheast),
        rtt_ms(DemoRegion::EuCentral, DemoRegion::ApNortheast),
    )
}

fn farewell(world: &DemoWorld) -> String {
    let body = format!(
        r#"{{"model":"{MODEL}","stream":true,"max_tokens":24,"messages":[{{"role":"user","content":"Hello"}}]}}"#
    );
    let mut text = "\nThe regions that are left stay up. Try:".to_owned();
    for region in DemoRegion::ALL.into_iter().filter(|&region| world.is_up(region)) {
        text += &format!(
            "\n  {:<15} curl -iN http://{}/v1/chat/completions -H 'content-type: application/json' \
             -d '{body}'",
            region.name(),
            world.doors()[region.index()],
        );
        if let Some(admin) = world.admin(region) {
            text += &format!("\n  {:<15} curl -s http://{admin}/metrics", "");
        }
    }
    text + "\nCtrl-C ends it."
}
