//! One replica: its engine, its faults, its account of requests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use serde::Serialize;
use spillway_engine::Stats;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::ResponseStore;
use crate::config::Config;
use crate::door::Door;
use crate::driver::Driver;
use crate::fault::{Fault, FaultError};
use crate::ledger::{Ledger, RequestRecord};
use crate::server::Life;

/// What belongs to one replica. Shared by its tasks and handles.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) index: u16,
    pub(crate) address: SocketAddr,
    pub(crate) models: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) body_bytes_max: usize,
    pub(crate) connections_max: usize,
    /// Differs between replicas and between processes, so that ids do too.
    pub(crate) instance: u64,
    pub(crate) driver: Arc<Driver>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) responses: Mutex<ResponseStore>,
    /// All replicas of the process, so that one can be told to heal through another.
    pub(crate) siblings: OnceLock<Vec<Weak<Self>>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    condition: Mutex<Condition>,
    /// Held while it is opened or closed.
    door: tokio::sync::Mutex<Door>,
}

/// What is wrong now.
#[derive(Debug)]
struct Condition {
    fault: Fault,
    /// Counts the changes, so that a fault with a time limit ends only itself.
    changes: u64,
    /// Decides which requests a fault with a probability hits.
    rng: fastrand::Rng,
    life: Life,
}

impl Replica {
    /// A replica that will serve `listener`, which is open already.
    pub(crate) fn new(
        config: &Config,
        index: u16,
        listener: &TcpListener,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let models = config.models.clone();
        let condition = Condition {
            fault: Fault::None,
            changes: 0,
            rng: fastrand::Rng::with_seed(config.seed ^ u64::from(index)),
            life: Life::new(stop),
        };
        Ok(Self {
            index,
            address,
            seed: config.seed,
            body_bytes_max: config.body_bytes_max,
            connections_max: config.connections_max,
            instance: instance(address),
            driver: Arc::new(Driver::new(config.engine, config.time_scale, models.clone())),
            models,
            ledger: Arc::new(Ledger::new(config.records_max)),
            responses: Mutex::new(ResponseStore::new(config.responses_max)),
            siblings: OnceLock::new(),
            tasks: tasks.clone(),
            stop: stop.clone(),
            condition: Mutex::new(condition),
            door: tokio::sync::Mutex::default(),
        })
    }

    /// Begins to serve.
    pub(crate) async fn start(self: &Arc<Self>, listener: TcpListener) {
        let stop = self.stop.clone();
        self.tasks.spawn(Arc::clone(&self.driver).run(stop));
        self.door.lock().await.serve(self, listener);
    }

    /// What is wrong now.
    pub(crate) fn fault(&self) -> Fault {
        self.condition().fault
    }

    /// The connections of now: a crash ends them all.
    pub(crate) fn life(&self) -> Life {
        self.condition().life.clone()
    }

    /// Rolls the dice of a fault that hits only some requests.
    pub(crate) fn is_hit(&self, probability: f64) -> bool {
        self.condition().rng.f64() < probability
    }

    pub(crate) fn responses(&self) -> MutexGuard<'_, ResponseStore> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replica `index` of this process.
    pub(crate) fn sibling(&self, index: u16) -> Option<Arc<Self>> {
        self.siblings.get()?.get(usize::from(index))?.upgrade()
    }

    /// Sets a fault and waits until it is in force.
    pub(crate) async fn set_fault(self: &Arc<Self>, fault: Fault) -> Result<u64, FaultError> {
        fault.check()?;
        let mut door = self.door.lock().await;
        if self.stop.is_cancelled() {
            return Err(FaultError::ShuttingDown);
        }
        let change = self.note(fault);
        self.driver.slow_down(fault.slowdown());
        match fault {
            Fault::Crash => {
                door.close(self.address).await?;
                self.crash().await;
            }
            Fault::Refuse => door.close(self.address).await?,
            Fault::None
            | Fault::Hang
            | Fault::Slow { .. }
            | Fault::Garbage
            | Fault::Status { .. }
            | Fault::Cut { .. }
            | Fault::Stall { .. } => door.open(self)?,
        }
        Ok(change)
    }

    /// Heals the replica after `after`, unless its fault was changed since `change`.
    pub(crate) fn heal_later(self: &Arc<Self>, change: u64, after: Duration) {
        let replica = Arc::clone(self);
        self.tasks.spawn(async move {
            tokio::select! {
                () = replica.stop.cancelled() => return,
                () = tokio::time::sleep(after) => {}
            }
            if replica.condition().changes != change {
                return;
            }
            if let Err(error) = replica.set_fault(Fault::None).await {
                tracing::warn!(%error, replica = replica.index, "the replica could not be healed");
            }
        });
    }

