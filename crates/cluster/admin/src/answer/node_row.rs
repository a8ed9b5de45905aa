//! Nodes in the table of an overview.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::{MemberInfo, StatusAnswer};
use crate::overview::{NodeOverview, NodeProblem};

/// A node in a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NodeRow {
    /// Name of the node.
    pub(crate) name: String,
    /// Region of the node.
    pub(crate) region: String,
    /// `leader`, `voter`, `learner`, or `no log` for a node that follows none.
    pub(crate) role: String,
    /// `this node`, `up`, `silent` or `never heard`.
    pub(crate) state: String,
    /// Time since its connection was lost, in milliseconds; null unless it is silent.
    pub(crate) silent_ms: Option<u64>,
    /// Error of the last attempt to connect, or the reason why the log of a node that is heard has
    /// stopped; null without either.
    pub(crate) fault: Option<String>,
    /// Entries of the log that it has still to carry out; null if unknown.
    pub(crate) lag_entries: Option<u64>,
    /// Version of its software; null if unknown.
    pub(crate) version: Option<String>,
    /// Round-trip time in milliseconds; null if unknown, or for this node.
    pub(crate) rtt_ms: Option<f64>,
    /// Time by which its clock is ahead of this node's, in milliseconds; null if unknown.
    pub(crate) clock_ahead_ms: Option<i64>,
    /// Most urgent problems that the node reports of itself; of this node, see `problems` beside
    /// `nodes`.
    pub(crate) problems: Vec<NodeProblem>,
}

/// Returns a row for each node that is a member of the log or linked to this one, this one first.
pub(super) fn rows(node: &NodeOverview, log: Option<&StatusAnswer>) -> Vec<NodeRow> {
    let members: &[MemberInfo] = log.map(|log| log.members.as_slice()).unwrap_or_default();
    let member = |name: &str| members.iter().find(|member| member.name == name);
    let role = |name: &str| role_of(member(name), log);
    let applied = |log: &StatusAnswer| log.applied_index;
    // An index that any node has applied was committed.
    let peers = node.peers.iter().map(|peer| peer.applied_index);
    let newest = log.and_then(|log| log.committed_index.max(applied(log)));
    let newest = peers.chain([newest]).flatten().max();
    let lag = |applied: Option<u64>| Some(newest?.saturating_sub(applied?));
    let own = NodeRow {
        name: node.name.clone(),
        region: node.region.clone(),
        role: role(&node.name),
        state: "this node".to_owned(),
        lag_entries: lag(log.and_then(applied)),
        version: Some(node.version.clone()),
        clock_ahead_ms: Some(0),
        ..NodeRow::default()
    };
    let peers = node.peers.iter().map(|peer| NodeRow {
        name: peer.name.clone(),
        region: peer.region.clone(),
        role: role(&peer.name),
        state: match (peer.is_heard, peer.silent_ms) {
            (true, _) => "up",
            (false, Some(_)) => "silent",
            (false, None) => "never heard",
        }
        .to_owned(),
        silent_ms: peer.silent_ms,
        fault: peer.fault.clone(),
        // The leader knows the log of a silent node.
        lag_entries: lag(peer
            .applied_index
            .or_else(|| member(&peer.name).and_then(|it| it.matched_index))),
        version: peer.version.clone(),
        rtt_ms: peer.rtt_ms,
        clock_ahead_ms: peer.clock_ahead_ms,
        problems: peer.problems.clone(),
    });
    let is_known = |name: &str| name == node.name || node.peers.iter().any(|it| it.name == name);
    let others = members.iter().filter(|it| !it.name.is_empty() && !is_known(&it.name));
    let others = others.map(|member| NodeRow {
        name: member.name.clone(),
        region: member.region.clone(),
        role: role(&member.name),
        state: "never heard".to_owned(),
        lag_entries: lag(member.matched_index),
        ..NodeRow::default()
    });
    std::iter::once(own).chain(peers).chain(others).collect()
}

fn role_of(member: Option<&MemberInfo>, log: Option<&StatusAnswer>) -> String {
    let leader = log.and_then(|log| log.leader.as_ref());
    let role = match member {
        Some(member) if leader.is_some_and(|it| it.node == member.name) => "leader",
        Some(member) if member.is_voter => "voter",
        Some(_) => "learner",
        None => "no log",
    };
    role.to_owned()
}
