//! Views of a node and its cluster.

pub(crate) mod audit;
pub(crate) mod regions;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod usage;
pub(crate) mod watch;
