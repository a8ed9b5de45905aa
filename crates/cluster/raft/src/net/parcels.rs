//! Snapshots that were offered to this node and whose bytes are in transit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use spillway_link::StreamReceiver;
use spillway_types::NodeName;
use tokio::sync::oneshot;

use crate::wire::Parcel;

/// Maximum number of snapshots in transit to this node at a time: one leader sends one, and its
/// successor may begin before the first leader has noticed.
const PARCELS_MAX: usize = 2;

type Key = (NodeName, u64);

/// Snapshots that were offered. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parcels(Arc<Mutex<BTreeMap<Key, ExpectedSnapshot>>>);

#[derive(Debug)]
struct ExpectedSnapshot {
    bytes: u64,
    /// `None` once its bytes are in transit: then the entry only keeps its place.
    arrived: Option<oneshot::Sender<Bytes>>,
}

/// A place for one snapshot; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct SnapshotPermit {
    parcels: Parcels,
    key: Key,
    arrived: oneshot::Receiver<Bytes>,
}

impl Parcels {
    /// Expects so many bytes from a node; `None` if that is too much.
    pub(crate) fn expect(
        &self,
        from: &NodeName,
        transfer: u64,
        bytes: u64,
    ) -> Option<SnapshotPermit> {
        let mut expected = self.lock();
        let key = (from.clone(), transfer);
        // One place for each node: a leader in order sends one at a time.
        let has_one = expected.keys().any(|(name, _)| name == from);
        let is_full = expected.len() >= PARCELS_MAX || has_one;
        if is_full || bytes > crate::SNAPSHOT_BYTES_MAX as u64 {
            return None;
        }
        let (sender, arrived) = oneshot::channel();
        expected.insert(key.clone(), ExpectedSnapshot { bytes, arrived: Some(sender) });
        Some(SnapshotPermit { parcels: self.clone(), key, arrived })
    }

    /// Reads what a node sends, if it was expected.
    pub(crate) async fn receive(&self, from: NodeName, mut receiver: StreamReceiver) {
        let Ok(Some(parcel)) = receiver.message::<Parcel>().await else { return };
        let key = (from, parcel.transfer);
        let arrived = self.lock().get_mut(&key).and_then(|expected| {
            let fits = expected.bytes == parcel.bytes;
            // Taken even if it does not fit: one offer is one attempt.
            expected.arrived.take().filter(|_| fits)
        });
        let Some(arrived) = arrived else { return };
        // It fits: that was checked when it was offered.
        let bytes = usize::try_from(parcel.bytes).unwrap_or(usize::MAX);
        if let Ok(data) = receiver.exactly(bytes).await {
            // An error means that the offer was withdrawn.
            drop(arrived.send(data));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, ExpectedSnapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SnapshotPermit {
    /// Waits for the bytes; `None` if they do not come whole.
    pub(crate) async fn arrived(&mut self) -> Option<Bytes> {
        (&mut self.arrived).await.ok()
    }
}

impl Drop for SnapshotPermit {
    fn drop(&mut self) {
        self.parcels.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_snapshots_are_expected_one_from_a_node_and_none_that_is_too_long() {
        let parcels = Parcels::default();
        let [a, b, c]: [NodeName; 3] = ["a", "b", "c"].map(Into::into);
        let most = crate::SNAPSHOT_BYTES_MAX as u64;
        assert!(parcels.expect(&a, 1, most + 1).is_none());
        let first = parcels.expect(&a, 1, most).unwrap();
        assert!(parcels.expect(&a, 2, 1).is_none(), "one from each node");
        let _second = parcels.expect(&b, 1, 1).unwrap();
        assert!(parcels.expect(&c, 1, 1).is_none(), "two at a time");
        drop(first);
        assert!(parcels.expect(&c, 1, 1).is_some());
    }
}
