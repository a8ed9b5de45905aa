//! Load of the own region, put together for routing and for gossip.

use std::collections::BTreeMap;
use std::time::Instant;

use spillway_gossip::{
    GossipMachine, ModelShare, OwnLoad, PeerView, ReplicaLoad, ReplicaSignals, WHOLE_REGION,
};
use spillway_health::{RegionLoad, ReplicaNow, with_nodes};
use spillway_knowledge::Published;
use spillway_proxy::shed_state_of;
use spillway_request::gateway::RoutingState;
use spillway_types::{Admission, ModelLoad, ModelName, Reading, ReplicaSlot, ShedState};
use spillway_view::{OwnModel, View};

/// Lowest trust of a reading that is still sent to others: below it the reading is too old.
const TRUST_MIN: f32 = 0.5;

/// Load of the own region at one moment.
#[derive(Debug)]
pub(super) struct Own {
    /// Load by model, for routing on this node.
    pub(super) models: BTreeMap<ModelName, OwnModel>,
    /// Load of all replicas together.
    pub(super) whole: ModelLoad,
    /// Requests that wait in this node, by model.
    waiting: BTreeMap<ModelName, u32>,
    /// Requests that this node completes each second, by model; `None` if unknown.
    rates: BTreeMap<ModelName, Option<f32>>,
}

impl Own {
    /// Measures the own replicas, and adds the reports of the region's other nodes.
    pub(super) fn look(
        load: &mut RegionLoad,
        (routing, view, speeds): (&RoutingState, &View, &Published),
        (gossip, peers): (&GossipMachine, &[PeerView]),
        now: Instant,
    ) -> Self {
        let replica_loads = view.replica_loads();
        let replicas: Vec<ReplicaNow<'_>> = view
            .replicas()
            .iter()
            .zip(0..)
            // An overflow replica is no capacity that other regions could use.
            .filter(|(replica, _)| !replica.is_overflow())
            .map(|(replica, index)| {
                let slot = ReplicaSlot(index);
                let spec = replica.spec();
                let elsewhere = gossip.elsewhere(&spec.name);
                ReplicaNow {
                    name: &spec.name,
                    models: &spec.models,
                    is_open: view.standing(slot).admission == Admission::Open,
                    in_flight: replica.in_flight(),
                    started: replica.started(),
                    in_flight_elsewhere: elsewhere.in_flight,
                    pending_tokens: replica
                        .pending_tokens()
                        .saturating_add(elsewhere.pending_tokens),
                    in_flight_max: replica.capacity().unwrap_or(u32::MAX),
                    signals: replica_loads.signals(slot),
                }
            })
            .collect();
        let waiting = routing.waiting.by_model();
        let before = routing.regions();
        let loads = load.update(now, &replicas);
        let whole = load.whole();
        let rates = loads.iter().map(|(name, load)| (name.clone(), load.rate_per_s)).collect();
        let live = peers.iter().filter(|peer| peer.live).count();
        let model = |(name, load): (ModelName, ModelLoad)| {
            let of_model = replicas.iter().filter(|replica| replica.models.contains(&name));
            let (sent, ended) = of_model.fold((0, 0), |(sent, ended), replica| {
                let has_ended = replica.started.saturating_sub(replica.in_flight.into());
                (sent + replica.started, ended + has_ended)
            });
            let peers = peers.iter().filter(|peer| peer.live);
            let shares = peers.filter_map(|peer| peer.share(&name));
            let shares = shares.map(|share| (share.waiting, share.rate_per_s));
            let waiting = waiting.get(&name).copied().unwrap_or(0);
            let load = with_nodes(load, waiting, shares);
            let nodes = u32::try_from(live + 1).unwrap_or(u32::MAX);
            let speed = speeds.of_model(&name);
            let known = before.own.get(&name);
            // Guests that were accepted and have no slot yet outlive a measurement.
            let coming = known.map(|known| known.coming.clone()).unwrap_or_default();
            (name, OwnModel { load, speed, sent, ended, coming, nodes })
        };
        Self { models: loads.into_iter().map(model).collect(), whole, waiting, rates }
    }

    /// Returns the load in the form that gossip sends to other nodes; `is_leaving` if this node ends.
    pub(super) fn to_tell(&self, routing: &RoutingState, view: &View, is_leaving: bool) -> OwnLoad {
        let replica_loads = view.replica_loads();
        let replicas = view.replicas().iter().zip(0..).map(|(replica, index)| {
            let spec = replica.spec();
            let in_flight = replica.in_flight();
            let waiting = spec.models.iter().filter_map(|model| self.waiting.get(model));
            let signals = replica_loads.signals(ReplicaSlot(index));
            let told = |reading: Reading| (reading.trust >= TRUST_MIN).then_some(reading.value);
            let load = ReplicaLoad {
                in_flight,
                pending_tokens: replica.pending_tokens(),
                wanted: waiting.fold(in_flight, |sum, waiting| sum.saturating_add(*waiting)),
                limit: (spec.in_flight_max < u32::MAX).then_some(spec.in_flight_max),
                signals: ReplicaSignals {
                    queued: told(signals.queued),
                    running: told(signals.running),
                    kv_use: told(signals.kv_use),
                    age_ms: None,
                },
            };
            (spec.name.clone(), load)
        });
        let share = |(name, model): (&ModelName, &OwnModel)| {
            let rate_per_s = self.rates.get(name).copied().flatten();
            let waiting = self.waiting.get(name).copied().unwrap_or(0);
            // Other nodes of the region go on: a client that this node rejects asks them.
            let is_ending = is_leaving && model.nodes <= 1;
            let shed = if is_ending { ShedState::Shedding } else { shed_state_of(routing, name) };
            let load = ModelLoad { shed, ..model.load };
            ((name.clone(), ModelShare { waiting, rate_per_s }), (name.clone(), load))
        };
        let (shares, mut models): (_, BTreeMap<_, _>) = self.models.iter().map(share).unzip();
        for model in view.configured() {
            // Otherwise other regions would take it for a model that does not exist.
            models.entry(model.clone()).or_insert_with(ModelLoad::unserved);
        }
        models.insert(ModelName::from(WHOLE_REGION), self.whole);
        OwnLoad { replicas: replicas.collect(), shares, models }
    }
}
