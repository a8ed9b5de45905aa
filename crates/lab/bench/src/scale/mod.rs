//! Figures of scale: resources of a node after its start, with many prompts, connections and
//! streams, and in a large cluster.
//!
//! Each starts the real binary on loopback. A node under test has no other work than the measured
//! one.

mod connections;
mod figures;
mod idle_cluster;
mod memory;
mod prompts;
mod site;
mod start;
mod streams;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use figures::{ScaleFigures, progress};

/// Options of `scale`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  spillway-bench scale --spillway target/release/spillway --only start"
)]
pub(crate) struct ScaleArguments {
    /// The Spillway binary.
    #[arg(long)]
    spillway: PathBuf,
    /// What to measure, separated by commas; everything if left out.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<ScaleName>,
    /// Starts of `start`.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..=100))]
    starts: u16,
    /// Prompts of `prompts`; memory is read after a tenth, three tenths and all of them.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10..))]
    prompts: u64,
    /// Connections of `idle-connections`.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u16).range(1..=16_000))]
    connections: u16,
    /// Streams of `streams`.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..=4_000))]
    streams: u16,
    /// Numbers of regions of `idle-cluster`, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "3,10,50",
        value_parser = clap::value_parser!(u8).range(2..=200))]
    regions: Vec<u8>,
    /// Seconds that `idle-cluster` measures.
    #[arg(long, default_value_t = 60)]
    cluster_s: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Kind of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScaleName {
    /// Time from the start to the first reply, and memory then.
    Start,
    /// Memory after many distinct prompts of 16 KB.
    Prompts,
    /// Memory and CPU of idle client connections.
    IdleConnections,
    /// Memory and CPU of many slow streams.
    Streams,
    /// CPU and memory of idle nodes, one in each of many regions.
    IdleCluster,
}

/// Measures the requested figures, and prints each part when it ends.
pub(crate) async fn run(arguments: &ScaleArguments) -> anyhow::Result<ExitCode> {
    let all = ScaleName::value_variants();
    let names = if arguments.only.is_empty() { all } else { &arguments.only };
    let mut measured = Vec::new();
    for name in names {
        progress(&format!("{}: begins", name.text()));
        let figures = name.measure(arguments).await?;
        // JSON must stay one document.
        if !arguments.json {
            print(&format!("{}\n{}", name.text(), figures.grid().text()))?;
        }
        measured.push(serde_json::json!({ "name": name.text(), "rows": figures.json() }));
    }
    if arguments.json {
        print(&serde_json::to_string_pretty(&measured)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl ScaleName {
    /// Returns the name on the command line.
    fn text(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    async fn measure(self, arguments: &ScaleArguments) -> anyhow::Result<ScaleFigures> {
        let spillway = arguments.spillway.as_path();
        match self {
            Self::Start => start::measure(spillway, arguments.starts).await,
            Self::Prompts => prompts::measure(spillway, arguments.prompts).await,
            Self::IdleConnections => connections::measure(spillway, arguments.connections).await,
            Self::Streams => streams::measure(spillway, arguments.streams).await,
            Self::IdleCluster => {
                idle_cluster::measure(spillway, &arguments.regions, arguments.cluster_s).await
            }
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}
