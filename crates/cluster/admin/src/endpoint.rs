//! Every endpoint: the one table for routing, rights and the OpenAPI document.

use std::sync::LazyLock;

use http::Method;
use spillway_cluster_state::{RegionState, ReplicaState};
use spillway_rollout::RolloutChange;

use crate::config::AdminRole;
use crate::resource::Resource;

/// An endpoint: path, method, operation, and the role that it needs.
#[derive(Debug)]
pub(crate) struct AdminEndpoint {
    pub(crate) method: Method,
    /// Path, with `{names}` for the variable parts.
    pub(crate) path: String,
    pub(crate) operation: Operation,
    pub(crate) role: AdminRole,
    /// Query parameters that the endpoint takes.
    pub(crate) query: &'static [&'static str],
    pub(crate) summary: String,
}

/// Operation of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    List(Resource),
    Show(Resource),
    Put(Resource),
    Patch(Resource),
    Remove(Resource),
    CreateKey,
    CreateJoinToken,
    RevokeKey,
    SetNodeOperators,
    TrustDisk,
    SetRegionState(RegionState),
    SetRegionWeight,
    SetReplicaState(ReplicaState),
    SetReplicaWeight,
    ChangeRollout(RolloutChange),
    Rollout,
    RolloutGate,
    Status,
    Leader,
    TransferLeader,
    Audit,
    Watch,
    Live,
    Backup,
    Explain,
    Steering,
    Node,
    World,
    History,
    Fleet,
    Routes,
    Usage,
    Requests,
    Reasons,
    Trie,
    RotatePrefixKey,
    OpenApi,
}

const READ: &[&str] = &["consistency"];
const LIST: &[&str] = &["consistency", "limit", "after"];
const TRIE: &[&str] = &["consistency", "top"];
const REQUESTS: &[&str] = &[
    "scope", "limit", "after", "failed", "id", "tenant", "key", "model", "route", "replica",
    "region", "reason", "status", "code",
];
const HISTORY: &[&str] = &["scope", "region"];
const USAGE: &[&str] = &["since", "until", "tenant", "key", "model", "by"];
const WRITE: &[&str] = &["dry_run"];
const PUT: &[&str] = &["dry_run", "create"];

/// All endpoints.
pub(crate) static ENDPOINTS: LazyLock<Vec<AdminEndpoint>> = LazyLock::new(|| {
    let records = Resource::ALL.iter().copied().flat_map(of_resource);
    records.chain(actions()).chain(of_node()).collect()
});

