//! Operators' orders to the leader, nodes, regions and replicas.

pub(crate) mod leader;
pub(crate) mod members;
pub(crate) mod target;
pub(crate) mod target_args;
