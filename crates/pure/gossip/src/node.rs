//! Other nodes.

use std::time::Instant;

use spillway_types::RegionName;

use crate::claim::Rival;
use crate::entry::{ModelEntry, ReplicaEntry, SiblingEntry};
use crate::failure_detector::FailureDetector;
use crate::mirror::Mirror;
use crate::name_id::NameId;
use crate::{GossipConfig, GossipMember};

/// Another node of the own region.
#[derive(Debug)]
pub(crate) struct Sibling {
    pub(crate) detector: FailureDetector,
    pub(crate) mirror: Mirror<SiblingEntry>,
    /// Version of our report that the node had when it sent what `mirror` shows whole.
    pub(crate) echoed: Option<u64>,
    pub(crate) standing: NodeStanding,
    /// True if a datagram arrived from the node so recently that it could be the speaker.
    pub(crate) may_speak: bool,
}

/// Liveness of a node of the own region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeStanding {
    /// No datagram of the node arrived yet, but one may come. => (Live | Gone)
    Expected,
    /// Datagrams of the node arrive. => Gone
    Live,
    /// The node has been silent for so long that its claims are void. => Live
    Gone,
}

impl Sibling {
    pub(crate) fn new(member: &GossipMember, config: &GossipConfig, now: Instant) -> Self {
        Self {
            detector: FailureDetector::new(member, now),
            // Lines of a sibling are about replicas and about models: room for both.
            mirror: Mirror::new(config.entries_max.saturating_mul(2)),
            echoed: None,
            standing: NodeStanding::Expected,
            may_speak: true,
        }
    }

    /// Forgets the reports of an earlier incarnation.
    pub(crate) fn start_over(&mut self, config: &GossipConfig) {
        self.mirror = Mirror::new(config.entries_max.saturating_mul(2));
        self.echoed = None;
    }

    /// Evaluates the node's standing again. Returns true if the standing changed.
    pub(crate) fn settle(&mut self, config: &GossipConfig, now: Instant) -> bool {
        self.may_speak = now < self.detector.silent_at(config.sibling_silence_ms);
        let standing = if now >= self.detector.silent_at(config.silence_ms) {
            NodeStanding::Gone
        } else if self.detector.heard_at().is_some() {
            NodeStanding::Live
        } else {
            NodeStanding::Expected
        };
        standing != std::mem::replace(&mut self.standing, standing)
    }

    /// Returns the moments at which the standing has to be evaluated again unless a datagram of the
    /// node arrives before.
    pub(crate) fn timeouts(&self, config: &GossipConfig) -> impl Iterator<Item = Instant> {
        let gone = (self.standing != NodeStanding::Gone).then_some(config.silence_ms);
        let mute = self.may_speak.then_some(config.sibling_silence_ms);
        gone.into_iter().chain(mute).map(|silence_ms| self.detector.silent_at(silence_ms))
    }

    /// Returns everything besides the entries that decides on claims: the standing, the echoed
    /// version, and true if our datagrams do not reach the node.
    pub(crate) fn bearing(&self, deaf_ms: u32) -> (NodeStanding, Option<u64>, bool) {
        (self.standing, self.heard_echo(), self.detector.is_deaf(deaf_ms))
    }

    /// Returns the version of our report that the node had, if the copy of its report is whole.
    fn heard_echo(&self) -> Option<u64> {
        self.echoed.filter(|_| self.mirror.is_whole())
    }

    /// Returns the node's line about a replica.
    pub(crate) fn replica(&self, id: NameId) -> Option<&ReplicaEntry> {
        match self.mirror.entry(id)? {
            SiblingEntry::Replica(replica) => Some(replica),
            SiblingEntry::Share(_) => None,
        }
    }

    /// Returns the node's claim of a replica; a claim of nothing if it reported none.
    pub(crate) fn rival(&self, id: NameId) -> Rival {
        let told = self.replica(id);
        Rival {
            claim: told.map(|replica| replica.claim).unwrap_or_default(),
            in_flight: told.map_or(0, |replica| replica.in_flight),
            echoed: self.heard_echo(),
        }
    }
}

/// A node of another region.
#[derive(Debug)]
pub(crate) struct Foreigner {
    pub(crate) region: RegionName,
    pub(crate) detector: FailureDetector,
    pub(crate) mirror: Mirror<ModelEntry>,
}

impl Foreigner {
    pub(crate) fn new(member: &GossipMember, config: &GossipConfig, now: Instant) -> Self {
        Self {
            region: member.region.clone(),
            detector: FailureDetector::new(member, now),
            mirror: Mirror::new(config.entries_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::datagram::Report;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test needs some starting moment")]
    fn what_an_earlier_life_echoed_counts_no_more() {
        let now = Instant::now();
        let mut sibling = Sibling::new(&GossipMember::new("a", "r"), &GossipConfig::default(), now);
        let nothing = Report {
            age_ms: 0,
            version: 1,
            digest: [0; 4],
            whole: true,
            more: false,
            entries: Vec::new(),
        };
        sibling.mirror.take(now, nothing.clone());
        sibling.echoed = Some(9);
        let id = NameId::of_replica(&"gpu".into());
        assert_eq!(sibling.rival(id).echoed, Some(9));
        sibling.mirror.take(now, Report { version: 2, digest: [1; 4], ..nothing.clone() });
        assert_eq!(sibling.rival(id).echoed, None, "while something is missing");
        sibling.start_over(&GossipConfig::default());
        sibling.mirror.take(now, nothing);
        assert_eq!(sibling.rival(id).echoed, None, "of the life before");
    }
}
