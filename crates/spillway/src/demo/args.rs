//! Arguments of `spillway demo`.

use std::net::SocketAddr;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway demo --once --seconds 30")]
pub(crate) struct DemoArgs {
    /// Exits after the summary instead of keeping the nodes running.
    #[arg(long)]
    pub(crate) once: bool,
    /// Prints JSON lines: the `start` with addresses, a `phase` at the beginning of each phase, a
    /// `tick` each second, then the `summary`.
    #[arg(long)]
    pub(crate) json: bool,
    /// Approximate duration of all phases together, in seconds: 35 to 3600.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(35..=3600))]
    pub(crate) seconds: u64,
    /// Address of the first region's node; the other nodes use the following ports, or any free
    /// port if one is taken.
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
}
