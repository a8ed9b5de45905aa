//! `[steering]`: conditions for sending new clients elsewhere.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_health::SteeringConfig;
use toml::Spanned;

use crate::error::ConfigError;
use crate::source::Source;
use crate::spill_section::permille;

/// `[steering]`: conditions with which `/steering` sends new clients elsewhere, and here again.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SteeringSection {
    /// Share of the requests of the last five seconds, in percent, that counts as too many shed for
    /// lack of capacity; 1 to 100.
    #[schemars(with = "u16", range(min = 1, max = 100))]
    pub(crate) shed_percent: Spanned<u16>,
    /// Time for which too many requests have to be shed before new clients are sent elsewhere.
    pub(crate) shed_ms: u32,
    /// Time without problems before new clients are sent here again, doubled each time that clients
    /// were sent elsewhere recently.
    #[schemars(with = "u32")]
    pub(crate) return_ms: Spanned<u32>,
    /// Maximum of `return_ms` after doubling.
    #[schemars(with = "u32")]
    pub(crate) return_max_ms: Spanned<u32>,
}

impl Default for SteeringSection {
    fn default() -> Self {
        let config = SteeringConfig::default();
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        Self {
            shed_percent: Spanned::new(0..0, config.shed_permille / 10),
            shed_ms: ms(config.shed_for),
            return_ms: Spanned::new(0..0, ms(config.well_for)),
            return_max_ms: Spanned::new(0..0, ms(config.well_for_max)),
        }
    }
}

impl SteeringSection {
    /// Checks the section.
    ///
    /// # Errors
    /// Returns the first fault, with its line.
    pub(crate) fn lower(&self, source: &Source) -> Result<SteeringConfig, ConfigError> {
        let shed_permille = permille(source, &self.shed_percent)?;
        if shed_permille == 0 {
            let remedy = "use 1 to 100; 100 sends clients elsewhere when no client is served";
            let message = "clients would be sent elsewhere although no request is rejected";
            return Err(source.fault(self.shed_percent.span(), message, remedy));
        }
        let (least, most) = (*self.return_ms.get_ref(), *self.return_max_ms.get_ref());
        if most < least {
            let message = "return_max_ms is less than return_ms";
            let remedy = format!("use {least} or more");
            return Err(source.fault(self.return_max_ms.span(), message, remedy));
        }
        let ms = |time_ms: u32| Duration::from_millis(time_ms.into());
        Ok(SteeringConfig {
            shed_permille,
            shed_for: ms(self.shed_ms),
            well_for: ms(least),
            well_for_max: ms(most),
            ..SteeringConfig::default()
        })
    }
}
