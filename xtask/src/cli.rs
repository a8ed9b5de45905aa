//! Command line of `cargo xtask`.

use clap::{Parser, Subcommand};

use crate::dist::DistArgs;
use crate::test::Suite;

/// The project's own tasks.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Prints the result as JSON on stdout; what the steps print goes to stderr.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Checks formatting, lints, docs, dependencies and the rules of `tidy`; writes nothing.
    Verify,
    /// Applies what clippy and rustfmt can repair by themselves.
    Fix,
    /// Writes the pages and the dashboard that the program makes of its own declarations.
    Pages,
    /// Checks the rules of this project that no public tool knows.
    Tidy,
    /// Sets up what the tests need and runs them.
    Test {
        /// Which tests; all of them when left out.
        #[arg(value_enum, default_value_t = Suite::All)]
        suite: Suite,
    },
    /// Looks for inputs that break parsers, guided by what code they reach; needs a C++ compiler.
    Fuzz {
        /// Which target; all of them when left out.
        target: Option<String>,
        /// For how long, all targets together.
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
    /// Puts real nodes on trial over an emulated network; needs Linux and root.
    Chaos,
    /// Counts what runs under the loads of spillway-bench, for the next `dist`; needs nginx and
    /// llvm-profdata.
    Pgo,
    /// Makes what is installed: a static binary, packages, an SBOM, checksums.
    Dist(DistArgs),
    /// Makes a book of `docs/` that reads and searches offline; a link that leads nowhere fails it.
    Book,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask verify         what must be clean before a change goes in
  cargo xtask fix            repair formatting and simple lints
  cargo xtask pages          after a change of a setting, command, metric, reason or log field
  cargo xtask tidy --json    findings as JSON, one array
  cargo xtask test           everything: Rust tests, doctests, real clients, deployment
  cargo xtask test clients   only the real clients
  cargo xtask test deploy    only packages, Terraform, DNS, announced addresses
  cargo xtask fuzz           a minute of guided fuzzing, all targets together
  cargo xtask fuzz snapshot --seconds 600
  cargo xtask chaos          kills, cuts, crashes and slow disks, about six minutes
  cargo xtask pgo            counts for the compiler, some twenty minutes
  cargo xtask dist           packages for this machine, some ten minutes
  cargo xtask dist --verify  the same twice, and whether both are equal
  cargo xtask book           the pages of docs/ as HTML, in target/book";
