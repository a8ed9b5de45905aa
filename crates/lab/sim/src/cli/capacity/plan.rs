//! Options of a capacity plan.

use clap::Args;

/// Computes how many replicas each region needs, and shows it in runs.
///
/// Without options it makes the worked example of docs/guides/capacity.md, but for --good-ms, which is 1500
/// there.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  spillway-sim capacity --peaks 20,15,10 --good-ms 1500")]
pub(in crate::cli) struct Plan {
    /// The regions' names.
    #[arg(long, value_delimiter = ',', default_value = "us-east-1,eu-west-1,ap-northeast-1")]
    pub(super) regions: Vec<String>,
    /// Requests a second of each region's own clients at their busiest hour.
    #[arg(long, value_delimiter = ',', default_value = "13.4,13,12")]
    pub(super) peaks: Vec<f64>,
    /// Hours that local time is ahead of UTC.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "-5,0,9",
        allow_negative_numbers = true,
        allow_hyphen_values = true
    )]
    pub(super) utc_offsets: Vec<f64>,
    /// Milliseconds there and back: first to second, first to third, …, second to third, ….
    #[arg(long, value_delimiter = ',', default_value = "70,150,202")]
    pub(super) rtt_ms: Vec<f64>,
    /// Demand at the quietest hour, percent of the busiest.
    #[arg(long, default_value_t = 20.0)]
    pub(super) night_percent: f64,
    /// `spill.reserve_percent` of all nodes.
    #[arg(long, default_value_t = 10.0)]
    pub(super) reserve_percent: f64,
    /// Percent of the requests whose first token has to come within --good-ms.
    #[arg(long, default_value_t = 99.0)]
    pub(super) share_percent: f64,
    /// Requests a second of one replica within the objective; measured if not given.
    #[arg(long)]
    pub(super) replica_per_s: Option<f64>,
    /// Percent of that rate to leave free: chance, and the way to other regions, take their part.
    #[arg(long, default_value_t = 10.0)]
    pub(super) headroom_percent: f64,
    /// Chooses everything that chance decides.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Milliseconds within which a first token has to come to be good.
    #[arg(long, default_value_t = 2_000.0)]
    pub(super) good_ms: f64,
}
