//! Start of a node's log.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use openraft::{SnapshotPolicy, StepDownPolicy};
use spillway_files::load;
use spillway_link::Link;
use spillway_tasks::TaskWatch;
use spillway_types::DiskId;
use tokio::sync::{oneshot, watch as channel};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Consensus;
use super::steering::Steering;
use super::watch::LogWatch;
use crate::config::RaftConfig;
use crate::disk::{DiskError, Folder, LogStore, Snapshots, StoredSnapshot};
use crate::error::RaftStartError;
use crate::machine::Machine;
use crate::net::{Comparison, Context, LeaderContact, Parts, PeerNetwork, ask_all, compare_all};
use crate::peer_server::{PeerServer, Service};
use crate::rules::budget::Budget;
use crate::rules::isolation::Voice;
use crate::rules::lineage::SavedDisks;
use crate::state_machine::{Applied, Applier, Raft};

/// File in the folder with the reports of other nodes about their disks.
const DISKS: &str = "disks";
/// Entries in one message; their bytes are limited too.
const APPEND_ENTRIES_MAX: u64 = 1_000;
/// Backoff before a follower that can't be reached is tried again. The link dials the connection
/// with a backoff of its own; openraft only looks whether it is there.
const BACK_OFF: &str = "50ms 100ms 200ms ...500ms";

pub(super) async fn start<M: Machine>(
    config: RaftConfig,
    link: Arc<Link>,
    machine: M,
) -> Result<Consensus<M>, RaftStartError> {
    let raft_config = raft_config(&config)?;
    let node = config.node;
    let OpenLog { log, snapshots, newest, disk, comparison, closed } =
        OpenLog::open(&config).await?;
    let (voice, heard_voice) = channel::channel(Voice::Confirmed);
    let parts = Parts {
        link,
        node,
        log: log.clone(),
        disk,
        timing: config.timing,
        voice: heard_voice,
        wire_newest: config.wire_newest,
        snapshot_limit: config.snapshot_limit,
        comparison,
    };
    let context = Arc::new(Context::new(parts));
    let applied = Applied::new(machine, config.applied.clone());
    let newest = Arc::new(Mutex::new(newest));
    let applier = Applier { applied: Arc::clone(&applied), snapshots, log: log.clone(), newest };
    let network = PeerNetwork(Arc::clone(&context));
    let raft = Raft::new(node, Arc::new(raft_config), network, log, applier)
        .await
        .map_err(|fatal| RaftStartError::Log(fatal.to_string()))?;
    // Before any other node is served: senders are judged by the members that the metrics name.
    context.guard.begin(raft.metrics());
    let heard = LeaderContact::default();
    let (served, shared) = (Arc::clone(&context), Arc::clone(&applied));
    let server = PeerServer::new(served, raft.clone(), shared, heard.clone());
    context.link.serve_streams(Some(Arc::new(Service(Arc::new(server)))));
    let steering = Steering::new(raft.clone(), Arc::clone(&context), config.steering_patience);
    let watch = LogWatch::new(steering, heard.clone(), voice);
    let disks = config.folder.join(DISKS);
    let comparing = compare_all(Arc::clone(&context), raft.clone(), Arc::clone(&applied), disks);
    let (tasks, stop) = run(
        &config.watch,
        [
            ("questions of the log", Box::pin(ask_all(Arc::clone(&context), raft.clone()))),
            ("comparison of the log", Box::pin(comparing)),
            ("watch on the log", Box::pin(watch.run(config.compaction))),
        ],
    );
    Ok(Consensus {
        raft,
        context,
        applied,
        heard,
        budget: Mutex::new(Budget::new(config.budget)),
        config,
        started: Instant::now(),
        tasks,
        stop,
        closed: Mutex::new(Some(closed)),
    })
}

/// Log on this node's disk, open for the present process.
struct OpenLog {
    log: LogStore,
    snapshots: Snapshots,
    /// Snapshot from which the state is restored, if there is one.
    newest: Option<StoredSnapshot>,
    disk: DiskId,
    /// Knowledge of other nodes' disks.
    comparison: Comparison,
    /// Completes when the log is closed.
    closed: oneshot::Receiver<()>,
}

