//! `spillway emulate`: model servers without GPUs.

use std::io::ErrorKind;

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use serde_json::json;
use spillway_emulator::{
    Emulator, EmulatorConfig, EmulatorStartError, EngineConfig, ReplyOptions, StreamOptionsSchema,
};
use spillway_node::{PortTransport, holder_of};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::EmulateArgs;
use crate::output;

/// Form of the emulated replies.
#[derive(Debug, Args)]
pub(crate) struct ReplyArgs {
    /// Compresses replies for clients that accept gzip.
    #[arg(long)]
    gzip: bool,
    /// Cuts the bodies of replies at random positions, derived from this seed.
    #[arg(long, value_name = "SEED")]
    cut_seed: Option<u64>,
    /// Writes `usage` before `metadata` and `tools` in responses, as SGLang does.
    #[arg(long)]
    usage_first: bool,
    /// Reports cached tokens only at the end of streams of `/v1/messages`, as vLLM does.
    #[arg(long)]
    late_cached_tokens: bool,
    /// Members of `stream_options` that are accepted; others get 400.
    #[arg(long, value_enum, value_name = "MEMBERS", default_value_t = StreamOptionsName::Any)]
    stream_options: StreamOptionsName,
}

/// Members of `stream_options`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StreamOptionsName {
    /// All of them.
    Any,
    /// `include_usage` alone.
    IncludeUsage,
    /// None: the field is unknown.
    None,
}

impl ReplyArgs {
    fn options(&self) -> ReplyOptions {
        ReplyOptions {
            gzip: self.gzip,
            cut_seed: self.cut_seed,
            usage_first: self.usage_first,
            late_cached_tokens: self.late_cached_tokens,
            stream_options: match self.stream_options {
                StreamOptionsName::Any => StreamOptionsSchema::Any,
                StreamOptionsName::IncludeUsage => StreamOptionsSchema::IncludeUsage,
                StreamOptionsName::None => StreamOptionsSchema::None,
            },
        }
    }
}

/// Runs emulated replicas until it is stopped.
pub(crate) fn run(args: &EmulateArgs) -> Result<()> {
    let config = EmulatorConfig {
        listen: args.listen,
        replicas: args.replicas,
        models: args.models.clone(),
        engine: EngineConfig::from_profile(args.profile.into()),
        time_scale: args.time_scale,
        kv_events_port: args.kv_events_port,
        seed: args.seed,
        options: args.replies.options(),
        ..EmulatorConfig::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(config, args.json))
}

/// Adds the process that has the port, if the port is taken.
fn with_holder(error: EmulatorStartError) -> anyhow::Error {
    let holder = match &error {
        EmulatorStartError::Listen { address, cause } if cause.kind() == ErrorKind::AddrInUse => {
            holder_of(*address, PortTransport::Tcp)
        }
        _ => None,
    };
    let told = holder.map(|holder| format!(": {holder}")).unwrap_or_default();
    anyhow!("can't start the emulator: {error}{told}")
}

async fn serve(config: EmulatorConfig, as_json: bool) -> Result<()> {
    // Before the replicas serve, so that no signal is lost.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let emulator = Emulator::start(config).await.map_err(with_holder)?;
    if as_json {
        output::line(&json!({"replicas": emulator.addresses()}).to_string())?;
    }
    for address in emulator.addresses() {
        tracing::info!(%address, "emulated replica");
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    emulator.shutdown().await;
    Ok(())
}
