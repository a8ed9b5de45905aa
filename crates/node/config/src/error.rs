//! Errors and warnings of a config: message, position and remedy.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Weight of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The config can't be used.
    Error,
    /// The config is valid, but most likely differs from the intended one.
    Warning,
}

impl Severity {
    /// Returns the name as it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// An error in a config, or a warning about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Weight of the diagnostic.
    pub severity: Severity,
    /// Description of the error.
    pub message: String,
    /// Few words about the marked text; may be empty.
    pub label: String,
    /// Advice on how to correct it.
    pub remedy: String,
    /// Position of the marked text.
    pub place: Box<SourcePosition>,
}

/// Position that a diagnostic is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePosition {
    /// Path of the file.
    pub path: PathBuf,
    /// Environment variable that set the value; `None` for a value of the file.
    pub variable: Option<String>,
    /// Bytes of the whole text, variables included.
    pub(crate) span: Range<usize>,
    /// Marked text; `None` where the whole file is meant.
    pub mark: Option<Mark>,
    /// Earlier text that belongs to it, with a few words on why.
    pub earlier: Option<(Mark, String)>,
    /// Text of the file, or the variable with its value, with secrets masked.
    pub shown: Shown,
}

/// Part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Bytes of [`SourcePosition::shown`].
    pub span: Range<usize>,
    /// Line and column of the first character, counted from 1.
    pub start: (usize, usize),
    /// Line and column after the last character.
    pub end: (usize, usize),
}

/// Text to show around a mark. Debug output leaves it out, since it is as long as a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Shown(pub Arc<str>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl ConfigError {
    /// Creates an error of the file as a whole.
    #[must_use]
    pub fn whole_file(path: &Path, message: String, remedy: &str) -> Self {
        let place = SourcePosition {
            path: path.to_owned(),
            variable: None,
            span: 0..0,
            mark: None,
            earlier: None,
            shown: Shown(Arc::from("")),
        };
        Self {
            severity: Severity::Error,
            message,
            label: String::new(),
            remedy: remedy.to_owned(),
            place: Box::new(place),
        }
    }

    /// Adds a few words about the marked text.
    #[must_use]
    pub(crate) fn labelled(self, label: impl Into<String>) -> Self {
        Self { label: label.into(), ..self }
    }

    /// Makes a warning of it.
    #[must_use]
    pub(crate) fn into_warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }

    /// Returns line and column in the file, counted from 1; `None` where the whole file or an
    /// environment variable is meant.
    #[must_use]
    pub fn position(&self) -> Option<(usize, usize)> {
        let SourcePosition { variable, mark, .. } = &*self.place;
        mark.as_ref().filter(|_| variable.is_none()).map(|mark| mark.start)
    }
}

/// Writes position, message and remedy in one line, for logs.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.place.variable, self.position()) {
            (Some(variable), _) => write!(f, "environment variable {variable}")?,
            (None, Some((line, column))) => {
                write!(f, "{}:{line}:{column}", self.place.path.display())?;
            }
            (None, None) => write!(f, "{}", self.place.path.display())?,
        }
        write!(f, ": {} (help: {})", self.message, self.remedy)
    }
}

impl std::error::Error for ConfigError {}

/// Errors of a config, with warnings about it, in the order of their positions. As an error it has at
/// least one that is no warning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigErrors {
    all: Vec<ConfigError>,
}

impl ConfigErrors {
    /// Returns the diagnostics one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.all.iter()
    }

    /// Returns the number of diagnostics of this severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.all.iter().filter(|error| error.severity == severity).count()
    }

    /// Returns the numbers of errors and warnings in words; `None` if there are none.
    #[must_use]
    pub fn counted(&self) -> Option<String> {
        let counts = [Severity::Error, Severity::Warning].map(|severity| {
            let count = self.count(severity);
            let plural = if count == 1 { "" } else { "s" };
            (count > 0).then(|| format!("{count} {}{plural}", severity.name()))
        });
        let counts: Vec<String> = counts.into_iter().flatten().collect();
        (!counts.is_empty()).then(|| counts.join(" and "))
    }

    /// Returns true if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns these diagnostics with others.
    #[must_use]
    pub fn with(mut self, others: Self) -> Self {
        self.add(others);
        self.sort();
        self
    }

    /// Returns the result of a check, and keeps its errors.
    pub(crate) fn keep<T>(&mut self, result: Result<T, impl Into<Self>>) -> Option<T> {
        result.map_err(|errors| self.add(errors)).ok()
    }

    pub(crate) fn add(&mut self, errors: impl Into<Self>) {
        self.all.extend(errors.into().all);
    }

    /// Returns the value if nothing is wrong.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Self> {
        if self.all.is_empty() { Ok(value) } else { Err(self) }
    }

    /// Leaves out diagnostics that do not meet the condition.
    pub fn retain(&mut self, condition: impl FnMut(&ConfigError) -> bool) {
        self.all.retain(condition);
    }

    /// Puts diagnostics into the order of their positions: the whole file first, the environment last.
    pub(crate) fn sort(&mut self) {
        let key = |error: &ConfigError| {
            let place = &error.place;
            (place.variable.clone(), place.path.clone(), error.position())
        };
        self.all.sort_by_cached_key(key);
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self { all: vec![error] }
    }
}

impl From<Vec<ConfigError>> for ConfigErrors {
    fn from(all: Vec<ConfigError>) -> Self {
        Self { all }
    }
}

/// Writes one diagnostic a line.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for error in &self.all {
            write!(f, "{separator}{error}")?;
            separator = "\n";
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Collects all values, or all errors.
///
/// # Errors
/// Returns the errors of all results that have some.
pub(crate) fn all<T, E: Into<ConfigErrors>>(
    results: impl IntoIterator<Item = Result<T, E>>,
) -> Result<Vec<T>, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let values = results.into_iter().filter_map(|result| errors.keep(result)).collect();
    errors.or(values)
}
