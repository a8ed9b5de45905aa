//! News of homes for each other node, until the node has them. Pure: nodes and results come in.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use spillway_types::NodeName;
use spillway_view::HomeNews;

/// Most news that are kept for nodes that can't be reached now. Those nodes ask later for the rest.
const KEPT_MAX: usize = 16_384;
/// Most news in one message.
const BATCH_MAX: u64 = 1_024;
/// Pause after a message that did not arrive.
const AGAIN: Duration = Duration::from_secs(1);

/// News of this node in the order in which they came, and how far each other node has them.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    news: VecDeque<HomeNews>,
    /// Number of the first of `news`.
    first: u64,
    peers: BTreeMap<NodeName, PeerBacklog>,
}

#[derive(Debug)]
struct PeerBacklog {
    /// Number of the first news that the node has not got.
    next: u64,
    state: PeerState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerState {
    // Idle => Sending
    /// News can be sent.
    Idle,
    // Sending => (Idle | Resting)
    /// A message is under way.
    Sending,
    // Resting => Sending
    /// The last message did not arrive; the next one is sent after this time.
    Resting(Instant),
}

impl Backlog {
    /// Adds news; the oldest go if there are too many. Returns how many of those that go the other nodes
    /// lack, all nodes together.
    pub(super) fn add(&mut self, news: Vec<HomeNews>) -> u64 {
        self.news.extend(news);
        let excess = self.news.len().saturating_sub(KEPT_MAX);
        self.news.drain(..excess);
        let before = self.first;
        self.first += excess as u64;
        let lacked = |peer: &PeerBacklog| self.first.saturating_sub(peer.next.max(before));
        self.peers.values().map(lacked).sum()
    }

    /// Takes over the names of all other nodes. A new one gets the news from now on.
    pub(super) fn set_peers<'n>(&mut self, nodes: impl Iterator<Item = &'n NodeName>) {
        let (mut before, next) = (std::mem::take(&mut self.peers), self.end());
        for node in nodes {
            let known = before.remove(node);
            let peer = known.unwrap_or(PeerBacklog { next, state: PeerState::Idle });
            self.peers.insert(node.clone(), peer);
        }
    }

    /// Returns the numbers of the news to send to a node now; `None` if there are none to send. Call
    /// [`Backlog::sent`] when the result is known.
    pub(super) fn next(&mut self, node: &NodeName, now: Instant) -> Option<Range<u64>> {
        let (first, end) = (self.first, self.end());
        let peer = self.peers.get_mut(node)?;
        let is_ready = match peer.state {
            PeerState::Idle => true,
            PeerState::Sending => false,
            PeerState::Resting(until) => now >= until,
        };
        if !is_ready || peer.next >= end {
            return None;
        }
        peer.state = PeerState::Sending;
        peer.next = peer.next.max(first);
        Some(peer.next..end.min(peer.next + BATCH_MAX))
    }

    /// Returns the news of these numbers, as far as they are kept.
    pub(super) fn news(&self, numbers: Range<u64>) -> impl Iterator<Item = &HomeNews> {
        let skipped = usize::try_from(numbers.start.saturating_sub(self.first));
        let count = usize::try_from(numbers.end.saturating_sub(numbers.start));
        self.news.iter().skip(skipped.unwrap_or(usize::MAX)).take(count.unwrap_or(0))
    }

    /// Returns the other nodes.
    pub(super) fn peers(&self) -> impl Iterator<Item = &NodeName> {
        self.peers.keys()
    }

    /// Notes the result of a message: the number behind its news if they arrived.
    pub(super) fn sent(&mut self, node: &NodeName, arrived: Option<u64>, now: Instant) {
        let Some(peer) = self.peers.get_mut(node) else { return };
        peer.state = match arrived {
            Some(behind) => {
                peer.next = behind;
                PeerState::Idle
            }
            None => PeerState::Resting(now + AGAIN),
        };
    }

    fn end(&self) -> u64 {
        self.first + self.news.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// News whose content is their number.
    fn turns(blocks: Range<u64>) -> Vec<HomeNews> {
        blocks.map(|block| HomeNews::Conversation { block, region: None }).collect()
    }

    #[test]
    fn each_node_gets_all_news_in_their_order_once() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        let (a, b) = (NodeName::from("a"), NodeName::from("b"));
        backlog.set_peers([&a].into_iter());
        assert_eq!(backlog.next(&a, now), None);
        backlog.add(turns(0..3));
        assert_eq!(backlog.next(&a, now), Some(0..3));
        backlog.add(turns(3..5));
        assert_eq!(backlog.next(&a, now), None, "one message at a time");
        backlog.set_peers([&a, &b].into_iter());
        assert_eq!(backlog.next(&b, now), None, "a new node asks for what was before");
        backlog.sent(&a, Some(3), now);
        assert_eq!(backlog.next(&a, now), Some(3..5));
        backlog.sent(&a, None, now);
        assert_eq!(backlog.next(&a, now), None);
        assert_eq!(backlog.next(&a, now + AGAIN), Some(3..5), "it did not arrive");
        backlog.sent(&a, Some(5), now);
        backlog.add(turns(5..6));
        assert_eq!(backlog.next(&a, now), Some(5..6));
        assert_eq!(backlog.next(&b, now), Some(5..6));
        backlog.set_peers([&b].into_iter());
        backlog.sent(&a, Some(6), now);
        assert_eq!(backlog.next(&a, now), None, "it is gone");
    }

    #[test]
    fn what_waits_for_a_node_out_of_reach_is_bounded() {
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        let a = NodeName::from("a");
        backlog.set_peers([&a].into_iter());
        let count = KEPT_MAX as u64 + 10;
        assert_eq!(backlog.add(turns(0..count)), 10);
        assert_eq!(backlog.news.len(), KEPT_MAX);
        let mut got = Vec::new();
        while let Some(numbers) = backlog.next(&a, now) {
            assert!(numbers.end - numbers.start <= BATCH_MAX);
            got.extend(backlog.news(numbers.clone()).cloned());
            backlog.sent(&a, Some(numbers.end), now);
        }
        assert_eq!(got, turns(10..count));
        assert_eq!(backlog.add(turns(0..5)), 0, "the node has those that went");
    }
}
