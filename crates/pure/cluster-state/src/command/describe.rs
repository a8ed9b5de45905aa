//! Commands in words, for the audit trail. No secret is ever part of them.

use std::fmt;

use crate::{Command, NodeSpec, RecordKey, TokenId};

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(form) => {
                write!(f, "form cluster {} of {} nodes", form.cluster, form.nodes.len())
            }
            Self::ReplaceCluster { from, to } => write!(f, "replace cluster id {from} by {to}"),
            Self::RegisterNode { node } => registration(f, node, None),
            Self::JoinNode { node, token } => registration(f, node, Some(&token.id)),
            Self::SetNodeRole { node, role, .. } => write!(f, "set role of node {node} to {role}"),
            Self::SetRegionState { region, state, .. } => {
                write!(f, "set state of region {region} to {state}")
            }
            Self::SetRegionWeight { region, weight_permille, .. } => {
                // Audit records are a part of the state, which has to be the same on nodes of all
                // versions: who shows it writes percent.
                write!(f, "set weight of region {region} to {weight_permille} permille")
            }
            Self::RegisterReplica { id, spec, .. } => {
                write!(f, "register replica {id} at {}", spec.url)
            }
            Self::SetReplicaState { id, state, .. } => {
                write!(f, "set state of replica {id} to {state}")
            }
            Self::SetReplicaWeight { id, weight: Some(weight), .. } => {
                write!(f, "set weight of replica {id} to {weight}")
            }
            Self::SetReplicaWeight { id, .. } => write!(f, "reset weight of replica {id}"),
            Self::RenewLeases { region, leases } => {
                write!(f, "renew {} leases of {region}", leases.len())
            }
            Self::ExpireLeases { region } => write!(f, "expire leases of {region}"),
            Self::ReportHealth { region, observations, .. } => {
                write!(f, "report health of {} replicas of {region}", observations.len())
            }
            Self::RevokeKey { key, .. } => write!(f, "revoke key {key}"),
            Self::Put { item: crate::Item::Setting(name, value), .. } => {
                write!(f, "put setting {name} = {value}")
            }
            Self::Put { item, .. } => write!(f, "put {}", item.key()),
            Self::Remove { key, .. } => write!(f, "remove {key}"),
            Self::HotBlocks { region, delta, .. } => {
                let (enter, leave) = (delta.enter.len(), delta.leave.len());
                write!(f, "report {enter} hot blocks of {region}, {leave} no more")
            }
            Self::RotatePrefixKey { .. } => write!(f, "rotate the key of prompts"),
            Self::LeaseShares { region, said } => {
                let (lines, node) = (said.lines.len(), &said.run.node);
                write!(f, "lease shares of {lines} limits to {node} of {region}")
            }
            Self::DeclareOperators { is_operator } => {
                write!(f, "declare {} of operators' orders", sort(*is_operator))
            }
            Self::EnforceMembership => write!(f, "enforce membership"),
            Self::SetNodeOperators { node, is_operator, .. } => {
                write!(f, "{} operators' orders from node {node}", verb(*is_operator))
            }
            Self::RecordOrder { what, .. } => f.write_str(what),
            Self::ChangeRollout { split, change, why, .. } => {
                write!(f, "{} rollout of split {split}", change.name().replace('_', " "))?;
                if why.is_empty() { Ok(()) } else { write!(f, ": {why}") }
            }
            Self::DeclareCountry { region, country } => {
                write!(f, "declare that region {region} is in {country}")
            }
        }
    }
}

fn registration(
    f: &mut fmt::Formatter<'_>,
    node: &NodeSpec,
    token: Option<&TokenId>,
) -> fmt::Result {
    write!(f, "register node {} of {} at {}", node.name, node.region, node.address)?;
    token.map_or(Ok(()), |id| write!(f, " by join token {id}"))
}

fn sort(is_operator: bool) -> &'static str {
    if is_operator { "a node" } else { "no node" }
}

fn verb(is_operator: bool) -> &'static str {
    if is_operator { "allow" } else { "deny" }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(id) => write!(f, "node {id}"),
            Self::Region(name) => write!(f, "region {name}"),
            Self::Replica(id) => write!(f, "replica {id}"),
            Self::Lease(id) => write!(f, "lease of replica {id}"),
            Self::Health(id) => write!(f, "health of replica {id}"),
            Self::Model(name) => write!(f, "model {name}"),
            Self::Route(name) => write!(f, "route {name}"),
            Self::Split(name) => write!(f, "split {name}"),
            Self::Limit(scope) => write!(f, "limit of {scope}"),
            Self::Tenant(name) => write!(f, "tenant {name}"),
            Self::Key(id) => write!(f, "key {id}"),
            Self::JoinToken(id) => write!(f, "join token {id}"),
            Self::Setting(name) => write!(f, "setting {name}"),
            Self::NodeRight(id) => write!(f, "right of node {id}"),
            Self::TokenOrigin(id) => write!(f, "origin of join token {id}"),
            Self::RemovedNode(name) => write!(f, "removed node {name}"),
            Self::RevokedCertificate(serial) => write!(f, "revoked certificate {serial}"),
        }
    }
}
