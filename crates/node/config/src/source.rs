//! Text of a config: its file, and the environment variables that override parts of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;

use crate::error::{ConfigError, Mark, Severity, Shown, SourcePosition};
use crate::secrets::{is_secret, masked};

/// Text of a config, for turning byte ranges into lines.
///
/// The variables follow the file's text, as if they were lines of it. So a byte range shows of each
/// value whether the file or a variable set it.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    text: String,
    /// Length of the file's own text.
    file_bytes: usize,
    variables: Vec<Variable>,
    shown: Shown,
    files: RefCell<ReadFiles>,
}

/// Files that a config names, with a hash of each file's content: the config is read again when one
/// of them changes.
pub type ReadFiles = BTreeMap<PathBuf, u64>;

/// An environment variable that overrides a setting.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) name: String,
    /// Position of the name in the text.
    pub(crate) name_at: Range<usize>,
    /// Position of the value in the text.
    pub(crate) value_at: Range<usize>,
}

impl Source {
    pub(crate) fn new(path: &Path, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            file_bytes: text.len(),
            variables: Vec::new(),
            shown: Shown(masked(text).into()),
            files: RefCell::default(),
        }
    }

    /// Reads a file that the config names, relative to its folder, and remembers the file.
    ///
    /// # Errors
    /// Returns an error if the file can't be read.
    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.resolve(name);
        let read = std::fs::read(&path);
        let mut hasher = DefaultHasher::new();
        read.as_deref().unwrap_or_default().hash(&mut hasher);
        self.files.borrow_mut().insert(path, hasher.finish());
        read
    }

    /// Returns the files that were read so far.
    pub(crate) fn files(&self) -> ReadFiles {
        self.files.borrow().clone()
    }

    /// Adds environment variables, given as names and values.
    pub(crate) fn with_variables(mut self, variables: Vec<(String, String)>) -> Self {
        for (name, value) in variables {
            // A line break apart from the text before, so that no two ranges touch.
            self.text.push('\n');
            let start = self.text.len();
            let name_at = start..start + name.len();
            let value_at = name_at.end + 1..name_at.end + 1 + value.len();
            self.text.push_str(&format!("{name}={value}"));
            self.variables.push(Variable { name, name_at, value_at });
        }
        self
    }

    /// Returns the file's text.
    pub(crate) fn text(&self) -> &str {
        &self.text[..self.file_bytes]
    }

    pub(crate) fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// Returns a part of the text, which may be a variable's value.
    pub(crate) fn part(&self, at: Range<usize>) -> &str {
        self.text.get(at).unwrap_or_default()
    }

    /// Creates an error at a byte range of the text. An empty range at 0 means that the value is
    /// not in the text.
    pub(crate) fn fault(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ConfigError {
        ConfigError {
            severity: Severity::Error,
            message: message.into(),
            label: String::new(),
            remedy: remedy.into(),
            place: Box::new(self.place(span)),
        }
    }

    /// Creates an error at a byte range of the text that collides with an earlier one.
    pub(crate) fn collision(
        &self,
        span: Range<usize>,
        earlier: Range<usize>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ConfigError {
        let mut error = self.fault(span, message, remedy).labelled("the second one");
        let is_shown = |at: &Range<usize>| *at != (0..0) && at.end <= self.file_bytes;
        if error.place.variable.is_none() && is_shown(&earlier) {
            error.place.earlier = Some((mark(self.text(), earlier), "the first one".to_owned()));
        }
        error
    }

    fn place(&self, span: Range<usize>) -> SourcePosition {
        let variable = self.variables.iter().find(|variable| {
            (variable.name_at.start..=variable.value_at.end).contains(&span.start)
        });
        let Some(variable) = variable else {
            let mark = (span != (0..0)).then(|| mark(self.text(), span.clone()));
            let (path, shown) = (self.path.clone(), self.shown.clone());
            return SourcePosition { path, variable: None, span, mark, earlier: None, shown };
        };
        let (start, end) = (variable.name_at.start, variable.value_at.end);
        let line = &self.text[start..end];
        let in_line = span.start - start..span.end.min(end).saturating_sub(start);
        let mark = mark(line, in_line);
        SourcePosition {
            path: self.path.clone(),
            span,
            variable: Some(variable.name.clone()),
            mark: Some(mark),
            earlier: None,
            shown: Shown(Arc::from(self.variable_shown(variable))),
        }
    }

    fn variable_shown(&self, variable: &Variable) -> String {
        let value = self.part(variable.value_at.clone());
        let last = variable.name.rsplit("__").next().unwrap_or_default();
        let value = if is_secret(last) { "*".repeat(value.len()) } else { masked(value) };
        format!("{}={value}", variable.name)
    }

    /// Returns the path of a file that the config names: relative names are relative to the
    /// config's folder.
    pub(crate) fn resolve(&self, name: &str) -> PathBuf {
        self.path.parent().unwrap_or_else(|| Path::new("")).join(name)
    }
}

/// Marks a byte range of a text.
fn mark(text: &str, span: Range<usize>) -> Mark {
    let span = span.start.min(text.len())..span.end.min(text.len()).max(span.start.min(text.len()));
    Mark { start: position(text, span.start), end: position(text, span.end), span }
}

/// Returns line and column of a byte, counted from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|character| *character != '\n').count() + 1;
    (line, column)
}

/// Reads a file named in the config.
///
/// # Errors
/// Returns an error if the file can't be read, with the line that names it.
pub(crate) fn read_file(name: &Spanned<String>, source: &Source) -> Result<Vec<u8>, ConfigError> {
    source.read(name.get_ref()).map_err(|error| {
        let message = format!("can't read {}: {error}", name.get_ref());
        source.fault(name.span(), message, "check the path and the file's rights")
    })
}
