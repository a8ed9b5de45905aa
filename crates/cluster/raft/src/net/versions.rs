//! Up to which version each other node reads the log's messages.
//!
//! A node asks each other node by itself, and again for each connection, since the other node may
//! have been started in another version. To a node that has not answered, it sends
//! [`WireVersion::OLDEST`], which all nodes read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use openraft::async_runtime::watch::WatchReceiver;
use spillway_types::{NodeId, NodeName};
use tokio::time::{Instant, sleep};

use super::context::Context;
use crate::ids::Member;
use crate::machine::Machine;
use crate::state_machine::Raft;
use crate::wire::{Answer, Call, WireVersion};

/// Pause before a node that has not answered, or uses the oldest version, is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause between two searches for nodes to ask.
const LOOK: Duration = Duration::from_millis(50);

/// Up to which version each other node reads the log's messages.
#[derive(Debug)]
pub(crate) struct Versions {
    own: WireVersion,
    others: Mutex<BTreeMap<NodeName, Other>>,
}

#[derive(Clone, Copy, Debug)]
struct Other {
    version: WireVersion,
    /// Time of the last question.
    asked: Instant,
}

impl Versions {
    pub(crate) fn new(own: WireVersion) -> Self {
        Self { own, others: Mutex::default() }
    }

    /// Returns the newest version that this node uses.
    pub(crate) fn own(&self) -> WireVersion {
        self.own
    }

    /// Returns true if this node knows [`Call::Compare`], as the older version of tests does not.
    pub(crate) fn compares(&self) -> bool {
        !cfg!(test) || self.own != WireVersion::OLDEST
    }

    /// Returns the version to use with a node.
    pub(crate) fn with(&self, name: &NodeName) -> WireVersion {
        self.others().get(name).map_or(WireVersion::OLDEST, |other| other.version)
    }

    /// Notes the newest version that a node has reported.
    pub(crate) fn receive(&self, name: &NodeName, number: u16) {
        let other = Other { version: self.own.common(number), asked: Instant::now() };
        self.others().insert(name.clone(), other);
    }

    /// Returns true if a node whose connection stands since `connected` has to be asked, and notes
    /// the question.
    fn is_due(&self, name: &NodeName, connected: Instant) -> bool {
        let mut others = self.others();
        let now = Instant::now();
        let is_due = match others.get(name) {
            None => true,
            Some(other) if other.asked < connected => true,
            Some(other) => other.version == WireVersion::OLDEST && other.asked + PAUSE <= now,
        };
        if is_due {
            // Until it answers: the program behind a new connection may be an older one.
            others.insert(name.clone(), Other { version: WireVersion::OLDEST, asked: now });
        }
        is_due
    }

    fn others(&self) -> MutexGuard<'_, BTreeMap<NodeName, Other>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks all members, for as long as it is polled.
pub(crate) async fn ask_all<M: Machine>(context: Arc<Context>, raft: Raft<M>) {
    if context.versions.own() == WireVersion::OLDEST {
        // Whatever the others speak, this node has one version for all of them.
        return;
    }
    loop {
        let members = raft.metrics().borrow_watched().membership_config.clone();
        let connected: BTreeMap<NodeName, Duration> = context
            .link
            .peers()
            .into_iter()
            .filter_map(|peer| Some((peer.identity.node().clone(), peer.control?.age)))
            .collect();
        let now = Instant::now();
        let due = members.membership().nodes().filter(|(id, member)| {
            let age = connected.get(&member.name).copied();
            let since = age.and_then(|age| now.checked_sub(age));
            let is_other = **id != context.node;
            is_other && since.is_some_and(|since| context.versions.is_due(&member.name, since))
        });
        join_all(due.map(|(id, member)| ask(&context, *id, member))).await;
        sleep(LOOK).await;
    }
}

async fn ask(context: &Context, id: NodeId, member: &Member) {
    let call = Call::Speaks(context.versions.own().number());
    let limit = 2 * context.timing().heartbeat;
    match context.call((id, member), &call, limit).await {
        Ok(Answer::Speaks(number)) => context.versions.receive(&member.name, number),
        other => tracing::debug!(peer = %member.name, ?other, "its version is unknown"),
    }
}
