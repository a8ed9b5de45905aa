//! Standard output and error, for what people and scripts read.

use std::io::{Write, stderr, stdout};

/// Writes one line to standard output.
///
/// # Errors
/// If nobody reads it any more.
pub(crate) fn line(text: &str) -> std::io::Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Writes a line to standard error that is no part of a command's output.
pub(crate) fn note(text: &str) {
    // If even this can't be written there is nowhere left to say so.
    drop(writeln!(stderr().lock(), "{text}"));
}

/// Writes an error and its causes to standard error.
pub(crate) fn error(error: &anyhow::Error) {
    // If even this can't be written there is nowhere left to say so.
    drop(writeln!(stderr().lock(), "spillway: {error:#}"));
}
