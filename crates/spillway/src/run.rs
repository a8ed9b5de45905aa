//! `spillway run`: runs a node until it is asked to stop.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use spillway_config::{Config, Severity};
use spillway_node::{Node, Stopped, preflight};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::{RunArgs, VERSION};
use crate::{config_file, diagnostics, output, service, variables};

/// Longest time that the process takes to end after the second signal, or once all is done: writing the
/// last lines may hang.
const END_MAX: Duration = Duration::from_millis(800);

/// Runs a node.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    // Requests have threads of their own; this one is for metrics, reloads and signals.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        // First of all: where the node is process 1, as in a container, a signal has no default.
        let mut signals = Signals::new()?;
        let node = tokio::select! {
            node = start(args.config.clone()) => node?,
            () = signals.next() => {
                tracing::info!("told to end before it served");
                return Ok(());
            }
        };
        serve(node, signals, args.json).await
    });
    // Reads of files that hang, as on a network file system, must not hold up the end.
    runtime.shutdown_background();
    end_soon();
    result
}

/// Number of the signal on Linux.
const SIGXFSZ: i32 = 25;

/// Signals that end a node, and those that must not.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Programs that rotate logs send it, and its default would end the node. Nothing is to be done: the
    /// log goes to standard error.
    _user_defined: Signal,
    /// A log that has reached the largest file that the system allows: the write fails, and its default
    /// would end the node.
    _file_too_large: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _user_defined: signal(SignalKind::user_defined1())?,
            _file_too_large: signal(SignalKind::from_raw(SIGXFSZ))?,
        })
    }

    /// Waits for the next one.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Ends the process within [`END_MAX`], whatever still runs or hangs.
#[expect(clippy::disallowed_methods, reason = "what was to be drained is drained, or was given up")]
fn end_soon() {
    let ending = || {
        std::thread::sleep(END_MAX);
        std::process::exit(1);
    };
    // Without a thread nothing hangs that would need one.
    drop(std::thread::Builder::new().name("end".to_owned()).spawn(ending));
}

/// Reads the config and starts a node. Files may hang, so they are read on another thread.
async fn start(named: Option<PathBuf>) -> Result<Node> {
    let config = tokio::task::spawn_blocking(move || {
        checked_config(&config_file::chosen(named.as_deref(), Path::exists)?)
    });
    let config = config.await??;
    Node::start(config).await.context("can't start")
}

fn checked_config(path: &Path) -> Result<Config> {
    let mut config = Config::load(path)?;
    VERSION.clone_into(&mut config.version);
    tell_start(&config, path);
    diagnostics::log(&variables::ignored(path));
    diagnostics::log(&config.warnings);
    let mut found = preflight(&config);
    // A port that is taken is found when it is opened: its holder may be about to end.
    found.retain(|error| error.severity == Severity::Error);
    if found.is_empty() { Ok(config) } else { Err(found.into()) }
}

/// Logs the start, so that a log shows by itself which version and config it is of.
fn tell_start(config: &Config, path: &Path) {
    let mut auth: Vec<&str> = config.listeners.iter().map(|it| it.access.mode.as_str()).collect();
    auth.sort_unstable();
    auth.dedup();
    let cluster = config.cluster.as_ref().map_or("none", |cluster| cluster.id.as_str());
    tracing::info!(
        version = VERSION,
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

async fn serve(node: Node, mut signals: Signals, as_json: bool) -> Result<()> {
    announce(&node, as_json)?;
    let mut reporting = pin!(service::report(Arc::clone(node.gateway()), node.liveness()));
    let lost_part = tokio::select! {
        () = signals.next() => None,
        part = node.lost_part() => Some(part),
        never = &mut reporting => match never {},
    };
    if let Some(part) = &lost_part {
        tracing::error!(part, "the node can't do without it: it ends, to be started anew");
    }
    service::stopping(node.gateway());
    tracing::info!(requests = node.gateway().counters.unfinished(), "draining");
    let gateway = Arc::clone(node.gateway());
    // A second signal breaks off all requests in flight. They are counted before that.
    let hurried = async {
        signals.next().await;
        end_soon();
        gateway.counters.unfinished()
    };
    let stopped = tokio::select! {
        stopped = node.stop() => stopped,
        broken_off = hurried => Stopped { broken_off, is_clean: false },
        never = reporting => match never {},
    };
    if let Some(part) = lost_part {
        anyhow::bail!("a part of the node has ended by itself: {part}");
    }
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
