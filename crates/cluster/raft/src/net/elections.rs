//! Record of elections, as one node has seen them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spillway_types::NodeId;
use tokio::time::Instant;

use crate::ids::Member;
use crate::wire::Ballot;

/// The sets of voters, and each voter.
pub(crate) type Voters = (Vec<BTreeSet<NodeId>>, Vec<(NodeId, Member)>);

/// Shortest time between two handovers because a member refuses the leader.
const DISPUTE_PERIOD: Duration = Duration::from_secs(60);
/// Shortest time between two warnings about claims that are refused.
const WARN_PERIOD: Duration = Duration::from_secs(10);

/// Elections as this node has seen them.
#[derive(Debug, Default)]
pub(crate) struct Elections(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Latest ballot that got this node's vote, or was proven.
    granted: Option<Ballot>,
    /// Time of the last question about each sender: a sender that claims much asks for nothing more.
    asked: BTreeMap<NodeId, Instant>,
    /// Member that refuses this leader with a later ballot.
    disputed_by: Option<NodeId>,
    handed_over: Option<Instant>,
    warned: Option<Instant>,
}

impl Elections {
    /// Notes that this node gave `ballot` its vote, or that its election is proven.
    pub(crate) fn grant(&self, ballot: Ballot) {
        self.seen().granted = Some(ballot);
    }

    /// Returns true if a warning about a refused claim is due.
    pub(crate) fn is_news(&self) -> bool {
        due(&mut self.seen().warned, WARN_PERIOD)
    }

    /// Notes that a member refuses this node, which leads with a majority.
    pub(crate) fn dispute(&self, by: NodeId) {
        self.seen().disputed_by = Some(by);
    }

    pub(crate) fn granted(&self) -> Option<Ballot> {
        self.seen().granted
    }

    pub(crate) fn may_ask(&self, of: NodeId, pause: Duration) -> bool {
        let mut seen = self.seen();
        // Beyond the members of any cluster; a restart of the record only allows more questions.
        if seen.asked.len() > 4_096 {
            seen.asked.clear();
        }
        let at = seen.asked.get(&of).copied();
        let may = at.is_none_or(|at| at.elapsed() >= pause);
        if may {
            seen.asked.insert(of, Instant::now());
        }
        may
    }

    /// Returns the member of the latest dispute, once in [`DISPUTE_PERIOD`].
    pub(crate) fn take_dispute(&self) -> Option<NodeId> {
        let mut seen = self.seen();
        let by = seen.disputed_by.take()?;
        due(&mut seen.handed_over, DISPUTE_PERIOD).then_some(by)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if `period` has passed since the last time, and notes this one.
fn due(last: &mut Option<Instant>, period: Duration) -> bool {
    let is_due = last.is_none_or(|at| at.elapsed() >= period);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}
