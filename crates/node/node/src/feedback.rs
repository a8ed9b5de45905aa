//! Brings outcomes from the workers' queues to the metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use serde::Serialize;
use spillway_admin::{DiscoveryOverview, RequestEntry, RequestFilter, Requests};
use spillway_dns::NameServerState;
use spillway_front::access::KeyTable;
use spillway_knowledge::{KnowledgeFigures, KnowledgeHandle};
use spillway_link::Link;
use spillway_proxy::Worker;
use spillway_quota_division as quota;
use spillway_request::gateway::Gateway;
use spillway_telemetry::{
    LastResort, Live, LiveCluster, LiveDiscovery, LiveGeo, LiveHot, LiveKnowledge, LiveReplica,
    Metrics, logs,
};
use spillway_traces::{Traces, TracesConfig};
use spillway_types::{ReplicaSlot, unix_ms};
use spillway_usage::UsageLine;
use tokio_util::sync::CancellationToken;

use crate::agreed::WatchedControlPlane;
use crate::certificates::Certificates;
use crate::cluster::{NodeFacts, Watched};
use crate::discovery_watch::DiscoveryWatch;
use crate::fold::NoteCounts;
use crate::health_watch::NodeHealth;
use crate::requests::RequestLog;
use crate::usage::Usage;

/// Period of emptying the queues: rarely enough to cost nothing, often enough that a queue of
/// 16,384 outcomes takes 160,000 requests per second on one worker to overflow.
const INTERVAL: Duration = Duration::from_millis(100);

/// Usage of this node since it started.
#[derive(Debug, Serialize)]
pub(crate) struct NodeUsage {
    /// Start of the node, in milliseconds since 1970.
    since_ms: u64,
    /// Usage by tenant, key and model.
    usage: Vec<UsageLine>,
}

/// The workers' queues, and the metrics that they feed.
#[derive(Debug)]
pub(crate) struct Feedback {
    pub(crate) gateway: Arc<Gateway>,
    /// Version of the program, for operators.
    pub(crate) version: String,
    pub(crate) workers: Vec<Arc<Worker>>,
    pub(crate) metrics: Metrics,
    /// Requests that ended last, and their log.
    pub(crate) requests: RequestLog,
    /// Spans of requests, for a collector.
    pub(crate) traces: Traces,
    /// Usage of clients, by day.
    pub(crate) usage: Usage,
    /// Number of facts about replicas that did not fit into the keeper's queue.
    facts_dropped: AtomicU64,
    /// Counts of agreed items by kind and use.
    agreed: ArcSwap<NoteCounts>,
    discoveries: ArcSwap<Vec<DiscoveryWatch>>,
    cluster: OnceLock<Watched>,
    dns: OnceLock<Arc<NameServerState>>,
    control_plane: OnceLock<WatchedControlPlane>,
    knowledge: Arc<KnowledgeHandle>,
    /// Certificates of listeners and nodes.
    pub(crate) certificates: Certificates,
    /// Health of the node.
    pub(crate) health: NodeHealth,
}

impl Feedback {
    pub(crate) fn new(
        gateway: &Arc<Gateway>,
        workers: &[Arc<Worker>],
        (metrics, requests, traces, usage): (Metrics, RequestLog, Traces, Usage),
        knowledge: &Arc<KnowledgeHandle>,
        version: String,
    ) -> Self {
        let (gateway, workers) = (Arc::clone(gateway), workers.to_vec());
        let knowledge = Arc::clone(knowledge);
        let facts_dropped = AtomicU64::new(0);
        let (cluster, control_plane, dns) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let agreed = ArcSwap::default();
        Self {
            gateway,
            version,
            workers,
            metrics,
            requests,
            traces,
            usage,
            facts_dropped,
            agreed,
            discoveries: ArcSwap::default(),
            cluster,
            dns,
            control_plane,
            knowledge,
            certificates: Certificates::default(),
            health: NodeHealth::new(Instant::now()),
        }
    }

    /// Shows the cluster's metrics too; only the first call counts.
    pub(crate) fn watch(&self, cluster: Watched) {
        drop(self.cluster.set(cluster));
    }

