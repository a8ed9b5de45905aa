//! Learned speeds, kept over a restart.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_raft::saved::{self, SaveError};
use spillway_route::LatencyModel;
use spillway_types::{ModelName, ReplicaName};

/// Name of the file in the data folder.
const FILE: &str = "speeds";

/// Content of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Saved {
    models: Vec<(ReplicaName, ModelName, LatencyModel)>,
}

impl Wire for Saved {
    const KIND: u16 = 0x0601;
    const VERSION: u16 = 1;
    // As many models as are kept, with names of 200 bytes each.
    const BYTES_MAX: usize = 16 << 20;
}

/// Returns the path of the file.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// Reads the kept models; none, if there is no such file.
///
/// # Errors
/// Returns an error if the file can't be read, or holds something else.
pub(super) fn load(path: &Path) -> Result<Vec<(ReplicaName, ModelName, LatencyModel)>, SaveError> {
    Ok(saved::load::<Saved>(path)?.map(|saved| saved.models).unwrap_or_default())
}

/// Writes `models`: either all of the file is new afterwards, or nothing.
///
/// # Errors
/// Returns an error if the disk does not take it; the former content stays.
pub(super) fn save(
    path: &Path,
    models: Vec<(ReplicaName, ModelName, LatencyModel)>,
) -> Result<(), SaveError> {
    saved::save(path, &Saved { models })
}

#[cfg(test)]
mod tests {
    use spillway_codec::golden;
    use spillway_types::Speed;

    use super::*;

    #[test]
    fn the_bytes_of_the_file_are_those_on_file() {
        let mut model = LatencyModel::new(Speed::UNKNOWN);
        model.learn_decode(100.0, 2_500.0);
        model.learn_text(400.0, 90.0);
        model.set_kv_tokens(50_000.0);
        let saved = Saved { models: vec![("gpu-1".into(), "llama".into(), model)] };
        golden::check(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"), "speeds", &saved);
    }

    fn models(count: usize) -> Vec<(ReplicaName, ModelName, LatencyModel)> {
        let model = |number: usize| {
            let replica = format!("gpu-{number}");
            (replica.as_str().into(), "llama".into(), LatencyModel::new(Speed::UNKNOWN))
        };
        (0..count).map(model).collect()
    }

    #[test]
    fn what_was_kept_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path());
        assert_eq!(load(&path).unwrap(), []);
        save(&path, models(3)).unwrap();
        assert_eq!(load(&path).unwrap(), models(3));
        std::fs::write(&path, b"damaged").unwrap();
        assert!(load(&path).is_err());
    }

    #[test]
    fn as_many_models_as_are_kept_fit() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path());
        save(&path, models(16_384)).unwrap();
        assert_eq!(load(&path).unwrap().len(), 16_384);
    }
}
