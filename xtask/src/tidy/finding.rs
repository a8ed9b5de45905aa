//! Findings of checks.

use std::fmt;

use serde::Serialize;

/// Place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// Short name of the rule.
    pub(crate) rule: &'static str,
    /// Path relative to the workspace root.
    pub(crate) file: String,
    /// Line, counted from 1; `None` for the whole file.
    pub(crate) line: Option<usize>,
    pub(crate) message: String,
}

/// Effect of a finding on the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// The finding is only shown.
    Warning,
    /// The finding fails the run.
    Violation,
}

impl Finding {
    /// Creates a violation of `rule` by `file` as a whole.
    pub(crate) fn violation(rule: &'static str, file: &str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Violation,
            rule,
            file: file.to_owned(),
            line: None,
            message: message.into(),
        }
    }

    /// Turns the finding into a warning.
    pub(crate) fn into_warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }

    /// Sets the line of the finding, counted from 1.
    pub(crate) fn at(self, line: usize) -> Self {
        Self { line: Some(line), ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Warning => "warning",
            Severity::Violation => "error",
        };
        write!(f, "{word}[{}]: {}", self.rule, self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}
