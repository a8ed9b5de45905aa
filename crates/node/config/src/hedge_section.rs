//! `hedge` of a route: a second replica asked beside the first.

use std::ops::Range;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use spillway_view::{HedgeAfter, HedgeSpec};

use crate::error::ConfigError;
use crate::source::Source;

/// Conditions for asking a second replica beside the first, e.g. `{ after_ms = 200 }` or `{ after =
/// "p95", budget_percent = 5 }`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HedgeSection {
    /// Time without a first byte, in ms, after which the second replica is tried.
    #[serde(default)]
    pub(crate) after_ms: Option<u64>,
    /// Time without a first byte, as a quantile of the route's own times to first byte: `p50` to
    /// `p99`.
    #[serde(default)]
    pub(crate) after: Option<String>,
    /// Second attempts as a share of requests, in percent, 1 to 100.
    #[serde(default = "usual_budget_percent")]
    #[schemars(range(min = 1, max = 100))]
    pub(crate) budget_percent: u32,
}

fn usual_budget_percent() -> u32 {
    5
}

impl HedgeSection {
    /// Checks the section.
    ///
    /// # Errors
    /// Returns the first fault, with its line.
    pub(crate) fn lower(
        &self,
        source: &Source,
        span: Range<usize>,
    ) -> Result<HedgeSpec, ConfigError> {
        let fault = |message: &str, remedy: &str| source.fault(span.clone(), message, remedy);
        let after = match (self.after_ms, &self.after) {
            // With 0 every request would be sent twice at once.
            (Some(after_ms @ 1..), None) => HedgeAfter::Time(Duration::from_millis(after_ms)),
            (None, Some(text)) => HedgeAfter::Percentile(percentile(text).ok_or_else(|| {
                fault("after is no quantile", "use after = \"p50\" to \"p99\", or after_ms")
            })?),
            _ => {
                let remedy = "use exactly one: after_ms = 200 or after = \"p95\"";
                return Err(fault("it does not say after which time", remedy));
            }
        };
        Ok(HedgeSpec { after, budget_percent: self.budget_percent })
    }
}

fn percentile(text: &str) -> Option<u8> {
    let percent = text.strip_prefix('p')?.parse().ok()?;
    // Below the median more than every second request would ask twice.
    (50..=99).contains(&percent).then_some(percent)
}
