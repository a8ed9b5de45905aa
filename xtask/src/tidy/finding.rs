//! What a check says about the tree.

use std::fmt;

use serde::Serialize;

/// One place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// The rule's short name.
    pub(crate) rule: &'static str,
    /// Relative to the workspace root.
    pub(crate) file: String,
    /// Counted from 1; `None` when the whole file is meant.
    pub(crate) line: Option<usize>,
    pub(crate) message: String,
}

/// Whether a finding fails the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Shown only.
    Warning,
    /// Fails the run.
    Violation,
}

impl Finding {
    /// A violation of `rule` by `file` as a whole.
    pub(crate) fn violation(rule: &'static str, file: &str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Violation,
            rule,
            file: file.to_owned(),
            line: None,
            message: message.into(),
        }
    }

    /// The same finding as a warning.
    pub(crate) fn into_warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }

    /// The same finding at `line`, counted from 1.
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
