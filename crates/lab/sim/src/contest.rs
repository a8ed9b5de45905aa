//! Contest: routers against each other, over the same worlds with the same seeds.

mod contender;
mod crowd_score;
mod fault_score;
mod recovery;
mod score;
mod spec;
mod spread;
mod standing;

pub use contender::{Contender, ContenderError, Role};
pub use crowd_score::CrowdScore;
pub use fault_score::{Fates, FaultScore};
pub use recovery::Windows;
pub use score::Score;
pub use spec::SpecError;
pub use spread::{Better, Spread};
pub use standing::{Entry, Row, Standing};