/// Result of looking up a path: an endpoint with the values of its `{names}`, or the methods that
/// the path takes.
pub(crate) enum EndpointMatch {
    AdminEndpoint(&'static AdminEndpoint, Vec<String>),
    OtherMethods(Vec<&'static Method>),
    Nothing,
}

/// Looks a path up. `segments` are its decoded parts.
pub(crate) fn find(method: &Method, segments: &[String]) -> EndpointMatch {
    let mut others = Vec::new();
    for endpoint in ENDPOINTS.iter() {
        let Some(parts) = matched(&endpoint.path, segments) else { continue };
        if endpoint.method == method {
            return EndpointMatch::AdminEndpoint(endpoint, parts);
        }
        // The path exists with another method: 405 instead of 404.
        others.push(&endpoint.method);
    }
    if others.is_empty() { EndpointMatch::Nothing } else { EndpointMatch::OtherMethods(others) }
}

fn matched(path: &str, segments: &[String]) -> Option<Vec<String>> {
    let wanted: Vec<&str> = path.split('/').skip(1).collect();
    if wanted.len() != segments.len() {
        return None;
    }
    let mut parts = Vec::new();
    for (wanted, segment) in wanted.into_iter().zip(segments) {
        // A part such as `{region}` takes any segment.
        if wanted.starts_with('{') {
            parts.push(segment.clone());
        } else if wanted != segment {
            return None;
        }
    }
    Some(parts)
}

impl AdminEndpoint {
    fn read(path: impl Into<String>, operation: Operation, query: &'static [&'static str]) -> Self {
        let role = AdminRole::Read;
        let (method, path, summary) = (Method::GET, path.into(), String::new());
        Self { method, path, operation, role, query, summary }
    }

    fn write(
        method: Method,
        path: impl Into<String>,
        operation: Operation,
        role: AdminRole,
    ) -> Self {
        let (path, summary) = (path.into(), String::new());
        Self { method, path, operation, role, query: WRITE, summary }
    }

    /// Returns true if requests change something, or take the whole state away.
    pub(crate) fn is_order(&self) -> bool {
        self.role > AdminRole::Read
    }

    fn about(self, summary: impl Into<String>) -> Self {
        Self { summary: summary.into(), ..self }
    }
}

fn of_resource(resource: Resource) -> Vec<AdminEndpoint> {
    let (name, one) = (resource.name(), resource.item_path());
    let admin = AdminRole::Admin;
    let mut all = vec![
        AdminEndpoint::read(format!("/v1/{name}"), Operation::List(resource), LIST)
            .about(format!("Lists {name}, a page at a time.")),
        AdminEndpoint::read(one.clone(), Operation::Show(resource), READ)
            .about(format!("Shows one of {name}.")),
        AdminEndpoint::write(Method::DELETE, one.clone(), Operation::Remove(resource), admin)
            .about(format!("Removes one of {name}, with what belongs to it.")),
    ];
    if resource.is_writable() {
        let write = |method, operation| AdminEndpoint {
            query: PUT,
            ..AdminEndpoint::write(method, one.clone(), operation, admin)
        };
        let put = write(Method::PUT, Operation::Put(resource));
        all.push(put.about(format!("Writes one of {name} as a whole.")));
        let patch = write(Method::PATCH, Operation::Patch(resource));
        all.push(patch.about(format!("Writes the named fields of one of {name}.")));
    }
    all
}

fn actions() -> Vec<AdminEndpoint> {
    let act =
        |path: &str, operation, role| AdminEndpoint::write(Method::POST, path, operation, role);
    let operate = |path: &str, operation| act(path, operation, AdminRole::Operate);
    let admin = |path: &str, operation| act(path, operation, AdminRole::Admin);
    let create = |path: &str, operation| AdminEndpoint { query: PUT, ..admin(path, operation) };
    let region = Operation::SetRegionState;
    let replica = Operation::SetReplicaState;
    let rollout = |verb: &str, change| {
        operate(&format!("/v1/splits/{{split}}/{verb}"), Operation::ChangeRollout(change))
    };
    vec![
        operate("/v1/regions/{region}/drain", region(RegionState::Draining))
            .about("Lets a region take no new work from elsewhere."),
        operate("/v1/regions/{region}/evacuate", region(RegionState::Evacuating))
            .about("Sends all work of a region elsewhere and its votes with it."),
        operate("/v1/regions/{region}/undrain", region(RegionState::Active))
            .about("Gives a region work again."),
        operate("/v1/regions/{region}/weight", Operation::SetRegionWeight)
            .about("Sets how much of the spilled work a region takes."),
        operate("/v1/replicas/{region}/{replica}/drain", replica(ReplicaState::Draining))
            .about("Gives a replica no new work."),
        operate("/v1/replicas/{region}/{replica}/undrain", replica(ReplicaState::Active))
            .about("Gives a replica work again."),
        operate("/v1/replicas/{region}/{replica}/weight", Operation::SetReplicaWeight)
            .about("Sets a replica's share of the work, or gives it its own back."),
        AdminEndpoint::read("/v1/splits/{split}/rollout", Operation::Rollout, READ)
            .about("Shows a split's rollout and the comparison of its arms, of all nodes."),
        // POST is what deployment tools send: it writes nothing.
        AdminEndpoint {
            query: READ,
            ..act("/v1/splits/{split}/gate", Operation::RolloutGate, AdminRole::Read)
        }
        .about("Says by its status if a split's rollout may go on: 200, or 409."),
        rollout("promote", RolloutChange::Advance)
            .about("Gives the candidate of a split's rollout the share of the next step."),
        rollout("complete", RolloutChange::Complete)
            .about("Gives the candidate of a split's rollout the share of the last step."),
        rollout("pause", RolloutChange::Pause)
            .about("Keeps a split's rollout at its present step. The guard still watches."),
        rollout("resume", RolloutChange::Resume).about("Lets a paused rollout go on."),
        rollout("roll-back", RolloutChange::RollBack)
            .about("Takes all traffic from the candidate of a split's rollout."),
        rollout("restart", RolloutChange::Restart)
            .about("Begins a split's rollout again with its first step."),
        operate("/v1/trie/rotate", Operation::RotatePrefixKey).about(
            "Switches to the next key for hashing prompts; knowledge of caches is learned again.",
        ),
        create("/v1/keys", Operation::CreateKey)
            .about("Makes a key. Its secret is in the answer and nowhere else."),
        admin("/v1/keys/{key}/revoke", Operation::RevokeKey).about("Ends a key for good."),
        admin("/v1/nodes/{node}/operators", Operation::SetNodeOperators)
            .about("Lets operators' orders come from a node, or forbids it."),
        // It is no entry of the log: where it is needed, there is no leader.
        AdminEndpoint { query: &[], ..admin("/v1/nodes/{node}/trust-disk", Operation::TrustDisk) }
            .about("Has a node vote with a disk from the past. Only that node takes it."),
        create("/v1/join-tokens", Operation::CreateJoinToken)
            .about("Makes a join token. Its secret is in the answer and nowhere else."),
    ]
}

fn of_node() -> Vec<AdminEndpoint> {
    let read = AdminEndpoint::read;
    // A hand-over is no entry of the log, so there is nothing that a dry run could show.
    let transfer = AdminEndpoint {
        query: &[],
        ..AdminEndpoint::write(
            Method::POST,
            "/v1/leader",
            Operation::TransferLeader,
            AdminRole::Operate,
        )
    };
    // Only sent as POST for its body: it writes nothing.
    let explain = AdminEndpoint {
        query: &[],
        ..AdminEndpoint::write(Method::POST, "/v1/explain", Operation::Explain, AdminRole::Read)
    };
    let backup =
        AdminEndpoint { role: AdminRole::Admin, ..read("/v1/backup", Operation::Backup, &[]) };
    vec![
        read("/v1/status", Operation::Status, &[]).about("Shows what this node knows of the log."),
        read("/v1/leader", Operation::Leader, &[])
            .about("Shows who leads, as far as this node knows."),
        transfer.about("Hands the lead over. Only the leader does."),
        read("/v1/audit", Operation::Audit, &["consistency", "limit", "after", "trail"])
            .about("Shows who did what, newest first."),
        read("/v1/watch", Operation::Watch, &["after"])
            .about("Tells what changes as server-sent events, from an index on."),
        read("/v1/live", Operation::Live, &[])
            .about("Tells each second how this node, its replicas and all regions are, as events."),
        read("/v1/trie", Operation::Trie, TRIE)
            .about("Shows which beginnings of prompts are hot in which region, by keyed hashes."),
        read("/v1/steering", Operation::Steering, &[])
            .about("Shows to which regions clients are to be sent, as far as this node knows."),
        read("/v1/node", Operation::Node, &[])
            .about("Shows this node, the nodes of its cluster, and in a sentence how they are."),
        read("/v1/world", Operation::World, &[]).about(
            "Shows every region, as far as this node knows: load, requests there, distance.",
        ),
        read("/v1/history", Operation::History, HISTORY).about(
            "Shows figures of the requests of this node, a region or all over the last ten minutes.",
        ),
        read("/v1/fleet", Operation::Fleet, &[])
            .about("Shows the replicas of every region with their load, as nodes there know them."),
        read("/v1/effective-routes", Operation::Routes, &[])
            .about("Shows the routes that this node uses, of its config file and of the cluster."),
        read("/v1/usage", Operation::Usage, USAGE)
            .about("Shows requests, tokens and cost by tenant, key and model, of all nodes."),
        read("/v1/requests", Operation::Requests, REQUESTS)
            .about("Shows the requests that ended last on this node or on all, newest first."),
        read("/v1/reasons", Operation::Reasons, &[])
            .about("Shows what the reasons in records, metrics and explanations mean."),
        explain.about("Says where a request would go from this node, and why. Sends it nowhere."),
        backup.about("Streams the state, for `spillway restore`."),
        read("/v1/openapi.json", Operation::OpenApi, &[]).about("Shows this document."),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(path: &str) -> Vec<String> {
        path.split('/').skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn every_path_leads_to_its_own_endpoint() {
        for endpoint in ENDPOINTS.iter() {
            match find(&endpoint.method, &segments(&endpoint.path)) {
                EndpointMatch::AdminEndpoint(found, _) => {
                    assert!(std::ptr::eq(found, endpoint), "{endpoint:?}");
                }
                _ => panic!("{endpoint:?}"),
            }
            assert!(!endpoint.summary.is_empty(), "{endpoint:?}");
        }
    }

    #[test]
    fn what_stands_in_the_path_comes_along() {
        let EndpointMatch::AdminEndpoint(endpoint, parts) =
            find(&Method::POST, &segments("/v1/replicas/eu/a/drain"))
        else {
            panic!("not found")
        };
        assert_eq!(endpoint.operation, Operation::SetReplicaState(ReplicaState::Draining));
        assert_eq!(parts, ["eu", "a"]);
        assert!(matches!(find(&Method::GET, &segments("/v1/nothing")), EndpointMatch::Nothing));
        assert!(matches!(
            find(&Method::GET, &segments("/v1/nodes/")),
            EndpointMatch::AdminEndpoint(..)
        ));
        let EndpointMatch::OtherMethods(methods) = find(&Method::POST, &segments("/v1/keys/k"))
        else {
            panic!("another method")
        };
        assert_eq!(methods, [&Method::GET, &Method::DELETE, &Method::PUT, &Method::PATCH]);
    }

    #[test]
    fn who_reads_changes_nothing() {
        for endpoint in ENDPOINTS.iter() {
            let asks = matches!(endpoint.operation, Operation::Explain | Operation::RolloutGate);
            let reads = endpoint.method == Method::GET || asks;
            let is_backup = endpoint.operation == Operation::Backup;
            assert_eq!(endpoint.role == AdminRole::Read, reads && !is_backup, "{endpoint:?}");
        }
    }
}
