//! Table of published round trips: a JSON file with `data[from][to]` in milliseconds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Round trips between named regions.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Matrix {
    data: BTreeMap<String, BTreeMap<String, f64>>,
}

/// Error of a table of round trips.
#[derive(Debug, thiserror::Error)]
pub enum MatrixError {
    /// The file cannot be read.
    #[error("cannot read the round trips in {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file has another form.
    #[error("{}: expected {{\"data\": {{from: {{to: ms}}}}}}", path.display())]
    Form {
        /// Path of the file.
        path: PathBuf,
        /// Cause, with the place in the file.
        source: serde_json::Error,
    },
}

impl Matrix {
    pub(crate) fn read(path: &Path) -> Result<Self, MatrixError> {
        let path = path.to_owned();
        match std::fs::read(&path) {
            Ok(text) => {
                serde_json::from_slice(&text).map_err(|source| MatrixError::Form { path, source })
            }
            Err(source) => Err(MatrixError::Read { path, source }),
        }
    }

    /// Returns the round trip between two regions, or the mean if both directions were measured: a
    /// round trip has no direction, so two measurements differ only by chance. `None` if neither
    /// was.
    pub(crate) fn rtt_ms(&self, one: &str, other: &str) -> Option<f64> {
        let measured = |from: &str, to: &str| self.data.get(from)?.get(to).copied();
        match (measured(one, other), measured(other, one)) {
            (Some(there), Some(back)) => Some(f64::midpoint(there, back)),
            (one_way, other_way) => one_way.or(other_way),
        }
    }
}