    /// Waits until nothing listens or runs any more. `stop` must have been cancelled.
    pub(crate) async fn stopped(&self) {
        self.door.lock().await.remove().await;
    }

    pub(crate) fn stats(&self) -> ReplicaStats {
        let counts = self.ledger.counts();
        let engine = self.driver.stats();
        ReplicaStats {
            received: counts.received,
            started: counts.started,
            finished: counts.finished,
            aborted: counts.aborted,
            rejected: counts.rejected,
            authorization_seen: counts.authorization_seen,
            running: engine.running,
            waiting: engine.waiting,
            engine: EngineStats::from(engine),
            last_requests: self.ledger.records(),
        }
    }

    fn note(&self, fault: Fault) -> u64 {
        let mut condition = self.condition();
        condition.fault = fault;
        condition.changes += 1;
        condition.changes
    }

    async fn crash(&self) {
        let life = {
            let mut condition = self.condition();
            std::mem::replace(&mut condition.life, Life::new(&self.stop))
        };
        life.end().await;
        self.driver.restart();
        self.responses().clear();
    }

    fn condition(&self) -> MutexGuard<'_, Condition> {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn instance(address: SocketAddr) -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
    fastrand::Rng::with_seed(nanos ^ u64::from(address.port()) << 48).u64(..)
}

/// A replica of a running [`crate::Emulator`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReplicaHandle(pub(crate) Arc<Replica>);

impl ReplicaHandle {
    /// Where it listens, also while it is crashed.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Its base URL, e.g. `http://127.0.0.1:9101`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// Breaks or heals it, and returns when that is in force: after `Crash` every connection is
    /// reset and the port refuses; after `None` it accepts again.
    ///
    /// # Errors
    /// A number out of range; the port taken by someone else meanwhile; the emulator shut down.
    pub async fn set_fault(&self, fault: Fault) -> Result<(), FaultError> {
        self.0.set_fault(fault).await.map(|_| ())
    }

    /// What is wrong with it.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.0.fault()
    }

    /// Its counters and last requests.
    #[must_use]
    pub fn stats(&self) -> ReplicaStats {
        self.0.stats()
    }

    /// Headers of the inference request that came in last; empty before the first.
    #[must_use]
    pub fn last_headers(&self) -> HeaderMap {
        self.0.ledger.last_headers().as_ref().clone()
    }
}

/// What a replica has seen. `received = finished + aborted + rejected + those in flight`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplicaStats {
    /// Inference requests that arrived; health, metrics and control requests don't count.
    pub received: u64,
    /// Requests that the engine accepted or that were served without it.
    pub started: u64,
    /// Requests whose whole reply was handed to the connection.
    pub finished: u64,
    /// Requests whose client went away, or that a crash or cut ended.
    pub aborted: u64,
    /// Requests answered with an error.
    pub rejected: u64,
    /// Requests that carried an `Authorization` header.
    pub authorization_seen: u64,
    /// Requests in the engine's batch now.
    pub running: u32,
    /// Requests that wait in the engine now.
    pub waiting: u32,
    /// The engine's own counters, since its last crash.
    pub engine: EngineStats,
    /// The last requests, oldest first.
    pub last_requests: Vec<RequestRecord>,
}

/// Counters of a replica's engine since its last crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EngineStats {
    /// KV blocks pinned by running requests.
    pub kv_blocks_used: u32,
    /// KV blocks that hold reusable prefixes.
    pub kv_blocks_cached: u32,
    /// KV blocks in all.
    pub kv_blocks_total: u32,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_cache_queries_tokens: u64,
    /// Prompt tokens found there.
    pub prefix_cache_hits_tokens: u64,
    /// Times that a running request lost its KV.
    pub preemptions: u64,
    /// Prompt tokens processed, cached or not.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Steps made.
    pub steps: u64,
}

impl From<Stats> for EngineStats {
    fn from(stats: Stats) -> Self {
        Self {
            kv_blocks_used: stats.kv_blocks_used,
            kv_blocks_cached: stats.kv_blocks_cached,
            kv_blocks_total: stats.kv_blocks_total,
            prefix_cache_queries_tokens: stats.prefix_cache_queries_tokens,
            prefix_cache_hits_tokens: stats.prefix_cache_hits_tokens,
            preemptions: stats.preemptions,
            prompt_tokens: stats.prompt_tokens,
            generation_tokens: stats.generation_tokens,
            steps: stats.steps,
        }
    }
}
