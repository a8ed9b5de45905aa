//! Handler of the questions of nodes that ask to join.

use crate::identity::Identity;
use crate::rpc::{Served, StreamReceiver, StreamSender};

/// Handler of the questions of nodes that ask to join. The link's own tasks call it, so it must not
/// block.
pub trait JoinHandler: Send + Sync + 'static {
    /// Answers a question of a node with a valid certificate of this cluster. The node may be a
    /// peer or unknown: only its name and region are verified.
    fn asked_to_join(&self, from: Identity, streams: (StreamSender, StreamReceiver)) -> Served;
}
