//! `[spill]`: when other regions are asked.

use schemars::JsonSchema;
use serde::Deserialize;
use spillway_route::{SpillTerms, WaitLimits};
use toml::Spanned;

use crate::config::error::{ConfigError, Source};

/// `[spill]`: when requests go to other regions, and which ones are taken in.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SpillSection {
    /// Whether requests may go to other regions at all.
    pub(crate) enabled: bool,
    /// Part of the capacity that is kept for this region's own requests, in percent.
    #[schemars(with = "u16")]
    pub(crate) reserve_percent: Spanned<u16>,
    /// Part of the capacity that requests of other regions may take at most, in percent; none
    /// by default, since a reserve does better.
    #[schemars(with = "Option<u16>")]
    pub(crate) guests_percent_max: Option<Spanned<u16>>,
    /// Regions that one request asks at most, one after the other.
    pub(crate) regions_max: u8,
    /// Requests that wait in this node for a place at most, for each route and model.
    pub(crate) queue_max: u32,
    /// How long one may wait here.
    pub(crate) queue_ms: u32,
}

impl Default for SpillSection {
    fn default() -> Self {
        Self {
            enabled: true,
            reserve_percent: Spanned::new(0..0, 10),
            guests_percent_max: None,
            regions_max: 2,
            queue_max: 1_000,
            queue_ms: 30_000,
        }
    }
}

/// When requests go to other regions, and which ones are taken in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpillConfig {
    /// Regions that one request asks at most; 0 keeps all at home.
    pub asked_max: usize,
    /// How regions are weighed against each other.
    pub terms: SpillTerms,
}

impl SpillSection {
    /// # Errors
    /// Whatever does not work, with its line.
    pub(crate) fn lower(&self, source: &Source) -> Result<SpillConfig, ConfigError> {
        let part = |percent: &Spanned<u16>| match *percent.get_ref() {
            percent if percent <= 100 => Ok(percent * 10),
            _ => Err(source.fault(percent.span(), "more than all", "use 0 to 100")),
        };
        Ok(SpillConfig {
            asked_max: if self.enabled { self.regions_max.into() } else { 0 },
            terms: SpillTerms {
                reserve_permille: part(&self.reserve_percent)?,
                guests_max_permille: self.guests_percent_max.as_ref().map(part).transpose()?,
                ..SpillTerms::default()
            },
        })
    }

    /// Bounds on what waits here for a place.
    pub(crate) fn waiting(&self) -> WaitLimits {
        WaitLimits {
            count_max: self.queue_max as usize,
            wait_ms_max: self.queue_ms.into(),
            ..WaitLimits::default()
        }
    }
}
