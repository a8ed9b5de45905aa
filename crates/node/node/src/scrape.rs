//! Metrics of the whole node, put together when a scrape comes.

use std::sync::Arc;
use std::time::SystemTime;

use spillway_dns::NameServerState;
use spillway_front::access::KeyTable;
use spillway_knowledge::{KnowledgeFigures, KnowledgeHandle};
use spillway_link::Link;
use spillway_quota_division as quota;
use spillway_telemetry::{
    LastResort, Live, LiveCluster, LiveGeo, LiveHot, LiveKnowledge, LiveReplica, logs,
};
use spillway_types::ReplicaSlot;
use spillway_view::View;

use crate::agreed::WatchedControlPlane;
use crate::certificates::Certificates;
use crate::cluster::Watched;
use crate::local_node::LocalNode;

/// Metrics of this node, and the parts of it that are looked at only when a scrape comes.
#[derive(Debug)]
pub(crate) struct Scrape {
    pub(crate) local: LocalNode,
    pub(crate) knowledge: Arc<KnowledgeHandle>,
    /// Certificates of listeners and nodes.
    pub(crate) certificates: Arc<Certificates>,
    /// The cluster, if this node is in one.
    pub(crate) cluster: Option<Watched>,
    /// The control plane, if this node takes part in it.
    pub(crate) control_plane: Option<WatchedControlPlane>,
    /// The name server, if this node is one.
    pub(crate) dns: Option<Arc<NameServerState>>,
}

impl Scrape {
    /// Returns the metrics as text, with every outcome up to now.
    pub(crate) fn text(&self) -> String {
        self.local.outcomes.collect();
        self.local.outcomes.metrics.scrape(&self.live())
    }

    /// Returns the link to other nodes, if there is one and it is open.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.cluster.as_ref()?.link()
    }

    fn live(&self) -> Live {
        let LocalNode { gateway, outcomes, keeper, .. } = &self.local;
        let (counters, door, now) = (&gateway.counters, &gateway.door, SystemTime::now());
        let memory = door.memory();
        let (spans_sent, spans_lost) = outcomes.traces.counts();
        let view = gateway.routing.view();
        let last_resorts = view.last_resorts().map(|(route, model, admission)| LastResort {
            route: route.to_string(),
            model: model.map(ToString::to_string).unwrap_or_default(),
            admission,
        });
        let waiting = gateway.routing.waiting.by_model().into_iter();
        let agreed = keeper.figures.agreed();
        let cluster = self.cluster.as_ref().map(|watched| LiveCluster {
            control: self.control_plane.as_ref().and_then(|watched| watched.live(&agreed)),
            ..watched.live(&gateway.routing.regions())
        });
        Live {
            replicas: live_replicas(&view),
            client_connections: door.connections(),
            body_bytes: door.body_bytes(),
            ahead_bytes: memory.ahead().held_bytes(),
            ahead_replies: memory.ahead().replies(),
            streams_closed: door.streams_closed(),
            memory: vec![("used", memory.used_bytes()), ("ceiling", memory.ceiling_bytes())],
            connections_closed: door.connections_closed(),
            access: access(&gateway.clients.authenticator.table()),
            lines_lost: [("access", outcomes.requests.lines_lost()), ("node", logs::lines_lost())],
            spans: [("sent", spans_sent), ("lost", spans_lost)],
            outcomes_dropped: outcomes.workers.iter().map(|worker| worker.outcomes_dropped()).sum(),
            retries_refused: counters.retries_refused(),
            engines_died: counters.engines_died(),
            residency: counters.residency(),
            responses_not_kept: gateway.homes.responses.not_kept(),
            home_news_dropped: gateway.homes.outbox.dropped(),
            home_changes: counters.affinity_moves(),
            continuations: counters.continuations(),
            last_resorts: last_resorts.collect(),
            discoveries: keeper.figures.live_discoveries(),
            facts_dropped: keeper.figures.facts_dropped(),
            waiting: waiting.map(|(model, count)| (model.to_string(), count)).collect(),
            guests: gateway.counters.guests(),
            steering: gateway.switches.steering(),
            cluster: cluster.unwrap_or_default(),
            dns: self.dns.as_ref().map(|dns| dns.live()),
            knowledge: self.live_knowledge(),
            geo: self.live_geo(),
            hot: self.control_plane.as_ref().map(|_| self.live_hot()),
            limits: quota::live(&gateway.clients.quotas),
            budgets: outcomes.usage.live_budgets(now),
            overflow: outcomes.usage.live_overflow(view.replicas(), now),
            certificates: self.certificates.live(self.link().as_deref()),
            health: outcomes.health.live(),
        }
    }
}

impl Scrape {
    /// Returns figures of clients' countries and of the location databases.
    fn live_geo(&self) -> LiveGeo {
        let locations = self.local.gateway.routing.locations();
        let places = locations.locator.as_ref().map(|locator| locator.databases().0);
        let places = places.map(|database| ("place", database.built_unix_s));
        LiveGeo {
            countries: self.local.gateway.counters.client_countries(),
            databases: places.into_iter().collect(),
        }
    }

    /// Returns figures of the prefix index, of shared prompts and of speeds.
    fn live_knowledge(&self) -> LiveKnowledge {
        let KnowledgeFigures { index, sharing, models, events_dropped, kv_events, .. } =
            self.knowledge.figures();
        let counts = self.local.gateway.routing.knowledge.counts();
        LiveKnowledge {
            blocks: index.blocks,
            pairs: index.pairs,
            bytes: index.bytes,
            forgotten: vec![("room", index.evictions), ("reply", index.corrections)],
            flushes: index.flushes,
            lookups: counts.lookups(),
            matched: counts.matched(),
            learnings_dropped: self
                .local
                .outcomes
                .workers
                .iter()
                .map(|worker| worker.learnings_dropped())
                .sum(),
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
        let counts = self.local.gateway.routing.knowledge.counts();
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

/// Returns the state and load of each replica.
fn live_replicas(view: &View) -> Vec<LiveReplica> {
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
    replicas.collect()
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
