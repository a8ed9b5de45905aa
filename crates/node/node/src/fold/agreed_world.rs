//! Part of the agreed state that decides about requests at this node.

use std::collections::{BTreeMap, BTreeSet};

use spillway_cluster_state::{
    LeaseSource, Model, Replica, ReplicaSpec, ReplicaState, Route, Split, State,
};
use spillway_types::{ModelName, RegionName, ReplicaName, RouteName};

/// Part of the agreed state that decides about requests at this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AgreedWorld {
    pub(crate) models: BTreeMap<ModelName, Model>,
    pub(crate) splits: BTreeMap<ModelName, Split>,
    pub(crate) routes: BTreeMap<RouteName, Route>,
    /// Replicas of this node's region.
    pub(crate) replicas: BTreeMap<ReplicaName, AgreedReplica>,
    /// Pools that replicas of any region are in.
    pub(crate) pools: BTreeSet<String>,
    /// Models of replicas in other regions, whatever their state.
    pub(crate) models_served: BTreeSet<ModelName>,
}

/// Record of a replica of the own region.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgreedReplica {
    /// Epoch of the registration: a new registration has another one.
    pub(crate) epoch: u64,
    /// True if the replica may be given new requests.
    pub(crate) is_active: bool,
    /// Weight set by an operator, instead of its own.
    pub(crate) weight: Option<u32>,
    /// Specification, if the replica was registered; `None` if a node reported it from its config.
    pub(crate) registered: Option<ReplicaSpec>,
}

impl AgreedWorld {
    /// Takes the part for one region; empty before the cluster is formed.
    pub(crate) fn of(state: &State, region: &RegionName) -> Self {
        let records = state.records();
        if state.cluster().is_none() {
            return Self::default();
        }
        let own = records.replicas.iter().filter(|(id, _)| id.region == *region);
        let replicas = own.map(|(id, replica)| (id.name.clone(), AgreedReplica::of(replica)));
        Self {
            models: records
                .models
                .iter()
                .filter(|(_, model)| !is_price_alone(model))
                .map(|(name, model)| (name.clone(), model.clone()))
                .collect(),
            splits: records.splits.iter().map(|(name, it)| (name.clone(), it.clone())).collect(),
            routes: records.routes.iter().map(|(name, it)| (name.clone(), it.clone())).collect(),
            replicas: replicas.collect(),
            models_served: records
                .replicas
                .iter()
                .filter(|(id, _)| id.region != *region)
                .flat_map(|(_, replica)| replica.spec.models.iter().cloned())
                .collect(),
            pools: records.replicas.iter().map(|(_, it)| it.spec.pool.clone()).collect(),
        }
    }
}

impl AgreedReplica {
    fn of(replica: &Replica) -> Self {
        Self {
            epoch: replica.epoch,
            is_active: replica.state == ReplicaState::Active,
            weight: replica.weight,
            registered: is_registered(replica).then(|| replica.spec.clone()),
        }
    }
}

/// Returns true if a record of a model has a price and says nothing about its name.
fn is_price_alone(model: &Model) -> bool {
    model.price.is_some() && model.alias_of.is_none() && model.fallbacks.is_empty()
}

/// Returns true if a replica was registered, by itself or by an operator. Nodes report the replicas
/// in their configs under incarnation 0 and without a lease: these are served where the config has
/// them. Otherwise they would come back by way of the cluster after they were taken out of the
/// config.
pub(crate) fn is_registered(replica: &Replica) -> bool {
    replica.incarnation != 0 || matches!(replica.spec.source, LeaseSource::Lease { .. })
}

#[cfg(test)]
mod tests {
    use spillway_cluster_state::TokenPrice;

    use super::*;
    use crate::agreed::test_state::{lease, registered};

    #[test]
    fn what_other_nodes_told_of_their_configs_is_no_registration() {
        let of = |source, region: &str| AgreedWorld::of(&registered("r", source), &region.into());
        let told = of(None, "one");
        assert_eq!(
            told.replicas.values().map(|it| it.registered.is_some()).collect::<Vec<_>>(),
            [false]
        );
        let leased = of(Some(lease(15_000)), "one");
        assert_eq!(
            leased.replicas.values().map(|it| it.registered.is_some()).collect::<Vec<_>>(),
            [true]
        );
        let elsewhere = of(Some(lease(15_000)), "two");
        assert!(elsewhere.replicas.is_empty(), "another region's");
        // Its models are known nevertheless.
        assert_eq!((leased.models_served.len(), elsewhere.models_served.len()), (0, 1));
        assert_eq!(elsewhere.pools, ["default".to_owned()].into());
        assert_eq!(AgreedWorld::of(&State::new(), &"one".into()), AgreedWorld::default());
    }

    #[test]
    fn a_record_with_a_price_alone_says_nothing_about_its_name() {
        let priced = Model { price: Some(TokenPrice::default()), ..Model::default() };
        assert!(is_price_alone(&priced));
        assert!(!is_price_alone(&Model { fallbacks: vec!["big".into()], ..priced }));
        assert!(!is_price_alone(&Model::default()), "an empty record makes the name a plain model");
    }
}
