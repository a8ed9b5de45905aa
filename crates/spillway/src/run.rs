//! `spillway run`: runs a node until it is told to stop.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::json;
use spillway_config::{Config, Severity};
use spillway_node::{Node, Stopped, preflight};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::RunArgs;
use crate::{diagnostics, output, service};

/// Runs a node.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let config = Config::load(&args.config)?;
    tell_start(&config, &args.config);
    diagnostics::log(&config.warnings);
    let mut found = preflight(&config);
    // A port that is taken is found when it is opened: its holder may be about to end.
    found.retain(|error| error.severity == Severity::Error);
    if !found.is_empty() {
        return Err(found.into());
    }
    // Requests have threads of their own; this one is for metrics, reloads and signals.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(config, args.json))
}

/// Logs what is about to run, so that a log says by itself which version and config it is of.
fn tell_start(config: &Config, path: &Path) {
    let mut auth: Vec<&str> = config.listeners.iter().map(|it| it.access.mode.as_str()).collect();
    auth.sort_unstable();
    auth.dedup();
    let cluster = config.cluster.as_ref().map_or("none", |cluster| cluster.id.as_str());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = %path.display(),
        node = config.node,
        region = config.gateway.region,
        auth = auth.join(","),
        replicas = config.world.replicas.len(),
        discoveries = config.world.discoveries.len(),
        cluster,
        "starting"
    );
}

async fn serve(config: Config, as_json: bool) -> Result<()> {
    // Programs that rotate logs send it, and its default would end the node. Nothing is to be done:
    // the log goes to standard error.
    let _ignored = signal(SignalKind::user_defined1())?;
    // Before the node serves, so that no signal is lost.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let node = Node::start(config).await.context("can't start")?;
    announce(&node, as_json)?;
    let mut reporting = pin!(service::report(Arc::clone(node.gateway()), node.liveness()));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        never = &mut reporting => match never {},
    }
    service::stopping(node.gateway());
    tracing::info!(requests = node.gateway().unfinished(), "draining");
    let gateway = Arc::clone(node.gateway());
    // A second signal breaks off all requests in flight. They are counted before that.
    let hurried = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        gateway.unfinished()
    };
    let stopped = tokio::select! {
        stopped = node.stop() => stopped,
        broken_off = hurried => Stopped { broken_off, is_clean: false },
        never = reporting => match never {},
    };
    let lost = stopped.broken_off;
    anyhow::ensure!(lost == 0, "{lost} requests did not finish in time and were broken off");
    anyhow::ensure!(stopped.is_clean, "told to end at once, or a worker failed");
    tracing::info!("ended, with nothing left to do");
    Ok(())
}

fn announce(node: &Node, as_json: bool) -> Result<()> {
    for address in node.addresses() {
        tracing::info!(%address, "serving");
    }
    if let Some(address) = node.admin_address() {
        tracing::info!(%address, "metrics and health");
    }
    if as_json {
        let ready = json!({"listeners": node.addresses(), "admin": node.admin_address()});
        output::line(&ready.to_string())?;
    }
    Ok(())
}
