//! Steering of clients by node and region, reported beside their load.
//!
//! Each node reports to the others of its region if it takes clients; the region's speaker reports
//! to all nodes elsewhere if the region does. One byte that is repeated needs neither versions nor
//! questions. These datagrams have a kind of their own: a node of an earlier release drops them and
//! loses nothing else, and a node that sends none counts as taking clients.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spillway_codec::{Wire, decode, encode};
use spillway_types::{NodeName, RegionName, Steering};

use crate::GossipError;
use crate::time::{is_forgotten, ms_since};

/// Time after which an unchanged state is sent again, milliseconds.
const REPEAT_MS: u32 = 500;
/// Age from which a report is not used any more, milliseconds: nine repetitions are lost by then.
const AGE_MS_MAX: u32 = 5_000;

/// Steering of nodes and regions that this node knows, and state of its own reports.
#[derive(Debug)]
pub struct SteeringGossip {
    region: RegionName,
    incarnation: u64,
    seq: u64,
    inside: Telling,
    outside: Telling,
    /// Last report of each node: about itself in the own region, about its region elsewhere.
    heard: BTreeMap<NodeName, SteeringReport>,
}

/// Last state that was sent, and its repetition.
#[derive(Debug, Default)]
struct Telling {
    last: Option<(Steering, Instant)>,
    is_repeated: bool,
}

#[derive(Debug)]
struct SteeringReport {
    region: RegionName,
    newest: (u64, u64),
    steering: Steering,
    at: Instant,
}

impl SteeringGossip {
    /// Creates the gossip of a node of `region` that has received nothing yet. `incarnation` has to
    /// be larger than at any earlier start of this node.
    #[must_use]
    pub fn new(region: RegionName, incarnation: u64) -> Self {
        let (inside, outside) = (Telling::default(), Telling::default());
        Self { region, incarnation, seq: 0, inside, outside, heard: BTreeMap::new() }
    }

    /// Returns the datagram about this node for the others of its region, if one is due.
    #[must_use]
    pub fn report_inside(&mut self, own: Steering, now: Instant) -> Option<Bytes> {
        self.inside.is_due(own, now).then(|| self.datagram(own)).flatten()
    }

    /// Returns the datagram about the own region for all nodes elsewhere, if one is due. Only the
    /// region's speaker sends it.
    #[must_use]
    pub fn report_outside(&mut self, region: Steering, now: Instant) -> Option<Bytes> {
        self.outside.is_due(region, now).then(|| self.datagram(region)).flatten()
    }

    /// Handles a report of `from`, the node that a verified certificate names.
    ///
    /// # Errors
    /// Returns the reason for refusing the datagram, which then changes nothing.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: &NodeName,
        region: &RegionName,
        bytes: &[u8],
    ) -> Result<(), GossipError> {
        let SteeringWord { incarnation, seq, code } = decode(bytes)?;
        let newest = (incarnation, seq);
        let is_known =
            |heard: &SteeringReport| newest <= heard.newest && !is_forgotten(heard.at, now);
        if self.heard.get(from).is_some_and(is_known) {
            return Err(GossipError::Old(from.clone()));
        }
        let steering = Steering::of_code(code);
        let heard = SteeringReport { region: region.clone(), newest, steering, at: now };
        self.heard.insert(from.clone(), heard);
        Ok(())
    }

    /// Returns the steering of another node of the own region; `None` if that node has not reported
    /// it recently.
    #[must_use]
    pub fn sibling(&self, node: &NodeName, now: Instant) -> Option<Steering> {
        let heard = self.heard.get(node).filter(|heard| heard.region == self.region)?;
        heard.is_fresh(now).then_some(heard.steering)
    }

    /// Returns the steering of another region, by the newest report of its nodes; `None` if none
    /// reported recently.
    #[must_use]
    pub fn region(&self, region: &RegionName, now: Instant) -> Option<Steering> {
        let of_region = self.heard.values().filter(|heard| heard.region == *region);
        // Several nodes may speak while the speaker changes.
        let newest = of_region.max_by_key(|heard| heard.at)?;
        newest.is_fresh(now).then_some(newest.steering)
    }

    /// Forgets nodes that are no members any more.
    pub fn keep(&mut self, is_member: impl Fn(&NodeName) -> bool) {
        self.heard.retain(|node, _| is_member(node));
    }

    fn datagram(&mut self, steering: Steering) -> Option<Bytes> {
        self.seq += 1;
        let (incarnation, seq) = (self.incarnation, self.seq);
        // Three numbers always fit.
        encode(&SteeringWord { incarnation, seq, code: steering.code() }).ok()
    }
}

/// Returns the steering of a region, by its nodes: it takes clients as long as one of them does.
/// `nodes` begins with the own one, whose reason is reported if no node takes clients.
#[must_use]
pub fn steering_of_region(nodes: impl IntoIterator<Item = Steering>) -> Steering {
    let rank = |steering: &Steering| match steering {
        Steering::Send => 0,
        Steering::SendShedding => 1,
        Steering::Away(_) => 2,
    };
    // Among equals, the first counts.
    nodes.into_iter().min_by_key(rank).unwrap_or_default()
}

impl Telling {
    /// Returns true if the state is to be sent now: at a change, again with the next call in case
    /// the first datagram is lost, and then every [`REPEAT_MS`].
    fn is_due(&mut self, steering: Steering, now: Instant) -> bool {
        let (is_due, is_repeated) = match self.last {
            Some((last, _)) if last != steering => (true, false),
            None => (true, false),
            Some(_) if !self.is_repeated => (true, true),
            Some((_, at)) => (ms_since(at, now) >= REPEAT_MS, true),
        };
        if is_due {
            *self = Self { last: Some((steering, now)), is_repeated };
        }
        is_due
    }
}

impl SteeringReport {
    fn is_fresh(&self, now: Instant) -> bool {
        ms_since(self.at, now) <= AGE_MS_MAX
    }
}

/// Datagram of steering: that of its sender, or of its sender's region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SteeringWord {
    /// Grows with every start of its sender.
    pub(crate) incarnation: u64,
    /// Grows with every datagram of an incarnation.
    pub(crate) seq: u64,
    /// Steering as [`Steering::code`].
    pub(crate) code: u8,
}

impl Wire for SteeringWord {
    const KIND: u16 = 0x0104;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 64;
}

#[cfg(test)]
#[path = "steering_test.rs"]
mod tests;
