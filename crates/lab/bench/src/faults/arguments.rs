//! Command line of `faults`.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::Context as _;

use super::{config::Health, fault::Fault};

/// Value of every list for all items.
const ALL: &str = "all";

/// Value of `--health` for the gateway's defaults.
const NONE: &str = "none";

/// Settings of `[health]` whose defaults would not show an effect within seconds.
const HEALTH: [(&str, u64); 2] = [("stall_ms", 3_000), ("slow_start_ms", 3_000)];

/// Options of `faults`.
#[derive(Debug, clap::Args)]
pub(crate) struct FaultsArguments {
    /// The Spillway binary.
    #[arg(long)]
    pub(crate) spillway: PathBuf,
    /// Policies, separated by commas; `all` takes those of the binary's config schema.
    #[arg(long, value_delimiter = ',', default_value = ALL)]
    pub(crate) policies: Vec<String>,
    /// Faults of the matrix, separated by commas, or `all`.
    #[arg(long, value_delimiter = ',', default_value = ALL)]
    faults: Vec<String>,
    /// Parts to run, separated by commas, or `all`: matrix, mixed, slow, herd.
    #[arg(long, value_delimiter = ',', default_value = ALL)]
    parts: Vec<String>,
    /// Seconds of measured load for each cell of the matrix.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(8..=600))]
    pub(crate) seconds: u16,
    /// Seconds of faults in random order.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(20..=3600))]
    pub(crate) mixed_seconds: u16,
    /// Requests per second in all.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u16).range(10..=2000))]
    pub(crate) rate: u16,
    /// Settings of `[health]`, separated by commas, or `none`. By default a tenth of the gateway's
    /// own, since the emulated replicas are ten times faster than real ones.
    #[arg(long, value_delimiter = ',')]
    health: Vec<String>,
    /// Runs at a time. One keeps a core busy for a tenth of the time; each says whether the machine
    /// had time for it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) jobs: u8,
    /// Most runs of a measurement if the machine was too busy.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub(crate) attempts: u8,
    /// Seed of arrivals, requests and the order of faults.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Writes everything that was found as JSON.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Writes a page, and charts beside it.
    #[arg(long)]
    pub(crate) markdown: Option<PathBuf>,
}

/// Part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum FaultsPart {
    /// Each policy against each fault.
    Matrix,
    /// Faults in random order.
    Mixed,
    /// A slow replica: one of four, ten times slower.
    Slow,
    /// Ten cold replicas join two warm ones.
    Herd,
}

impl FaultsArguments {
    /// Returns the faults of the matrix.
    ///
    /// # Errors
    /// Returns an error for an unknown name.
    pub(crate) fn faults(&self) -> anyhow::Result<Vec<Fault>> {
        chosen(&self.faults).context("--faults")
    }

    /// Returns the parts to run.
    ///
    /// # Errors
    /// Returns an error for an unknown name.
    pub(crate) fn parts(&self) -> anyhow::Result<BTreeSet<FaultsPart>> {
        Ok(chosen(&self.parts).context("--parts")?.into_iter().collect())
    }

    /// Returns the settings of `[health]`, limited to those that the binary knows.
    ///
    /// # Errors
    /// Returns an error for a setting that the binary does not know, or a value that is no number.
    pub(crate) fn health(&self, known: &BTreeSet<String>) -> anyhow::Result<Health> {
        if self.health.is_empty() {
            let settings = HEALTH.iter().filter(|(name, _)| known.contains(*name));
            return Ok(settings.map(|(name, value)| ((*name).to_owned(), *value)).collect());
        }
        let parse = |setting: &String| {
            let (name, value) = setting.split_once('=').context("--health takes NAME=NUMBER")?;
            anyhow::ensure!(known.contains(name), "--health: the binary has no health.{name}");
            Ok((name.to_owned(), value.parse().with_context(|| format!("--health: {setting}"))?))
        };
        self.health.iter().filter(|setting| *setting != NONE).map(parse).collect()
    }

    /// Returns the policies that were asked for.
    ///
    /// # Errors
    /// Returns an error for a policy that the binary does not know.
    pub(crate) fn policies(&self, known: &[String]) -> anyhow::Result<Vec<String>> {
        if self.policies.iter().any(|name| name == ALL) {
            return Ok(known.to_vec());
        }
        for name in &self.policies {
            let list = || format!("--policies: {name} is none of {}", known.join(", "));
            known.contains(name).then_some(()).with_context(list)?;
        }
        Ok(self.policies.clone())
    }
}

fn chosen<T: clap::ValueEnum>(names: &[String]) -> anyhow::Result<Vec<T>> {
    if names.iter().any(|name| name == ALL) {
        return Ok(T::value_variants().to_vec());
    }
    let parse = |name: &String| {
        T::from_str(name, false).map_err(|_| anyhow::anyhow!("{name} is not known"))
    };
    names.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    fn arguments(line: &str) -> FaultsArguments {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: FaultsArguments,
        }
        let words = ["x", "--spillway", "s"].into_iter().chain(line.split_ascii_whitespace());
        <Line as clap::Parser>::try_parse_from(words).unwrap().arguments
    }

    #[test]
    fn health_settings_are_those_that_the_binary_has() {
        let known = BTreeSet::from(["stall_ms".to_owned(), "fall".to_owned()]);
        let of = |line: &str| arguments(line).health(&known).map_err(|error| error.to_string());
        let setting = |name: &str, value| Health::from([(name.to_owned(), value)]);
        assert_eq!(of(""), Ok(setting("stall_ms", 3_000)));
        assert_eq!(of("--health none"), Ok(Health::new()));
        assert_eq!(of("--health fall=2"), Ok(setting("fall", 2)));
        assert!(of("--health slow_start_ms=1").is_err());
        assert!(of("--health fall").is_err() && of("--health fall=x").is_err());
    }

    #[test]
    fn policies_are_those_of_the_binary() {
        let known = ["a", "b"].map(str::to_owned);
        let of = |line: &str| arguments(line).policies(&known).ok();
        assert_eq!(of(""), Some(known.to_vec()));
        assert_eq!(of("--policies b"), Some(vec!["b".to_owned()]));
        assert_eq!(of("--policies b,c"), None);
    }

    #[test]
    fn lists_are_all_or_names_that_exist() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let all: Vec<Fault> = chosen(&names(&["all"])).unwrap();
        assert_eq!(all, Fault::value_variants());
        let some: Vec<Fault> = chosen(&names(&["hung", "status_500"])).unwrap();
        assert_eq!(some, [Fault::Hung, Fault::Status500]);
        assert!(chosen::<Fault>(&names(&["hung", "sleepy"])).is_err());
    }
}
