//! Time from the start of the program to the first request that it serves, and memory then.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use spillway_harness::Process;

use crate::compare::START_MAX;
use crate::load;
use crate::proxy::spillway_command;
use crate::scale::figures::{ScaleFigures, progress};
use crate::scale::memory::Memory;
use crate::scale::site::{SHORT_ANSWER, ScaleSite, one_request, setup};
use crate::stats::median;

/// Pause between two tries, by which the figure may be too high.
const TRY_PAUSE: Duration = Duration::from_micros(200);

/// Time after which memory is read again, when the threads of the start are done.
const LATER: Duration = Duration::from_secs(2);

/// Starts the program so many times, one after the other.
pub(super) async fn measure(spillway: &Path, starts: u16) -> anyhow::Result<ScaleFigures> {
    let site = ScaleSite::start(SHORT_ANSWER)?;
    let mut took_ms = Vec::new();
    let [mut first, mut later] = [Vec::new(), Vec::new()];
    for round in 1..=starts {
        let name = format!("start-{round}");
        let (address, command) = spillway_command(spillway, &name, setup(""), site.site())?;
        let (program, arguments) = command.split_first().context("a program")?;
        let mut command = Command::new(program);
        let log = site.folder().join(&name).join("stderr.log");
        let begun = Instant::now();
        // Without a guard, whose own start would count.
        let mut process = Process::start(&name, command.args(arguments), &log)?;
        first_served(&mut process, address).await?;
        took_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        first.push(Memory::of(process.id().cast_signed())?);
        // wait: for memory that the start alone needed
        tokio::time::sleep(LATER).await;
        later.push(Memory::of(process.id().cast_signed())?);
        progress(&format!("start {round} of {starts}: {:.1} ms", took_ms[took_ms.len() - 1]));
    }
    let mut figures = ScaleFigures::new("", &[("median", 1), ("least", 1), ("most", 1)]);
    row(&mut figures, "exec to the first reply, ms", &took_ms);
    for (when, seen) in [("then", &first), ("2 s later", &later)] {
        let resident: Vec<f64> = seen.iter().map(|memory| memory.resident_mib).collect();
        let anonymous: Vec<f64> = seen.iter().map(|memory| memory.anonymous_mib).collect();
        row(&mut figures, &format!("resident {when}, MiB"), &resident);
        row(&mut figures, &format!("anonymous {when}, MiB"), &anonymous);
    }
    Ok(figures)
}

fn row(figures: &mut ScaleFigures, label: &str, values: &[f64]) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    figures.push(label, &[median(values.iter().copied()).unwrap_or(f64::NAN), least, most]);
}

/// Tries again and again until a request is served.
async fn first_served(process: &mut Process, address: SocketAddr) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_MAX;
    let request = one_request();
    while let Err(error) = load::check(address, &request).await {
        process.check_alive()?;
        anyhow::ensure!(Instant::now() < deadline, "{error:#}: {}", process.last_lines());
        // wait: until the next try
        tokio::time::sleep(TRY_PAUSE).await;
    }
    Ok(())
}
