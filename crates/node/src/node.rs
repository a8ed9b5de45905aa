//! A running node: everything put together, and taken apart again without losing a request.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use spillway_prefix::{PrefixConfig, PrefixConfigError, PrefixHasher};
use spillway_proxy::{Gateway, GatewayConfig, Listener, ReplicaTlsError, TlsError, View, Worker};
use spillway_telemetry::Metrics;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{Admin, serve_admin};
use crate::config::{Config, ListenerConfig};
use crate::feedback::Feedback;
use crate::keeper::{Keeper, KeeperHandle, KeeperParts};
use crate::reload::Reloader;
use crate::resolve::refresh_loop;
use crate::workers::{self, Bound, unit_count};

/// A node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address can't be listened on.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// A listener's certificate does not work.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A replica's TLS settings do not work.
    #[error(transparent)]
    ReplicaTls(#[from] ReplicaTlsError),
    /// The prompt hashing settings do not work.
    #[error(transparent)]
    Prefix(#[from] PrefixConfigError),
    /// The operating system has no randomness to give.
    #[error("no randomness: {0}")]
    Randomness(#[from] getrandom::Error),
    /// A thread can't be started.
    #[error("can't start a worker: {0}")]
    Thread(std::io::Error),
}

/// A node that serves.
#[derive(Debug)]
pub struct Node {
    addresses: Vec<SocketAddr>,
    admin_address: Option<SocketAddr>,
    gateway: Arc<Gateway>,
    feedback: Arc<Feedback>,
    threads: Vec<JoinHandle<()>>,
    /// Ends the worker threads, whatever is left on them.
    stop_workers: CancellationToken,
    /// Ends the tasks beside the data path.
    stop_tasks: CancellationToken,
    tasks: TaskTracker,
    keeper: KeeperHandle,
    drain: Duration,
}

impl Node {
    /// Starts a node. Its tasks beside the data path run on the caller's runtime; requests are
    /// served by threads of their own.
    ///
    /// # Errors
    /// If an address is taken or a certificate does not work; nothing is left running then.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let units = unit_count(config.worker_layout, config.workers);
        let mut bound = open_listeners(config.listeners, units)?;
        let admin = open_admin(config.admin).await?;

        let (hasher, seed) = (hasher()?, getrandom::u64()?);
        let gateway_config = GatewayConfig { seed, ..config.gateway };
        let facts = vec![
            ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("node".to_owned(), config.node),
            ("region".to_owned(), gateway_config.region.clone()),
        ];
        let view = View::empty();
        let gateway = Arc::new(Gateway::new(gateway_config, hasher, view, epoch_seconds()));
        let workers: Vec<_> =
            (0..units).map(|id| Arc::new(Worker::new(id, Arc::clone(&gateway)))).collect();
        let metrics = Metrics::new(facts);
        let feedback = Arc::new(Feedback::new(Arc::clone(&gateway), workers.clone(), metrics));
        let (stop_tasks, tasks) = (CancellationToken::new(), TaskTracker::new());
        let keeper = Keeper::start(KeeperParts {
            gateway: Arc::clone(&gateway),
            feedback: Arc::clone(&feedback),
            world: config.world,
            units,
            tasks: tasks.clone(),
            stop: stop_tasks.clone(),
        })
        .await?;
        let stop_workers = CancellationToken::new();
        let threads = workers::start(
            &workers,
            &mut bound,
            config.worker_layout,
            config.workers,
            &stop_workers,
        )
        .map_err(StartError::Thread)?;

        let node = Self {
            addresses: bound.iter().map(|bound| bound.address).collect(),
            admin_address: admin.as_ref().and_then(|admin| admin.local_addr().ok()),
            gateway,
            feedback,
            threads,
            stop_workers,
            stop_tasks,
            tasks,
            keeper,
            drain: config.drain,
        };
        node.start_tasks(admin, config.path.map(|path| (path, config.text)), bound);
        Ok(node)
    }

    /// The addresses that clients can connect to, in the config's order.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The address of metrics and health.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// The metrics as text.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.feedback.scrape()
    }

    /// The state that requests share.
    #[must_use]
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Stops accepting, lets running requests finish within the config's limit, and ends. Returns
    /// whether all of them did.
    pub async fn stop(mut self) -> bool {
        self.gateway.start_draining();
        let drained = tokio::time::timeout(self.drain, self.gateway.drained()).await.is_ok();
        self.stop_workers.cancel();
        self.stop_tasks.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        let threads = std::mem::take(&mut self.threads);
        // Joining blocks, though not for long: the runtimes are told to end.
        let joined = tokio::task::spawn_blocking(move || {
            threads.into_iter().map(JoinHandle::join).all(|thread| thread.is_ok())
        });
        drained && joined.await.unwrap_or(false)
    }

    fn start_tasks(
        &self,
        admin: Option<TcpListener>,
        file: Option<(PathBuf, String)>,
        bound: Vec<Bound>,
    ) {
        let stop = || self.stop_tasks.clone();
        self.tasks.spawn(Arc::clone(&self.feedback).run(stop()));
        self.tasks.spawn(refresh_loop(Arc::clone(&self.gateway), stop()));
        if let Some(admin) = admin {
            let shown = Admin { feedback: Arc::clone(&self.feedback), keeper: self.keeper.clone() };
            self.tasks.spawn(serve_admin(admin, shown, stop(), self.tasks.clone()));
        }
        if let Some((path, text)) = file {
            let reloader = Reloader {
                path,
                text,
                keeper: self.keeper.clone(),
                listeners: bound.into_iter().map(|bound| bound.listener).collect(),
                feedback: Arc::clone(&self.feedback),
            };
            self.tasks.spawn(reloader.run(stop()));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A node that is dropped without `stop` still ends its threads.
        self.gateway.start_draining();
        self.stop_workers.cancel();
        self.stop_tasks.cancel();
    }
}

fn open_listeners(configs: Vec<ListenerConfig>, units: usize) -> Result<Vec<Bound>, StartError> {
    let mut bound = Vec::new();
    for config in configs {
        let listener = Listener::new(config.spec)?;
        let opened = Bound::open(listener, config.address, units)
            .map_err(|source| StartError::Listen { address: config.address, source })?;
        bound.push(opened);
    }
    Ok(bound)
}

async fn open_admin(address: Option<SocketAddr>) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(None) };
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })?;
    Ok(Some(listener))
}

/// Hashes with a key of this process: nothing outside it needs the hashes yet. Once nodes are to
/// agree on prompts and on where a request's key belongs, this one key is what they must share.
fn hasher() -> Result<PrefixHasher, StartError> {
    let mut key = [0; 4];
    for part in &mut key {
        *part = getrandom::u64()?;
    }
    Ok(PrefixHasher::new(key, PrefixConfig::default())?)
}

fn epoch_seconds() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_epoch.map_or(0, |duration| duration.as_secs())
}
