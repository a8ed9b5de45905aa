//! Guarded rollouts of splits: this node counts, all nodes' figures are added, and the node that
//! leads the cluster proposes what follows.

mod counts;
mod guard;

pub(crate) use counts::{FiguresQuestion, NodeFigures, PATH, RolloutCounts, reply};
pub(crate) use guard::RolloutGuard;
