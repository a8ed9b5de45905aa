//! Proposals of this node for the region's hot blocks, and their results.

use std::sync::Arc;
use std::time::Duration;

use spillway_cluster_state::{Actor, Command, Outcome};
use spillway_codec::payload_bytes;
use spillway_prefix::HotDelta;
use tokio::sync::oneshot;

use super::caches::Caches;
use super::context::KnowledgeContext;
use super::published::Proposals;

/// Time limit of a proposal. Longer than a commit around the world; a later result is replaced by a
/// newer proposal.
const LIMIT: Duration = Duration::from_secs(5);

/// Proposes blocks that became hot or cold, one delta at a time.
#[derive(Debug, Default)]
pub(super) struct Proposer {
    state: ProposerState,
    pub(super) counts: Proposals,
}

/// State of a proposer.
#[derive(Debug, Default)]
enum ProposerState {
    // Silent => Speaking
    /// Another node of the region speaks.
    #[default]
    Silent,
    // Speaking => (Proposed | Silent)
    /// This node speaks, and knows the cluster's blocks of the region.
    Speaking,
    // Proposed => (Speaking | Silent)
    /// A delta of `bytes` bytes is under way.
    Proposed { bytes: u64, done: oneshot::Receiver<Came> },
}

/// Result of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Applied,
    Refused,
    Failed,
}

impl Proposer {
    /// Proposes the next delta if this node speaks and the last one is decided.
    pub(super) fn turn(
        &mut self,
        (is_speaker, epoch, now_ms): (bool, u64, u64),
        caches: &mut Caches,
        context: &Arc<KnowledgeContext>,
    ) {
        self.settle(caches, context);
        if !is_speaker {
            self.state = ProposerState::Silent;
            return;
        }
        match self.state {
            ProposerState::Proposed { .. } => return,
            ProposerState::Silent => {
                adopt(caches, context);
                self.state = ProposerState::Speaking;
            }
            ProposerState::Speaking => {}
        }
        let is_member =
            context.control_plane().is_some_and(|it| it.published().cluster().is_some());
        // Nothing is agreed on before the cluster is formed.
        if !is_member {
            return;
        }
        if let Some(delta) = caches.hot_delta(now_ms) {
            let bytes = payload_bytes(&delta).unwrap_or(0) as u64;
            let done = propose(context, epoch, delta);
            self.state = ProposerState::Proposed { bytes, done };
        }
    }

    /// Starts over after the key changed: the proposal under way is refused, and its result is not
    /// counted.
    pub(super) fn start_over(&mut self) {
        self.state = ProposerState::Silent;
    }

    fn settle(&mut self, caches: &mut Caches, context: &KnowledgeContext) {
        let ProposerState::Proposed { bytes, done } = &mut self.state else { return };
        let came = match done.try_recv() {
            Ok(came) => came,
            Err(oneshot::error::TryRecvError::Empty) => return,
            Err(oneshot::error::TryRecvError::Closed) => Came::Failed,
        };
        match came {
            Came::Applied => {
                self.counts.applied += 1;
                self.counts.bytes += *bytes;
            }
            Came::Refused => self.counts.refused += 1,
            Came::Failed => self.counts.failed += 1,
        }
        // The delta did not come in: the next one starts from what the cluster has.
        if came != Came::Applied {
            adopt(caches, context);
        }
        self.state = ProposerState::Speaking;
    }
}

/// Adopts the region's blocks that the cluster knows, whichever node reported them.
fn adopt(caches: &mut Caches, context: &KnowledgeContext) {
    let state = context.control_plane().map(|control_plane| control_plane.published());
    caches.adopt_heat(state.as_ref().and_then(|state| state.hot().region(&context.me.1)));
}

fn propose(
    context: &Arc<KnowledgeContext>,
    key_epoch: u64,
    delta: HotDelta,
) -> oneshot::Receiver<Came> {
    let (sender, receiver) = oneshot::channel();
    let for_log = Arc::clone(context);
    let proposing = async move {
        let region = for_log.me.1.clone();
        let command = Command::HotBlocks { region, key_epoch, delta };
        let Some(control_plane) = for_log.control_plane() else { return };
        let came = match control_plane.propose(command, Actor::Node, None, LIMIT).await {
            Ok(done) => match done.outcome {
                Outcome::Refused(refusal) => {
                    tracing::debug!(%refusal, "hot blocks were refused");
                    Came::Refused
                }
                _ => Came::Applied,
            },
            Err(error) => {
                tracing::debug!(%error, "hot blocks are not agreed on");
                Came::Failed
            }
        };
        // The receiver is gone once the node stops or the key changed.
        let _: Result<(), Came> = sender.send(came);
    };
    context.tasks.spawn_on(proposing, &context.runtime);
    receiver
}
