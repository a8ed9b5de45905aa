//! Rules that need no clock, disk or network.

pub(crate) mod agreement;
pub(crate) mod budget;
pub(crate) mod campaign;
pub(crate) mod distances;
pub(crate) mod followers;
pub(crate) mod formation;
pub(crate) mod isolation;
pub(crate) mod knowledge;
pub(crate) mod lineage;
pub(crate) mod promise;
pub(crate) mod standing;
pub(crate) mod timing;
