//! Page of metrics.

use super::mapping::Mapping;

/// Page where a kind of server reports its load.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsPage {
    /// Port of the page, if it is not the API's.
    pub port: Option<u16>,
    /// Path of the page.
    pub path: &'static str,
    /// Mapping from the page's metrics to load.
    pub mapping: Mapping,
}
