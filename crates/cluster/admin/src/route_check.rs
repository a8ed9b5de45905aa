//! Interface to the check of a route's settings, which are those of a config file.

use std::fmt::Debug;

use serde_json::{Map, Value};

/// Checks records of routes as a config file is checked.
pub trait RouteCheck: Debug + Send + Sync {
    /// Checks a route with all its fields.
    ///
    /// # Errors
    /// Returns cause and remedy of the first fault.
    fn check_route(&self, name: &str, record: &Map<String, Value>) -> Result<(), (String, String)>;
}