    /// Returns the link to other nodes, if there is one and it is open.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.cluster.get()?.link()
    }

    /// Returns the facts about this node that other nodes get.
    pub(crate) fn node_facts(&self) -> NodeFacts {
        let progress = self.control_plane.get().map(WatchedControlPlane::progress);
        let (applied_index, log_fault) = progress.unwrap_or_default();
        let problems = self.health.reported();
        NodeFacts {
            version: self.version.clone(),
            applied_index,
            log_fault,
            problems,
            clock_ms: Some(unix_ms(SystemTime::now())),
        }
    }

    /// Shows the name server's metrics too; only the first call counts.
    pub(crate) fn watch_dns(&self, dns: Arc<NameServerState>) {
        drop(self.dns.set(dns));
    }

    /// Shows the control plane's metrics too; only the first call counts.
    pub(crate) fn watch_control_plane(&self, control_plane: WatchedControlPlane) {
        drop(self.control_plane.set(control_plane));
    }

    /// Sends traces by these settings from now on; none without them.
    pub(crate) fn set_traces(&self, config: Option<&TracesConfig>) {
        let share = config.map_or(0.0, |config| config.share_percent / 100.0);
        self.gateway.set_trace_share(share);
        self.traces.set(config);
    }

    /// Notes the number of facts about replicas that did not fit into the keeper's queue so far.
    pub(crate) fn note_facts_dropped(&self, total: u64) {
        self.facts_dropped.store(total, Ordering::Relaxed);
    }

    /// Notes the counts of agreed items by kind and use.
    pub(crate) fn note_agreed(&self, counts: NoteCounts) {
        self.agreed.store(Arc::new(counts));
    }

    /// Takes over views of the discoveries.
    pub(crate) fn note_discoveries(&self, discoveries: Vec<DiscoveryWatch>) {
        self.discoveries.store(Arc::new(discoveries));
    }

    /// Returns the state of each discovery.
    pub(crate) fn discoveries(&self) -> Vec<DiscoveryOverview> {
        let now = tokio::time::Instant::now();
        self.discoveries.load().iter().map(|it| it.overview(now)).collect()
    }

    /// Empties the queues periodically until `stop` is cancelled, and a last time then.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut interval = tokio::time::interval(INTERVAL);
        loop {
            tokio::select! {
                _ = interval.tick() => self.collect(),
                () = stop.cancelled() => return self.collect(),
            }
        }
    }

    /// Returns the metrics as text, with every outcome up to now.
    pub(crate) fn scrape(&self) -> String {
        self.collect();
        self.metrics.scrape(&self.live())
    }

    /// Returns the usage of tenants and keys since the start, with every outcome up to now.
    pub(crate) fn usage_since_start(&self) -> NodeUsage {
        self.collect();
        NodeUsage {
            since_ms: self.gateway.started_s().saturating_mul(1_000),
            usage: self.metrics.usage(),
        }
    }

    /// Takes in every outcome up to now.
    pub(crate) fn collect(&self) {
        let now = (Instant::now(), SystemTime::now());
        let mut counting = self.health.counting(now.0);
        for worker in &self.workers {
            worker.drain_outcomes(|mut outcome| {
                if self.traces.add(&outcome, now)
                    && let Some(trace) = &mut outcome.trace
                {
                    trace.is_sampled = true;
                }
                counting.add(&outcome);
                let cost = self.usage.record(&outcome, now.1);
                self.metrics.record(&outcome, cost.client);
                if let Some(cost) = cost.overflow {
                    self.metrics.record_overflow(&outcome, cost);
                }
                self.requests.add(outcome, now);
            });
        }
        drop(counting);
        self.usage.judge(now.1);
    }

    fn live(&self) -> Live {
        let (counters, memory) = (self.gateway.counters(), self.gateway.memory());
        let door = self.gateway.front_door();
        let (spans_sent, spans_lost) = self.traces.counts();
        let view = self.gateway.view();
        let replica_loads = view.replica_loads();
        let replicas = view.replicas().iter().zip(0..).map(|(replica, index)| {
            let slot = ReplicaSlot(index);
            let standing = view.standing(slot);
            LiveReplica {
                name: replica.spec().name.to_string(),
                in_flight: u64::from(replica.in_flight()),
                concurrency_limit: replica.concurrency_limit(),
                connections: u64::from(replica.connections().open()),
                unasked: replica.connections().unasked(),
                admission: standing.admission,
                ramp_permille: standing.ramp_permille,
                signals: replica_loads.signals(slot),
                breakers: standing.models.len() as u64,
                models_missing: view.missing_models(&replica.spec().name) as u64,
            }
        });
        let last_resorts = view.last_resorts().map(|(route, model, admission)| LastResort {
            route: route.to_string(),
            model: model.map(ToString::to_string).unwrap_or_default(),
            admission,
        });
        let waiting = self.gateway.waiting_by_model().into_iter();
        let cluster = self.cluster.get().map(|watched| LiveCluster {
            control: self.control_plane.get().and_then(|watched| watched.live(&self.agreed.load())),
            ..watched.live(&self.gateway)
        });
        Live {
            replicas: replicas.collect(),
            client_connections: door.connections(),
            body_bytes: door.body_bytes(),
            ahead_bytes: memory.ahead().held_bytes(),
            ahead_replies: memory.ahead().replies(),
            streams_closed: door.streams_closed(),
            memory: vec![("used", memory.used_bytes()), ("ceiling", memory.ceiling_bytes())],
            connections_closed: door.connections_closed(),
            access: access(&self.gateway.keys()),
            lines_lost: [("access", self.requests.lines_lost()), ("node", logs::lines_lost())],
            spans: [("sent", spans_sent), ("lost", spans_lost)],
            outcomes_dropped: self.workers.iter().map(|worker| worker.outcomes_dropped()).sum(),
            retries_refused: counters.retries_refused(),
            engines_died: counters.engines_died(),
            residency: counters.residency(),
            responses_not_kept: self.gateway.responses_not_kept(),
            home_news_dropped: self.gateway.home_outbox.dropped(),
            home_changes: counters.affinity_moves(),
            continuations: counters.continuations(),
            last_resorts: last_resorts.collect(),
            discoveries: self.live_discoveries(),
            facts_dropped: self.facts_dropped.load(Ordering::Relaxed),
            waiting: waiting.map(|(model, count)| (model.to_string(), count)).collect(),
            guests: self.gateway.guests(),
            steering: self.gateway.steering(),
            cluster: cluster.unwrap_or_default(),
            dns: self.dns.get().map(|dns| dns.live()),
            knowledge: self.live_knowledge(),
            geo: self.live_geo(),
            hot: self.control_plane.get().map(|_| self.live_hot()),
            limits: quota::live(self.gateway.quotas()),
            budgets: self.usage.live_budgets(SystemTime::now()),
            overflow: self.usage.live_overflow(view.replicas(), SystemTime::now()),
            certificates: self.certificates.live(self.link().as_deref()),
            health: self.health.live(),
        }
    }
}

