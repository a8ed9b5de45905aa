//! `[steering]`: conditions for sending new clients elsewhere.

use spillway_health::SteeringConfig;
use spillway_types::{Millis, settings};

settings! {
    /// `[steering]`: conditions with which `/steering` sends new clients elsewhere, and here again.
    pub(crate) struct SteeringSection {
        /// Time for which a fifth of the requests has to be shed for lack of capacity before new
        /// clients are sent elsewhere.
        shed_ms: Millis = Millis(3_000),
        /// Time without problems before new clients are sent here again, doubled each time that
        /// clients were sent elsewhere recently, up to two minutes.
        #[schemars(range(max = 120_000))]
        return_ms: Millis = Millis(10_000),
    }
}

impl SteeringSection {
    /// Returns the conditions with all that is not configurable.
    pub(crate) fn config(&self) -> SteeringConfig {
        SteeringConfig {
            shed_for: self.shed_ms.duration(),
            well_for: self.return_ms.duration(),
            ..SteeringConfig::default()
        }
    }
}
