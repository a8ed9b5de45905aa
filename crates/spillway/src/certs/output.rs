//! Output of the commands that write certificates: a report for programs, or files for people.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::output;

/// Prints `report` as JSON, or the files of `lines`, each with the place where it belongs.
///
/// # Errors
/// Returns an error if standard output is closed.
pub(super) fn show(as_json: bool, report: &Value, lines: &[(&str, &Path)]) -> Result<()> {
    if as_json {
        return Ok(output::line(&report.to_string())?);
    }
    for (place, path) in lines {
        output::line(&format!("{:<40} {place}", path.display()))?;
    }
    Ok(())
}
