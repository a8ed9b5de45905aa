//! Messages about homes between nodes, in JSON like all answers of one node to another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spillway_types::{ModelName, NodeName, RegionName, ReplicaName, RouteName, TenantName};
use spillway_view::{Home, SessionHome, SessionKey, StoredResponse, region_identity};

/// Homes that a node sends to another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Homes {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) responses: Vec<KnownResponse>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) sessions: Vec<KnownSession>,
    /// Last blocks of prompts, by the region that served them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) conversations: BTreeMap<RegionName, Vec<u64>>,
}

/// A stored response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownResponse {
    id: String,
    region: RegionName,
    node: Option<NodeName>,
    replica: Option<ReplicaName>,
    tenant: Option<TenantName>,
    model: ModelName,
}

/// A session by header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownSession {
    pub(super) route: RouteName,
    key: u64,
    /// Hash of the tenant; 0 from older nodes.
    #[serde(default)]
    tenant: u64,
    region: RegionName,
    replica: Option<u64>,
    version: u32,
}

/// Question for a stored response of a tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ResponseQuestion {
    pub(super) id: String,
    pub(super) tenant: Option<TenantName>,
}

/// Name and region of a node, from whose side homes are seen: its own replicas are elsewhere for the
/// others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side<'a> {
    pub(super) node: &'a NodeName,
    pub(super) region: &'a RegionName,
    /// Names of the other regions, behind their identities.
    pub(super) others: &'a BTreeMap<u64, RegionName>,
}

impl KnownResponse {
    pub(super) fn of(id: &str, response: &StoredResponse, side: Side<'_>) -> Self {
        let StoredResponse { home, tenant, model } = response.clone();
        let (region, node, replica) = match home {
            Home::Replica(replica) => (side.region.clone(), Some(side.node.clone()), Some(replica)),
            Home::Elsewhere { region, node, replica } => (region, node, replica),
        };
        Self { id: id.to_owned(), region, node, replica, tenant, model }
    }

    /// Returns id and response as the node `me` of the region `own` keeps them. A response at another
    /// node of the region keeps that node: the config of that node alone may have the replica.
    pub(super) fn at(self, me: &NodeName, own: &RegionName) -> (String, StoredResponse) {
        let Self { id, region, node, replica, tenant, model } = self;
        let is_mine = region == *own && node.as_ref().is_none_or(|node| node == me);
        let home = match replica {
            Some(replica) if is_mine => Home::Replica(replica),
            replica => Home::Elsewhere { region, node, replica },
        };
        (id, StoredResponse { home, tenant, model })
    }
}

impl KnownSession {
    /// Returns `None` for a session in a region that is gone.
    pub(super) fn of(
        route: &RouteName,
        key: SessionKey,
        home: SessionHome,
        side: Side<'_>,
    ) -> Option<Self> {
        let SessionHome { region, replica, version } = home;
        let region = match region {
            None => side.region.clone(),
            Some(identity) => side.others.get(&identity)?.clone(),
        };
        let SessionKey { session: key, tenant } = key;
        Some(Self { route: route.clone(), key, tenant, region, replica, version })
    }

    pub(super) fn key(&self) -> SessionKey {
        SessionKey { session: self.key, tenant: self.tenant }
    }

    /// Returns the home as a node of the region `own` keeps it.
    pub(super) fn at(&self, own: &RegionName) -> SessionHome {
        let region = (self.region != *own).then(|| region_identity(&self.region));
        SessionHome { region, replica: self.replica, version: self.version }
    }
}

