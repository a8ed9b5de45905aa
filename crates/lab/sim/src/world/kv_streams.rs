//! Streams of KV events from engines to the nodes that read them.

use std::collections::{BTreeMap, VecDeque};

use spillway_types::KvEvent;

use crate::Time;

/// Streams of the KV events of all replicas that some node reads.
#[derive(Debug, Default)]
pub(super) struct KvStreams(BTreeMap<usize, KvStream>);

/// Stream of one replica's KV events.
#[derive(Debug, Default)]
struct KvStream {
    /// Batches in transit, oldest first; `None` where events got lost.
    under_way: VecDeque<Option<Vec<KvEvent>>>,
    /// Moment at which the last of them arrives.
    last_due: Time,
    /// True if events got lost since.
    has_gap: bool,
}

impl KvStreams {
    /// Begins the stream of a replica.
    pub(super) fn begin(&mut self, replica: usize) {
        self.0.insert(replica, KvStream::default());
    }

    /// Returns true if some node reads the events of a replica.
    pub(super) fn has(&self, replica: usize) -> bool {
        self.0.contains_key(&replica)
    }

    /// Sends a batch, or the news that events got lost. Returns when it arrives: at `due`, or
    /// later, since nothing overtakes what was sent before on the same connection.
    pub(super) fn put(
        &mut self,
        replica: usize,
        due: Time,
        news: Option<Vec<KvEvent>>,
    ) -> Option<Time> {
        let stream = self.0.get_mut(&replica)?;
        stream.last_due = stream.last_due.max(due);
        stream.under_way.push_back(news);
        Some(stream.last_due)
    }

    /// Returns the batch of a replica that arrives next.
    pub(super) fn take(&mut self, replica: usize) -> Option<Option<Vec<KvEvent>>> {
        self.0.get_mut(&replica)?.under_way.pop_front()
    }

    /// Notes that events got lost on a broken path.
    pub(super) fn lose(&mut self, replica: usize) {
        if let Some(stream) = self.0.get_mut(&replica) {
            stream.has_gap = true;
        }
    }

    /// Returns true if events got lost since the last call: a subscriber sees that by the numbers of
    /// the messages that follow.
    pub(super) fn take_gap(&mut self, replica: usize) -> bool {
        self.0.get_mut(&replica).is_some_and(|stream| std::mem::take(&mut stream.has_gap))
    }
}
