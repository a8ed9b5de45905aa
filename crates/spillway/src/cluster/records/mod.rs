//! Records of the cluster: commands of all kinds, and of some.

pub(crate) mod apply;
pub(crate) mod edit;
pub(crate) mod fields;
pub(crate) mod get;
pub(crate) mod import;
pub(crate) mod kind;
pub(crate) mod limits;
pub(crate) mod names;
pub(crate) mod record;
pub(crate) mod remove;
pub(crate) mod served;
pub(crate) mod splits;