/// Fuzz target: a readable message keeps its meaning when it is sent on.
#[cfg(any(test, fuzzing))]
pub(in crate::cluster) fn check_message(input: &[u8]) {
    let Ok(homes) = serde_json::from_slice::<Homes>(input) else { return };
    let (region, node) = (RegionName::from("us"), NodeName::from("n"));
    let regions = homes.sessions.iter().map(|known| &known.region);
    let others = regions.map(|region| (region_identity(region), region.clone())).collect();
    let side = Side { node: &node, region: &region, others: &others };
    for known in &homes.sessions {
        let again = KnownSession::of(&known.route, known.key(), known.at(&region), side);
        assert_eq!(again.as_ref(), Some(known));
    }
    for known in homes.responses {
        let (id, response) = known.clone().at(&node, &region);
        let again = KnownResponse::of(&id, &response, side);
        assert_eq!((&again.region, &again.replica), (&known.region, &known.replica));
        assert_eq!((again.tenant, again.model), (known.tenant, known.model));
    }
}

#[cfg(test)]
mod tests {
    use spillway_view::HomeNews;

    use super::super::bounded::BoundedHomes;
    use super::*;

    #[test]
    fn a_home_means_the_same_replica_at_all_nodes() {
        let (us, eu, node) = (RegionName::from("us"), RegionName::from("eu"), "n1".into());
        let of_us = BTreeMap::from([(region_identity(&eu), eu.clone())]);
        let side = Side { node: &node, region: &us, others: &of_us };
        let response = StoredResponse {
            home: Home::Replica("a".into()),
            tenant: Some("acme".into()),
            model: "chat".into(),
        };
        let home = SessionHome { region: None, replica: Some(7), version: 1 };
        let there = SessionHome { region: Some(region_identity(&eu)), ..home };
        let gone = SessionHome { region: Some(1), ..home };
        let session = |session, home| HomeNews::Session {
            route: "llm".into(),
            key: SessionKey { session, tenant: 3 },
            home,
        };
        let news = [
            HomeNews::Response { id: "resp_1".into(), response: response.clone() },
            session(5, home),
            session(6, there),
            session(7, gone),
            HomeNews::Conversation { block: 9, region: None },
            HomeNews::Conversation { block: 8, region: Some(eu.clone()) },
        ];
        let (homes, taken) = BoundedHomes::of(news.iter(), side, 1 << 20);
        assert_eq!(taken, 6);
        let text = serde_json::to_vec(&homes).expect("a text");
        let heard: Homes = serde_json::from_slice(&text).expect("homes");
        assert_eq!(heard, homes);
        let turns = BTreeMap::from([(us.clone(), vec![9]), (eu.clone(), vec![8])]);
        assert_eq!(heard.conversations, turns);
        let known = &heard.responses[0];
        assert_eq!(known.clone().at(&node, &us), ("resp_1".to_owned(), response.clone()));
        let away = known.clone().at(&node, &eu).1;
        let replica = Some("a".into());
        let elsewhere = Home::Elsewhere { region: us.clone(), node: Some("n1".into()), replica };
        assert_eq!(&away.home, &elsewhere);
        // Another region's record of it comes back whole.
        let of_eu = Side { region: &eu, ..side };
        assert_eq!(KnownResponse::of("resp_1", &away, of_eu).at(&node, &us).1, response);
        // Another node of the region knows which one has the replica, and passes it on.
        let sibling = NodeName::from("n2");
        let beside = known.clone().at(&sibling, &us).1;
        assert_eq!(beside.home, elsewhere);
        let of_sibling = Side { node: &sibling, ..side };
        assert_eq!(KnownResponse::of("resp_1", &beside, of_sibling).at(&node, &us).1, response);
        let sessions: Vec<SessionHome> = heard.sessions.iter().map(|it| it.at(&us)).collect();
        assert_eq!(sessions, [home, there]);
        let at_eu = SessionHome { region: Some(region_identity(&us)), ..home };
        assert_eq!(heard.sessions[0].at(&eu), at_eu);
        assert_eq!(heard.sessions[1].at(&eu), home, "a replica of its own");
    }

    #[test]
    fn a_session_that_an_older_node_tells_of_has_no_tenant() {
        let text = r#"{"route":"llm","key":5,"region":"us","replica":7,"version":1}"#;
        let known: KnownSession = serde_json::from_str(text).expect("a session");
        assert_eq!(known.key(), SessionKey { session: 5, tenant: 0 });
    }
}
