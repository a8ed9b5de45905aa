//! Permits of joining nodes: a limit on those that are served at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use spillway_types::NodeName;

use super::STRANGERS_MAX;

/// Most permits of one node: its next question may come before the end of the last one is noticed.
const OF_ONE_MAX: usize = 2;

/// Permits of the joining nodes that are served now.
#[derive(Debug, Default)]
pub(crate) struct JoinPermits(Arc<Mutex<BTreeMap<NodeName, usize>>>);

/// Permit of one joining node that is served; it ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct JoinPermit {
    places: Arc<Mutex<BTreeMap<NodeName, usize>>>,
    name: NodeName,
}

impl JoinPermits {
    /// Takes a permit for a node; `None` if no permit is free or the node has enough. One certificate
    /// can't take the permits of all others.
    pub(super) fn take(&self, name: &NodeName) -> Option<JoinPermit> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken: usize = places.values().sum();
        let own = places.entry(name.clone()).or_default();
        if taken >= STRANGERS_MAX || *own >= OF_ONE_MAX {
            // The look-up above may have left an entry of 0.
            places.retain(|_, count| *count > 0);
            return None;
        }
        *own += 1;
        Some(JoinPermit { places: Arc::clone(&self.0), name: name.clone() })
    }
}

impl Drop for JoinPermit {
    fn drop(&mut self) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = places.get_mut(&self.name) {
            *own = own.saturating_sub(1);
        }
        places.retain(|_, count| *count > 0);
    }
}
