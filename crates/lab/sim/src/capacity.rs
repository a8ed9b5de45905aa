//! Capacity planning: replicas that each region needs, by arithmetic, and a check of such a plan in
//! the simulator.

mod demand;
mod sizing;
mod trial;

pub use demand::{DayCurve, PlannedRegion};
pub use sizing::{Sizing, Work};
pub use trial::{Objective, Trial, TrialFigures};
