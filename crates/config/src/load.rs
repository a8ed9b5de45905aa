//! Reading of a config from a file or a text, and the JSON schema of the file.

use std::path::Path;
use std::sync::Arc;

use crate::config::Config;
use crate::error::{ConfigError, Source};
use crate::{file, lower};

impl Config {
    /// Reads and checks a file, with overrides from this process's environment.
    ///
    /// # Errors
    /// Returns the first fault, with line, column and a remedy.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_with(path, std::env::vars())
    }

    /// Reads and checks a file, with overrides from `environment`.
    ///
    /// # Errors
    /// Returns the first fault, with line, column and a remedy.
    pub fn load_with(
        path: &Path,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            ConfigError::whole_file(
                path,
                format!("can't read it: {error}"),
                "check path and rights",
            )
        })?;
        let mut config = Self::parse(&text, path, environment)?;
        config.path = Some(path.to_owned());
        Ok(config)
    }

    /// Checks a config given as text. Errors show `path`, and file names in the config are relative
    /// to its folder.
    ///
    /// # Errors
    /// Returns the first fault, with line, column and a remedy.
    pub fn parse(
        text: &str,
        path: &Path,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let source = Arc::new(Source::new(path, text));
        let file = file::read(&source, environment)?;
        lower::lower(&source, file)
    }
}

/// Returns the JSON Schema of the config file.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(file::ConfigFile).to_value()
}
