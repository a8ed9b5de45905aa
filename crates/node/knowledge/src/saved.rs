//! Learned speeds, kept over a restart.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use spillway_codec::{DecodeError, Wire, decode_payload};
use spillway_files::SaveError;
use spillway_route::{LatencyModel, LatencyModelV1, LatencyModelV2};
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
    const VERSION: u16 = 3;
    // As many models as are kept, with names of 200 bytes each.
    const BYTES_MAX: usize = 16 << 20;

    fn decode_older(version: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        match version {
            1 => Ok(decode_payload::<SavedBefore<LatencyModelV1>>(payload)?.renewed()),
            2 => Ok(decode_payload::<SavedBefore<LatencyModelV2>>(payload)?.renewed()),
            found => Err(DecodeError::Version { kind: Self::KIND, found, newest: Self::VERSION }),
        }
    }
}

/// An older version of [`Saved`].
#[derive(Debug, Deserialize)]
struct SavedBefore<M> {
    models: Vec<(ReplicaName, ModelName, M)>,
}

impl<M> SavedBefore<M>
where
    LatencyModel: TryFrom<M>,
{
    /// Returns the models that make sense; the others are learned again.
    fn renewed(self) -> Saved {
        let models = self.models.into_iter().filter_map(|(replica, model, it)| {
            Some((replica, model, LatencyModel::try_from(it).ok()?))
        });
        Saved { models: models.collect() }
    }
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
    Ok(spillway_files::load::<Saved>(path)?.map(|saved| saved.models).unwrap_or_default())
}

/// Writes `models`: either all of the file is new afterwards, or nothing.
///
/// # Errors
/// Returns an error if the disk does not take it; the former content stays.
pub(super) fn save(
    path: &Path,
    models: Vec<(ReplicaName, ModelName, LatencyModel)>,
) -> Result<(), SaveError> {
    spillway_files::save(path, &Saved { models })
}

#[cfg(test)]
mod tests {
    use spillway_codec::golden;
    use spillway_route::Beside;
    use spillway_types::Speed;

    use super::*;

    #[test]
    fn the_bytes_of_the_file_are_those_on_file() {
        let mut model = LatencyModel::new(Speed::UNKNOWN);
        model.learn_decode(100.0, 2_500.0, Beside::default());
        model.learn_text(400.0, 90.0);
        model.set_kv_tokens(50_000.0);
        let saved = Saved { models: vec![("gpu-1".into(), "llama".into(), model)] };
        golden::check(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"), "speeds", &saved);
    }

    #[test]
    fn what_older_versions_learned_of_a_token_is_read() {
        let files =
            [include_str!("../golden/speeds.v1.hex"), include_str!("../golden/speeds.v2.hex")];
        files.into_iter().for_each(is_read);
    }

    fn is_read(file: &str) {
        let frame = file.replace(char::is_whitespace, "");
        let bytes = (0..frame.len()).step_by(2).map(|at| &frame[at..at + 2]);
        let bytes: Vec<u8> = bytes.map(|hex| u8::from_str_radix(hex, 16).unwrap()).collect();
        let old: Saved = spillway_codec::decode(&bytes).unwrap();
        let [(_, _, model)] = &old.models[..] else { panic!("{old:?}") };
        let Speed { decode_ms, kv_tokens, .. } = model.speed(0);
        // A hundred tokens of 25 ms, and the profile's 15 ms count as much.
        assert!((19.5..25.5).contains(&decode_ms), "{decode_ms}");
        assert_eq!(kv_tokens, 50_000.0);
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