impl OpenLog {
    /// Opens the folder, and counts the start of this process in it.
    async fn open(config: &RaftConfig) -> Result<Self, RaftStartError> {
        let (folder, kept) = open(config).await?;
        folder.check_name(&config.name)?;
        let (ended, closed) = oneshot::channel();
        let disk = folder.file.state().disk;
        let snapshots = folder.snapshots;
        let file = folder.file.timed_by(Arc::clone(&config.disk_clock));
        let log = LogStore::start(file, folder.entries, snapshots.clone(), move || {
            // An error means that no task waits for the end.
            let _ = ended.send(());
        })?;
        let comparison = Comparison::new(log.serial(), log.is_blank(), &kept);
        if !log.is_blank() {
            log.count_start();
        }
        Ok(Self { log, snapshots, newest: folder.snapshot, disk, comparison, closed })
    }
}

/// Task of a log, with its name.
type LogTask = (&'static str, Pin<Box<dyn Future<Output = ()> + Send>>);

/// Runs tasks until the returned token is cancelled.
fn run(watch: &TaskWatch, all: [LogTask; 3]) -> (TaskTracker, CancellationToken) {
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    for (name, task) in all {
        let stopped = stop.clone();
        tasks.spawn(watch.clone().vital(name, async move {
            stopped.run_until_cancelled(task).await;
        }));
    }
    (tasks, stop)
}

/// Opens the folder, with what the last process has kept of other nodes' disks.
async fn open(config: &RaftConfig) -> Result<(Folder, SavedDisks), DiskError> {
    let (path, node, disk) = (config.folder.clone(), config.node, config.disk);
    let clock = Arc::clone(&config.disk_clock);
    let opening = spawn_blocking(move || {
        clock.wait(|| {
            let folder = Folder::open(&path, node, disk)?;
            Ok((folder, kept(&path.join(DISKS))))
        })
    });
    // redb may panic on a damaged page.
    opening.await.map_err(|_| DiskError::unreadable())?
}

/// Reads what the last process has kept of other nodes' disks. Without it this node knows only less.
fn kept(path: &Path) -> SavedDisks {
    load(path)
        .unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "the saved state of other nodes' disks is lost");
            None
        })
        .unwrap_or_default()
}

fn raft_config(config: &RaftConfig) -> Result<openraft::Config, RaftStartError> {
    let ms = |duration: std::time::Duration| duration.as_millis() as u64;
    let (timing, compaction) = (&config.timing, &config.compaction);
    let raft = openraft::Config {
        cluster_name: "spillway".to_owned(),
        // Only the limit of an answer: `steering` decides when a heartbeat is sent.
        heartbeat_interval: ms(timing.heartbeat),
        enable_heartbeat: false,
        // Limits only the time for an answer to a candidate. `campaign` decides when to start an
        // election.
        election_timeout_min: 2 * ms(timing.heartbeat),
        election_timeout_max: ms(timing.election_max),
        install_snapshot_timeout: ms(config.snapshot_limit),
        max_payload_entries: APPEND_ENTRIES_MAX,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(compaction.entries),
        max_in_snapshot_log_to_keep: compaction.entries_kept,
        // A follower that is behind by less usually finds the entries in the log.
        replication_lag_threshold: compaction.entries + compaction.entries_kept,
        // The followers write while the leader does.
        broadcast_submitted_on_append: Some(true),
        removed_leader_step_down: StepDownPolicy::After(2 * ms(timing.heartbeat)),
        // A node that was cut off asks first when it is back, and so unseats no leader that works.
        enable_pre_vote: Some(true),
        enable_elect: false,
        backoff: BACK_OFF.to_owned(),
        ..openraft::Config::default()
    };
    raft.validate().map_err(|error| RaftStartError::Config(error.to_string()))
}
