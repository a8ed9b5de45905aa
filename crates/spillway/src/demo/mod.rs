//! `spillway demo`: three regions in one process, far apart, one of which gets more than it can
//! serve. It shows the load without spilling, with spilling, and while another region is lost; a limit
//! that holds while a region is cut off, a stream that survives its replica, and an order at one
//! region that drains another.

mod args;
mod client;
mod control;
mod panel;
mod region;
mod report;
mod sample;
mod shared_limit;
mod snapshot;
mod stage;
mod survival;
mod view;
mod workload;
mod world;

use std::fs::File;
use std::io::{IsTerminal, stderr, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output;
pub(crate) use args::DemoArgs;
use region::DemoRegion;
use report::{DemoReport, Scenes};
use shared_limit::SharedLimit;
use stage::DemoStage;
use survival::Survival;
use view::DemoView;
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
/// Seconds of the demo in which no requests of the three phases come: for starting, for requests that
/// have not ended yet, and for the limit and the stream.
const BESIDE_PHASES_S: u64 = 20;

/// File in the folder for temporary files that takes the log while the panel has the terminal.
const LOG_FILE: &str = "spillway-demo.log";

/// Returns the file that takes the log; `None` if it can go to standard error, since either that
/// or standard output is no terminal.
///
/// # Errors
/// Returns an error if the file can't be made.
pub(crate) fn log_file(args: &DemoArgs) -> Result<Option<File>> {
    let has_panel = !args.json && stdout().is_terminal();
    if !has_panel || !stderr().is_terminal() {
        return Ok(None);
    }
    let path = log_path();
    let file = File::create(&path).with_context(|| format!("can't write {}", path.display()))?;
    Ok(Some(file))
}

/// Returns the level of the log. The demo cuts and kills on purpose, and its nodes warn of it: that is
/// for the log's file, and would bury the demo's own lines.
pub(crate) fn log_level(args: &DemoArgs) -> &'static str {
    if args.json || !stdout().is_terminal() { "error,openraft=off" } else { "warn" }
}

fn log_path() -> PathBuf {
    std::env::temp_dir().join(LOG_FILE)
}

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
    let length = Duration::from_secs(args.seconds.saturating_sub(BESIDE_PHASES_S)) / 3;
    let mut view = DemoView::new(args.json)?;
    view.tell(&introduction(args.seconds))?;
    let [first, second, third] = stages(length);

    let mut world = Box::pin(DemoWorld::start(args.listen, Spill::Off)).await?;
    view.open(&world)?;
    world.meet().await?;
    let without = first.run(&mut world, &mut view).await?;
    Box::pin(world.stop()).await;

    let mut world = Box::pin(DemoWorld::start(args.listen, Spill::On)).await?;
    view.open(&world)?;
    world.meet().await?;
    let with = second.run(&mut world, &mut view).await?;

    let control = control::show(&world).await?;
    view.tell(&control.text())?;
    view.begin(3, "a limit, while a region is cut off", &SharedLimit::story())?;
    let limit = shared_limit::show(&world).await?;
    view.tell(&limit.text())?;
    let outage = third.run(&mut world, &mut view).await?;
    view.begin(5, "a stream outlives its replica", &Survival::story())?;
    let stream = survival::show(&world).await?;
    view.tell(&stream.text())?;

    let scenes = Scenes { control, limit, stream };
    let report = DemoReport::new(started, [&without, &with, &outage], scenes);
    view.end(&report)?;
    Ok((world, report))
}

/// Returns the three phases. `length` is the time in which requests come in each.
fn stages(length: Duration) -> [DemoStage; 3] {
    let [us, eu, ap] = DemoRegion::ALL.map(DemoRegion::name);
    let [busy, calm, _] = LOADS;
    let first = DemoStage {
        number: 1,
        title: "each region alone",
        story: format!(
            "{us} gets {busy} % of what it can serve, {eu} and {ap} {calm} %. No region helps another, \
             so the queue of {us} grows."
        ),
        loads: LOADS,
        seed: SEED,
        length,
        loss: None,
    };
    let second = DemoStage {
        number: 2,
        title: "the same requests, with spilling",
        story: format!(
            "Each node now sends a request where its first token comes soonest, the way included. \
             {us} hands over what would have waited longer than the way takes."
        ),
        ..first
    };
    let third = DemoStage {
        number: 4,
        title: "a region is lost",
        story: format!(
            "{} loses network and power after a third of the time. The others notice by silence, \
             and its clients go to the nearest region that is left.",
            LOST.name()
        ),
        loads: LOADS_OUTAGE,
        seed: SEED_OUTAGE,
        loss: Some((LOST, length / 3)),
        ..first
    };
    [first, second, third]
}

fn introduction(seconds: u64) -> String {
    let [us, eu, ap] = DemoRegion::ALL.map(DemoRegion::name);
    let rtt_ms = |one: DemoRegion, other| one.rtt_to(other).as_millis();
    format!(
        "Three regions in one process, about {seconds} s. Each has a node and {REPLICAS} emulated \
         replicas:\na 32B model on two NVIDIA H100, {PLACES} requests at a time, {:.0} requests/s a \
         region.\nReal QUIC between the nodes, as slow as the way: {us} - {eu} {} ms\nthere and \
         back, {us} - {ap} {} ms, {eu} - {ap} {} ms.",
        capacity_per_s(),
        rtt_ms(DemoRegion::UsEast, DemoRegion::EuCentral),
        rtt_ms(DemoRegion::UsEast, DemoRegion::ApNortheast),
        rtt_ms(DemoRegion::EuCentral, DemoRegion::ApNortheast),
    )
}

/// Returns what to try with the regions that are left.
fn farewell(world: &DemoWorld) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "spillway".to_owned());
    let mut text = "The regions that are left stay up.\n".to_owned();
    let left = || DemoRegion::ALL.into_iter().filter(|&region| world.is_up(region));
    for region in left() {
        let Some(admin) = world.admin(region) else { continue };
        text += &format!("\n  Console of {:<13} http://{admin}/console/", region.name());
    }
    if let Some((region, admin)) = left().find_map(|it| Some((it, world.admin(it)?))) {
        let door = world.doors()[region.index()];
        text += &format!(
            "\n\nTry, from another terminal:\n\n  {program} top --admin http://{admin}\n  {program} tail --admin \
             http://{admin}\n  {program} explain --model {MODEL} --admin http://{admin}\n\n  curl -iN \
             http://{door}/v1/chat/completions \\\n    -H 'content-type: application/json' \\\n    -d '{{\"model\": \
             \"{MODEL}\", \"stream\": true, \"max_tokens\": 24,\n         \"messages\": [{{\"role\": \"user\", \
             \"content\": \"Hello\"}}]}}'\n"
        );
    }
    let log = log_path();
    if stderr().is_terminal() && log.metadata().is_ok_and(|file| file.len() > 0) {
        text += &format!("\nThe nodes' log is in {}.", log.display());
    }
    text + "\nCtrl-C ends them."
}
