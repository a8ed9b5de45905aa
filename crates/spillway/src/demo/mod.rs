//! `spillway demo`: a node and emulated replicas in one process, and a short mixed load.

mod load;
mod report;
mod table;
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::cli::DemoArgs;
use crate::output;
use load::{Tally, User};
use report::Report;
use table::Table;
use world::World;

/// Users that send one request after the other.
const USERS: u64 = 24;
/// How often the table is drawn.
const REFRESH: Duration = Duration::from_millis(500);

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(show(args))
}

async fn show(args: &DemoArgs) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let world = World::start(args.listen).await?;
    if !args.json {
        output::line(&world.introduction(args.seconds))?;
    }
    let tally = Arc::new(Tally::default());
    let mut users = JoinSet::new();
    for number in 0..USERS {
        users.spawn(User::new(number, world.address(), Arc::clone(&tally)).run());
    }
    let started = Instant::now();
    let is_stopped = tokio::select! {
        result = draw(args, &world, &tally, started) => { result?; false }
        _ = interrupt.recv() => true,
        _ = terminate.recv() => true,
    };
    tally.finish();
    while users.join_next().await.is_some() {}

    let report = Report::new(&world, &tally, started.elapsed());
    output::line(&if args.json { report.json().to_string() } else { report.text() })?;
    if !args.once && !is_stopped {
        output::line(&world.farewell())?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
    world.stop().await;
    report.check()
}

/// Redraws the table until the load's time is over.
async fn draw(args: &DemoArgs, world: &World, tally: &Tally, started: Instant) -> Result<()> {
    let mut table = Table::default();
    let mut interval = tokio::time::interval(REFRESH);
    let length = Duration::from_secs(args.seconds);
    while started.elapsed() < length {
        interval.tick().await;
        if !args.json {
            table.draw(world, tally, started.elapsed())?;
        }
    }
    Ok(())
}
