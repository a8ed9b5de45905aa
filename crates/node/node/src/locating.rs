//! Reads location databases at the start, and again when their files change, beside the data path.

use std::sync::Arc;

use spillway_config::{ConfigError, GeoConfig};
use spillway_replicas::FileWatch;
use spillway_request::gateway::RoutingState;
use spillway_telemetry::Metrics;
use spillway_view::Locations;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use crate::node_tasks::NodeTasks;
use crate::reload::SETTLE;

/// Reads and checks databases on a thread of their own.
///
/// # Errors
/// Returns the errors of [`GeoConfig::open`].
pub(crate) async fn open(config: &GeoConfig) -> Result<Locations, ConfigError> {
    let config = config.clone();
    let opened = spawn_blocking(move || config.open()).await;
    // Only a panic ends that thread early; the panic goes on here.
    opened.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Handle of the task that keeps the databases in use as their files are.
#[derive(Clone, Debug)]
pub(crate) struct Locating {
    orders: mpsc::Sender<LocatingOrder>,
}

/// Order to take over another config.
#[derive(Debug)]
struct LocatingOrder {
    config: GeoConfig,
    done: oneshot::Sender<Result<(), ConfigError>>,
}

impl Locating {
    /// Takes the locations read at the start into use, and starts the task.
    pub(crate) fn start(
        config: GeoConfig,
        locations: Locations,
        routing: &Arc<RoutingState>,
        metrics: &Arc<Metrics>,
        tasks: &NodeTasks,
    ) -> Self {
        routing.replace_locations(locations);
        // A reload waits for its order to be done, so that there is one at a time.
        let (orders, ordered) = mpsc::channel(1);
        let (routing, metrics) = (Arc::clone(routing), Arc::clone(metrics));
        let task = Task { config, routing, metrics };
        let stop = tasks.stop.clone();
        tasks.spawn_vital("locations", async move {
            stop.run_until_cancelled(task.run(ordered)).await;
        });
        Self { orders }
    }

    /// Takes over another config, and reads its databases again.
    ///
    /// # Errors
    /// Returns an error if one of them can't be used; the old ones and the old rules stay then.
    pub(crate) async fn replace(&self, config: GeoConfig) -> Result<(), String> {
        let (done, result) = oneshot::channel();
        let stopping = |_| "the node stops".to_owned();
        self.orders.send(LocatingOrder { config, done }).await.map_err(|_| stopping(()))?;
        result.await.map_err(|_| stopping(()))?.map_err(|error| error.to_string())
    }
}

/// Owner of the databases in use.
struct Task {
    config: GeoConfig,
    routing: Arc<RoutingState>,
    metrics: Arc<Metrics>,
}

impl Task {
    async fn run(mut self, mut ordered: mpsc::Receiver<LocatingOrder>) {
        let (changed, mut changes) = mpsc::channel(1);
        let mut _watcher = self.watch(&changed);
        loop {
            tokio::select! {
                // A node without a config file gives no orders, and its files change all the same.
                Some(LocatingOrder { config, done }) = ordered.recv() => {
                    let result = self.take(&config).await;
                    if result.is_ok() {
                        self.config = config;
                        _watcher = self.watch(&changed);
                    }
                    // The receiver is gone when the node stops.
                    drop(done.send(result));
                }
                _ = changes.recv() => {
                    tokio::time::sleep(SETTLE).await;
                    // The files are read only now, so a change in the meantime needs no second
                    // reading.
                    let _: Result<(), _> = changes.try_recv();
                    self.refresh().await;
                }
            }
        }
    }

    /// Reads the files again after a change.
    async fn refresh(&self) {
        match self.take(&self.config).await {
            Ok(()) => tracing::info!("location database read again"),
            Err(error) => {
                tracing::warn!("location database not read, the old one stays in use: {error}");
            }
        }
    }

    /// Takes the databases of a config into use, and its rules with them.
    async fn take(&self, config: &GeoConfig) -> Result<(), ConfigError> {
        let opened = open(config).await;
        if !config.files().is_empty() {
            self.metrics.record_geo_reload(opened.is_ok());
        }
        self.routing.replace_locations(opened?);
        // Waiting requests may now be allowed elsewhere, or no longer here.
        self.routing.waiting.review();
        Ok(())
    }

    fn watch(&self, changed: &mpsc::Sender<()>) -> Option<FileWatch> {
        let watcher = FileWatch::start(&self.config.files(), changed.clone());
        let warn = |error: &std::io::Error| {
            tracing::warn!(%error, "changes of location databases will not be noticed");
        };
        watcher.inspect_err(warn).ok()
    }
}
