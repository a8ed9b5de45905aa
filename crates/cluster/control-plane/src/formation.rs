//! Brings a node into its cluster.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::{Duration, Instant};

use spillway_cluster_state::{Actor, Command, Form, NodeSpec, Outcome, State, WIRE, admits};
use spillway_raft::{FormError, Role, Status};
use spillway_types::NodeName;

use crate::control_plane::ControlPlane;

/// Time limit of one attempt.
const LIMIT: Duration = Duration::from_secs(5);
/// Time that a leader waits for all nodes to declare that they propose operators' orders or do not.
/// After it, membership is enforced without the missing declarations.
const DECLARING_LIMIT: Duration = Duration::from_secs(30);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// Forms the cluster unless it is formed, then keeps this node's record in the state up to date.
pub(crate) async fn run(control_plane: Weak<ControlPlane>) {
    if !begin(&control_plane).await {
        return;
    }
    let begun = Instant::now();
    while let Some(this) = control_plane.upgrade() {
        let status = this.status();
        let is_late = begun.elapsed() > DECLARING_LIMIT;
        let next = this.look(|state| {
            this.next_command(state, &status)
                .or_else(|| this.next_of_members(state, &status, is_late))
        });
        // A log that has stopped is opened again; until then nothing can be proposed.
        if let Some(command) = next.filter(|_| status.role != Role::Stopped) {
            let what = command.to_string();
            match this.propose(command, Actor::Node, None, LIMIT).await.map(|done| done.outcome) {
                Ok(Outcome::Refused(refusal)) => tracing::error!(%refusal, what, "refused"),
                Ok(_) => tracing::info!(what, "agreed"),
                Err(error) => tracing::debug!(%error, what, "not agreed yet"),
            }
        }
        // Dropped before the pause, so that this task alone does not keep the node alive.
        drop(this);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Forms the cluster, or waits until this node is in it; returns false if that can't be.
async fn begin(control_plane: &Weak<ControlPlane>) -> bool {
    while let Some(this) = control_plane.upgrade() {
        // A node that joined a running cluster forms none, whatever seeds its config names.
        let (None, Some(log)) = (&this.config.join_token, this.log()) else { return true };
        match log.form(&this.config.seeds).await {
            Ok(cluster) => {
                tracing::info!(%cluster, "this node has joined its cluster");
                return true;
            }
            // Faults of the disk pass, and then there is another log.
            Err(error @ (FormError::Stopped(_) | FormError::Disk(_))) => {
                tracing::debug!(%error, "no cluster was formed yet");
            }
            Err(error) => {
                tracing::error!(%error, "no cluster can be formed");
                return false;
            }
        }
        // Dropped before the pause, so that this task alone does not keep the node alive.
        drop((this, log));
        tokio::time::sleep(PAUSE).await;
    }
    false
}

impl ControlPlane {
    /// Returns the next command that the state needs to know this node as it is; `None` if it does.
    fn next_command(&self, state: &State, status: &Status) -> Option<Command> {
        let spec = self.spec();
        let Some(from) = state.cluster() else { return self.form(status) };
        let to = status.cluster.unwrap_or(from);
        if from != to {
            // The cluster was made from a backup or from one node's folder: nodes of the old
            // cluster must not mix with this one.
            let leads = status.role == Role::Leader;
            return leads.then_some(Command::ReplaceCluster { from, to });
        }
        if state.is_retired(spec.disk) {
            // A removed node would be refused.
            return None;
        }
        let known = state.node(&self.config.name).is_some_and(|(_, node)| node.spec == spec);
        (!known).then_some(Command::RegisterNode { node: spec })
    }

    /// Returns the next command towards enforced membership; `None` if there is nothing to do, or
    /// some node is too old.
    fn next_of_members(&self, state: &State, status: &Status, is_late: bool) -> Option<Command> {
        let (own, _) = state.node(&self.config.name)?;
        let declare = Command::DeclareOperators { is_operator: self.config.is_operator };
        if admits(state, &declare).is_err() {
            return None;
        }
        if !state.is_decided(own) && !state.is_enforced() {
            return Some(declare);
        }
        let nodes = || state.records().nodes.iter();
        // The node that formed the cluster copied its own certificate fingerprint for all others:
        // equal ones were not written by their own nodes yet.
        let prints: BTreeSet<_> = nodes().map(|(_, node)| node.spec.fingerprint).collect();
        let have_all_spoken = prints.len() == nodes().count();
        let are_all_decided = nodes().all(|(id, _)| state.is_decided(*id));
        let is_due = have_all_spoken && (are_all_decided || is_late);
        if !state.is_enforced() {
            let leads = status.role == Role::Leader;
            return (leads && is_due).then_some(Command::EnforceMembership);
        }
        let right = state.records().node_rights.get(&own);
        let is_said = right.is_some_and(|right| self.config.is_operator || right.is_edge);
        (!is_said).then_some(declare)
    }

    /// Returns the first command of a cluster, which only the leader makes. It names the nodes in
    /// the log; each node reports its own address afterwards.
    fn form(&self, status: &Status) -> Option<Command> {
        let cluster = status.cluster.filter(|_| status.role == Role::Leader)?;
        let own = self.spec();
        let nodes = status.members.values().map(|member| NodeSpec {
            name: member.name.clone(),
            region: member.region.clone(),
            address: self.address_of(&member.name).unwrap_or_else(|| own.address.clone()),
            disk: member.disk,
            ..own.clone()
        });
        Some(Command::Form(Form { cluster, nodes: nodes.collect() }))
    }

    fn address_of(&self, name: &NodeName) -> Option<String> {
        let peers = self.link.peers();
        peers.iter().find(|peer| peer.identity.node() == name).map(|peer| peer.address.clone())
    }

    /// Returns this node's description of itself.
    pub(crate) fn spec(&self) -> NodeSpec {
        NodeSpec {
            name: self.config.name.clone(),
            region: self.config.region.clone(),
            address: self.config.advertise.clone(),
            disk: self.disk(),
            fingerprint: self.config.fingerprint,
            wire_oldest: 1,
            wire_newest: WIRE,
        }
    }
}
