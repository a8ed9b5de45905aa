//! Published round trips: a JSON file with `data[from][to]` in milliseconds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Round trips between named regions.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Matrix {
    data: BTreeMap<String, BTreeMap<String, f64>>,
}

/// A file of round trips cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MatrixError {
    /// It is not there or not to be read.
    #[error("cannot read the round trips in {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It has another form.
    #[error("{}: expected {{\"data\": {{from: {{to: ms}}}}}}", path.display())]
    Form {
        /// Which file.
        path: PathBuf,
        /// Where it is wrong.
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

    /// The mean of both directions where both were measured: a round trip has no direction, and
    /// two measurements of it differ only by chance.
    pub(crate) fn rtt_ms(&self, one: &str, other: &str) -> Option<f64> {
        let measured = |from: &str, to: &str| self.data.get(from)?.get(to).copied();
        match (measured(one, other), measured(other, one)) {
            (Some(there), Some(back)) => Some(f64::midpoint(there, back)),
            (one_way, other_way) => one_way.or(other_way),
        }
    }
}
