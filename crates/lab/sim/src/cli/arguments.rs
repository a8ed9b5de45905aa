//! Arguments of the simulator.

use clap::{Parser, Subcommand};

use super::capacity::Plan;
use super::compare::Compare;
use super::one::One;

/// Runs gateways, replicas and clients in virtual time and says what came of them.
#[derive(Debug, Parser)]
#[command(name = "spillway-sim", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Kind of run.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Command {
    Compare(Box<Compare>),
    Run(One),
    Capacity(Plan),
}
