//! Check of the cluster's routes by the code that reads those of the config file.

use serde_json::{Map, Value};
use spillway_admin::RouteCheck;

/// Checks routes of the cluster as the config file's are checked.
#[derive(Debug)]
pub(crate) struct RouteFields;

impl RouteCheck for RouteFields {
    fn check_route(&self, name: &str, record: &Map<String, Value>) -> Result<(), (String, String)> {
        spillway_config::check_route(name, record)
    }
}