impl Feedback {
    /// Returns the state of each discovery, for metrics.
    fn live_discoveries(&self) -> Vec<LiveDiscovery> {
        let now = tokio::time::Instant::now();
        self.discoveries.load().iter().map(|it| it.live(now)).collect()
    }

    /// Returns figures of clients' countries and of the location databases.
    fn live_geo(&self) -> LiveGeo {
        let locations = self.gateway.locations();
        let places = locations.locator.as_ref().map(|locator| locator.databases().0);
        let places = places.map(|database| ("place", database.built_unix_s));
        LiveGeo {
            countries: self.gateway.counters().client_countries(),
            databases: places.into_iter().collect(),
        }
    }

    /// Returns figures of the prefix index, of shared prompts and of speeds.
    fn live_knowledge(&self) -> LiveKnowledge {
        let KnowledgeFigures { index, sharing, models, events_dropped, kv_events, .. } =
            self.knowledge.figures();
        let counts = self.gateway.knowledge().counts();
        LiveKnowledge {
            blocks: index.blocks,
            pairs: index.pairs,
            bytes: index.bytes,
            forgotten: vec![("room", index.evictions), ("reply", index.corrections)],
            flushes: index.flushes,
            lookups: counts.lookups(),
            matched: counts.matched(),
            learnings_dropped: self.workers.iter().map(|worker| worker.learnings_dropped()).sum(),
            models,
            kv_events: kv_events.events,
            kv_events_missed: kv_events.missed,
            kv_replicas: vec![
                ("live", kv_events.live),
                ("assumed", kv_events.replicas - kv_events.live),
            ],
            kv_blocks: kv_events.blocks,
            shared: vec![
                ("told", sharing.told),
                ("heard", sharing.heard),
                ("lacking", sharing.lacked),
                ("answered", sharing.answered),
                ("other_key", sharing.other_epochs),
                ("refused", sharing.refused),
                ("dropped", sharing.dropped + events_dropped),
            ],
            shared_bytes: sharing.frame_bytes,
        }
    }

    /// Returns figures of the hot blocks that the cluster agrees on.
    fn live_hot(&self) -> LiveHot {
        let KnowledgeFigures { hot_regions, hot, proposals, .. } = self.knowledge.figures();
        let counts = self.gateway.knowledge().counts();
        LiveHot {
            blocks: hot_regions.iter().map(|(name, blocks)| (name.to_string(), *blocks)).collect(),
            bytes: hot.bytes,
            entries: proposals.applied,
            entry_bytes: proposals.bytes,
            proposals: vec![
                ("applied", proposals.applied),
                ("refused", proposals.refused),
                ("failed", proposals.failed),
            ],
            decisions: counts.spills(),
            changed: counts.spills_changed(),
        }
    }
}

impl Requests for Feedback {
    fn recent(&self, filter: &RequestFilter, limit: usize) -> Vec<RequestEntry<'static>> {
        // A client that has just read a reply may ask for its entry.
        self.collect();
        self.requests.recent(filter, limit)
    }
}

/// Returns the results of access checks, by tenant.
fn access(keys: &KeyTable) -> Vec<(String, &'static str, u64)> {
    let tallies = keys.tallies().into_iter();
    let rows = tallies.flat_map(|tally| {
        let totals = tally.totals.into_iter();
        totals.map(move |(result, total)| (tally.tenant.clone(), result.as_str(), total))
    });
    rows.collect()
}
