//! Reading of a config from a file or a text, and the JSON schema of the file.

use std::path::Path;
use std::sync::LazyLock;

use crate::config::Config;
use crate::environment::overrides;
use crate::error::{ConfigError, ConfigErrors, Severity};
use crate::file::ConfigFile;
use crate::lower::lower;
use crate::recovery::{Document, Recovered, read};
use crate::source::Source;
use crate::warnings::warnings;

impl Config {
    /// Reads and checks a file, with overrides from this process's environment.
    ///
    /// # Errors
    /// Returns all errors that could be found, each with its position and a remedy.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        Self::load_with(path, std::env::vars())
    }

    /// Reads and checks a file, with overrides from `environment`.
    ///
    /// # Errors
    /// Returns all errors that could be found, each with its position and a remedy.
    pub fn load_with(
        path: &Path,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let message = format!("can't read it: {error}");
            let remedy = match error.kind() {
                std::io::ErrorKind::InvalidData => "save it as UTF-8",
                _ => "check path and rights",
            };
            ConfigError::whole_file(path, message, remedy)
        })?;
        let mut config = Self::parse(&text, path, environment)?;
        config.path = Some(path.to_owned());
        Ok(config)
    }

    /// Checks a config given as text. Errors show `path`, and file names in the config are relative
    /// to its folder.
    ///
    /// # Errors
    /// Returns all errors that could be found, each with its position and a remedy.
    pub fn parse(
        text: &str,
        path: &Path,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        let source = Source::new(path, text).with_variables(overrides(environment));
        let Recovered { content, mut errors, lost } = read::<ConfigFile>(&source);
        let mut config = None;
        if let Some((file, at_start)) = content {
            // Where something is left out, a warning may speak of just that.
            let warned = if errors.is_empty() { warnings(&source, &file) } else { Vec::new() };
            match lower(&source, file, &lost) {
                Ok(lowered) => config = Some(Self { at_start, ..lowered }),
                Err(mut more) => {
                    more.retain(|error| !lost.explains(error));
                    errors.add(more);
                }
            }
            errors.add(warned);
        }
        errors.sort();
        match config {
            Some(mut config) if errors.count(Severity::Error) == 0 => {
                config.warnings = errors;
                Ok(config)
            }
            _ => Err(errors),
        }
    }
}

/// Returns the JSON Schema of the config file: the table of all settings, from which their parser,
/// their reference page and the list of those that wait for a restart follow.
#[must_use]
pub fn schema() -> &'static serde_json::Value {
    ConfigFile::schema()
}

impl Document for ConfigFile {
    fn schema() -> &'static serde_json::Value {
        static SCHEMA: LazyLock<serde_json::Value> =
            LazyLock::new(|| schemars::schema_for!(ConfigFile).to_value());
        &SCHEMA
    }
}
