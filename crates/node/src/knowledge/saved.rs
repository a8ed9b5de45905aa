//! What was learned of speeds, kept over a restart.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use spillway_codec::{Wire, decode, encode};
use spillway_route::LatencyModel;
use spillway_types::{ModelName, ReplicaName};

/// The file's name in the data folder.
const FILE: &str = "speeds";

/// All that is kept, as it stands in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Saved {
    models: Vec<(ReplicaName, ModelName, LatencyModel)>,
}

impl Wire for Saved {
    const KIND: u16 = 0x0501;
    const VERSION: u16 = 2;
    // As many models as are kept, with names of 200 bytes each.
    const BYTES_MAX: usize = 16 << 20;
}

/// A file that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum SaveFault {
    #[error(transparent)]
    Disk(#[from] io::Error),
    #[error("it can't be written: {0}")]
    Encode(#[from] spillway_codec::EncodeError),
    #[error("it is no file of this version, or damaged: {0}")]
    Decode(#[from] spillway_codec::DecodeError),
}

/// Where it is kept.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// What was kept; nothing, if there is no such file.
///
/// # Errors
/// If the file can't be read, or holds something else.
pub(super) fn load(path: &Path) -> Result<Vec<(ReplicaName, ModelName, LatencyModel)>, SaveFault> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(decode::<Saved>(&bytes)?.models),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Keeps `models`: either all of the file is new afterwards, or nothing.
///
/// # Errors
/// If the disk does not take it; what was kept before stays.
pub(super) fn save(
    path: &Path,
    models: Vec<(ReplicaName, ModelName, LatencyModel)>,
) -> Result<(), SaveFault> {
    let bytes = encode(&Saved { models })?;
    let other = path.with_extension("new");
    let mut file = File::create(&other)?;
    file.write_all(&bytes)?;
    // Or after a loss of power there might be an empty file of that name.
    file.sync_all()?;
    std::fs::rename(&other, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use spillway_types::Speed;

    use super::*;

    fn models(count: usize) -> Vec<(ReplicaName, ModelName, LatencyModel)> {
        let model = |number: usize| {
            let replica = format!("gpu-{number}");
            (replica.as_str().into(), "llama".into(), LatencyModel::new(Speed::UNKNOWN))
        };
        (0..count).map(model).collect()
    }

    #[test]
    fn what_was_kept_is_there_again_and_replaces_what_was_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path());
        assert_eq!(load(&path).unwrap(), []);
        save(&path, models(3)).unwrap();
        save(&path, models(2)).unwrap();
        assert_eq!(load(&path).unwrap(), models(2));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
    }

    #[test]
    fn a_damaged_file_is_noticed_at_any_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path());
        save(&path, models(1)).unwrap();
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            assert!(load(&path).is_err(), "byte {at}");
            std::fs::write(&path, &good[..at]).unwrap();
            assert!(load(&path).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn where_nothing_can_be_written_the_old_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path());
        save(&path, models(1)).unwrap();
        std::fs::create_dir(path.with_extension("new")).unwrap();
        assert!(save(&path, models(2)).is_err());
        assert_eq!(load(&path).unwrap(), models(1));
    }

    #[test]
    fn as_many_models_as_are_kept_fit() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path());
        save(&path, models(16_384)).unwrap();
        assert_eq!(load(&path).unwrap().len(), 16_384);
    }
}
