//! Command line of `spillway`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use spillway_emulator::Profile;

use crate::anycast::AnycastArgs;
use crate::certs::CertsCommand;
use crate::cluster::{ClusterCommand, ClusterKeysCommand, ExplainArgs, TailArgs, TrieArgs};
use crate::connect::BEHIND_OWN;
use crate::demo::DemoArgs;
use crate::emulate::ReplyArgs;
use crate::health::HealthArgs;
use crate::replicas::ReplicasArgs;

/// Version and build: a commit, or the name that the packager gave. It distinguishes nodes of one
/// release and different builds.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("SPILLWAY_BUILD"));

/// Inference gateway: routes requests to model servers.
#[derive(Debug, Parser)]
#[command(name = "spillway", version = VERSION, propagate_version = true)]
#[command(after_help = "Exit codes: 0 done, or healthy; 1 failed, or not healthy; 2 wrong usage; \
    64 wrong config.\n\n\
    Example: spillway demo")]
pub(crate) struct Cli {
    /// What to log, e.g. `info,spillway_proxy=debug`. [default: info, with `demo` warn or error]
    #[arg(long, global = true, env = "SPILLWAY_LOG", display_order = BEHIND_OWN)]
    log: Option<String>,
    /// Logs JSON, one object a line.
    #[arg(long, global = true, display_order = BEHIND_OWN)]
    pub(crate) log_json: bool,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

impl Cli {
    /// Returns the log filter.
    pub(crate) fn log(&self) -> &str {
        let usual = match &self.command {
            CliCommand::Demo(args) => crate::demo::log_level(args),
            _ => "info",
        };
        self.log.as_deref().unwrap_or(usual)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Runs a gateway node until it is stopped.
    Run(RunArgs),
    /// Runs three regions with emulated replicas, overloads one, isolates and stops another, and
    /// shows the effects.
    Demo(DemoArgs),
    /// Runs emulated model servers.
    Emulate(EmulateArgs),
    /// Checks the health of a node, for use as a health check: exits with 0 if healthy, else with
    /// 1.
    Health(HealthArgs),
    /// Shows a node's replicas and their state; drains or resumes one.
    Replicas(ReplicasArgs),
    /// Shows hot prompt prefixes by region, or changes their key.
    Trie(TrieArgs),
    /// Shows where a request would be routed, and why not elsewhere.
    Explain(ExplainArgs),
    /// Shows requests as they complete on a node: where each was routed and why, times, tokens.
    Tail(TailArgs),
    /// Looks up an address in a location database.
    Geo(GeoArgs),
    /// Creates, shows and renews the certificates that nodes use among themselves.
    Certs {
        #[command(subcommand)]
        command: CertsCommand,
    },
    /// Creates and revokes the keys of clients and operators.
    Keys {
        #[command(subcommand)]
        command: ClusterKeysCommand,
    },
    /// Announces an address to routers through BIRD or ExaBGP while a node takes clients.
    Anycast(AnycastArgs),
    /// Checks or describes config files.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Prints completions of commands for a shell.
    #[command(after_help = "Example: spillway completions bash > \
        /usr/share/bash-completion/completions/spillway\n\
        Example: source <(spillway completions zsh)")]
    Completions(CompletionsArgs),
    /// Writes manual pages, one for each command.
    #[command(after_help = "Example: spillway man /usr/local/share/man/man1")]
    Man(ManArgs),
    /// Prints a page of the reference in Markdown.
    #[command(after_help = "Example: spillway reference > commands.md\n\
        Example: spillway reference metrics > metrics.md")]
    Reference(ReferenceArgs),
    #[command(flatten)]
    Cluster(ClusterCommand),
}

#[derive(Debug, Args)]
pub(crate) struct ReferenceArgs {
    /// The page: all commands with their options, all metrics, all errors of the gateway, the
    /// fields of the access log, or a Grafana dashboard of all metrics (JSON).
    #[arg(value_enum, default_value_t)]
    pub(crate) page: ReferencePage,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ReferencePage {
    #[default]
    Commands,
    Metrics,
    Errors,
    AccessLog,
    Dashboard,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages, created if it does not exist.
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway geo 203.0.113.7 --database GeoLite2-City.mmdb\n\n\
    Reads the files as a node would, without contacting a node.")]
pub(crate) struct GeoArgs {
    /// The address of a client.
    pub(crate) address: IpAddr,
    /// Database of cities or countries (MMDB).
    #[arg(long)]
    pub(crate) database: PathBuf,
    /// Database of autonomous systems (MMDB).
    #[arg(long)]
    pub(crate) asn_database: Option<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Checks a config file without opening a port.
    Check(CheckArgs),
    /// Prints the JSON Schema of the config file.
    #[command(after_help = "Example: spillway config schema > spillway.schema.json")]
    Schema,
    /// Prints a page in Markdown that lists all settings with type, default and meaning.
    #[command(after_help = "Example: spillway config reference > configuration-reference.md")]
    Reference,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway run --config spillway.toml\n\n\
    SIGHUP or a changed file reloads replicas, routes, aliases and certificates.\n\
    SIGTERM or SIGINT stops accepting connections, lets requests finish, and exits.")]
pub(crate) struct RunArgs {
    /// The config file; by default ./spillway.toml, else /etc/spillway/spillway.toml.
    #[arg(long, short, env = "SPILLWAY_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Prints the addresses as one JSON object when the node is ready.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway config check spillway.toml")]
pub(crate) struct CheckArgs {
    /// The config file; by default ./spillway.toml, else /etc/spillway/spillway.toml.
    #[arg(env = "SPILLWAY_CONFIG")]
    pub(crate) file: Option<PathBuf>,
    /// Prints the result as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example: spillway emulate --replicas 4 --model tiny --profile l4 --time-scale 0.1\n\n\
    Break one:  curl -X POST http://127.0.0.1:9101/emulator/fault -d '{\"fault\":{\"kind\":\"hang\"}}'\n\
    docs/reference/emulator.md lists faults, options of replies and metrics."
)]
pub(crate) struct EmulateArgs {
    /// Address of the first replica; the others use the following ports.
    #[arg(long, default_value = "127.0.0.1:9101")]
    pub(crate) listen: SocketAddr,
    /// Number of replicas.
    #[arg(long, default_value_t = 1)]
    pub(crate) replicas: u16,
    /// Models that each replica serves.
    #[arg(long = "model", default_value = "tiny")]
    pub(crate) models: Vec<String>,
    /// The machine to model.
    #[arg(long, value_enum, default_value_t = ProfileName::L4)]
    pub(crate) profile: ProfileName,
    /// Factor for all times: 0.1 is ten times faster than the real machine.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) time_scale: f64,
    /// Seed of the generated text.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Port at which the first replica publishes KV events as vLLM does; the others use the
    /// following ports.
    #[arg(long)]
    pub(crate) kv_events_port: Option<u16>,
    #[command(flatten)]
    pub(crate) replies: ReplyArgs,
    /// Prints the addresses as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A modelled machine.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ProfileName {
    /// NVIDIA L4, 8B model.
    L4,
    /// NVIDIA A100.
    A100,
    /// NVIDIA H100.
    H100,
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Self {
        match name {
            ProfileName::L4 => Self::L4,
            ProfileName::A100 => Self::A100,
            ProfileName::H100 => Self::H100,
        }
    }
}
