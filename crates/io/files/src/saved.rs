//! Files that a node keeps for its next process: one checked frame each, written as a whole or not
//! at all.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use spillway_codec::{DecodeError, EncodeError, Wire, decode, encode};

use crate::private;

/// Error of a file that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// Error of the disk.
    #[error(transparent)]
    Disk(#[from] io::Error),
    /// Error of a value that has no frame.
    #[error("it can't be written: {0}")]
    Encode(#[from] EncodeError),
    /// Error of bytes that are no frame of this version.
    #[error("it is no file of this version, or damaged: {0}")]
    Decode(#[from] DecodeError),
}

/// Reads a kept value; `None` if there is no such file.
///
/// # Errors
/// Returns an error if the file can't be read, or holds something else.
pub fn load<T: Wire>(path: &Path) -> Result<Option<T>, SaveError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(decode(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes `saved`: either all of the file is new afterwards, or nothing.
///
/// # Errors
/// Returns an error if the disk does not take it; the former content stays.
pub fn save<T: Wire>(path: &Path, saved: &T) -> Result<(), SaveError> {
    // Otherwise a loss of power could leave an empty file of that name.
    write(path, saved)?.sync_all()?;
    std::fs::rename(path.with_extension("new"), path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Writes `saved` without waiting for the disk: the file outlives the process, but maybe not a loss
/// of power.
///
/// # Errors
/// Returns the errors of [`save`].
pub fn save_unsynced<T: Wire>(path: &Path, saved: &T) -> Result<(), SaveError> {
    drop(write(path, saved)?);
    Ok(std::fs::rename(path.with_extension("new"), path)?)
}

/// Writes `saved` into a file beside `path`.
fn write<T: Wire>(path: &Path, saved: &T) -> Result<File, SaveError> {
    let bytes = encode(saved)?;
    let mut file = private::create(&path.with_extension("new"))?;
    file.write_all(&bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Numbers(Vec<u32>);

    impl Wire for Numbers {
        const KIND: u16 = 0x05ff;
        const VERSION: u16 = 1;
        const BYTES_MAX: usize = 64;
    }

    fn read(path: &Path) -> Option<Numbers> {
        load(path).unwrap()
    }

    #[test]
    fn what_was_kept_is_there_again_and_replaces_what_was_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        assert_eq!(read(&path), None);
        for numbers in [Numbers(vec![1, 2, 3]), Numbers(vec![4])] {
            save(&path, &numbers).unwrap();
            assert_eq!(read(&path), Some(numbers));
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "nobody else reads it");
    }

    #[test]
    fn a_damaged_file_is_noticed_at_any_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        save(&path, &Numbers(vec![7, 8])).unwrap();
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            assert!(matches!(load::<Numbers>(&path), Err(SaveError::Decode(_))), "byte {at}");
            std::fs::write(&path, &good[..at]).unwrap();
            assert!(load::<Numbers>(&path).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn where_nothing_can_be_written_the_old_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        save(&path, &Numbers(vec![1])).unwrap();
        let long = Numbers((0..100).collect());
        assert!(matches!(save(&path, &long), Err(SaveError::Encode(_))));
        std::fs::create_dir(path.with_extension("new")).unwrap();
        assert!(matches!(save(&path, &Numbers(vec![2])), Err(SaveError::Disk(_))));
        assert_eq!(read(&path), Some(Numbers(vec![1])));
    }
}
