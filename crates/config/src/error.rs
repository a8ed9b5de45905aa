//! Faults in a config: message, place and remedy.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A fault in a config file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Path of the file.
    pub path: PathBuf,
    /// Line and column, counted from 1; `None` where the whole file is meant.
    pub position: Option<(usize, usize)>,
    /// Description of the fault.
    pub message: String,
    /// Advice on how to correct it.
    pub remedy: String,
}

impl ConfigError {
    /// Creates a fault of the file as a whole.
    #[must_use]
    pub fn whole_file(path: &Path, message: String, remedy: &str) -> Self {
        Self { path: path.to_owned(), position: None, message, remedy: remedy.to_owned() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}\n  remedy: {}", self.message, self.remedy)
    }
}

impl std::error::Error for ConfigError {}

/// Text of a config, for turning byte ranges into lines.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    pub(crate) fn new(path: &Path, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Creates a fault at a byte range of the text. An empty range at 0 means that the value did
    /// not come from the file.
    pub(crate) fn fault(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ConfigError {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|character| *character != '\n').count() + 1;
        let position = (span != (0..0)).then_some((line, column));
        ConfigError {
            path: self.path.clone(),
            position,
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// Returns the path of a file that the config names: relative names are relative to the
    /// config's folder.
    pub(crate) fn resolve(&self, name: &str) -> PathBuf {
        self.path.parent().unwrap_or_else(|| Path::new("")).join(name)
    }
}

/// Converts a parser's error.
pub(crate) fn fault(source: &Source, error: &toml::de::Error) -> ConfigError {
    let message = error.message().to_owned();
    let remedy = if message.starts_with("unknown field") {
        "remove the key or correct its spelling; `spillway config schema` lists all"
    } else if message.starts_with("missing field") {
        "add the key; `spillway config schema` says what it means"
    } else {
        "correct the value; `spillway config schema` says what is allowed"
    };
    source.fault(error.span().unwrap_or(0..0), message, remedy)
}
