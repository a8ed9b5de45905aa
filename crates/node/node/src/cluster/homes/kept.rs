//! File of homes, for the node's next process: if all nodes end at the same time, no other process
//! knows them.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::ALL_BYTES_MAX;
use super::wire::Homes;

/// Name of the file in the folder of the cluster's state.
const FILE: &str = "homes";

/// Returns the file in a folder.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// Reads the homes of the last process; none without a file, or with one that is damaged. Blocks for as
/// long as the disk needs.
pub(super) fn load(path: &Path) -> Homes {
    read(path).unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::warn!(%error, path = %path.display(), "homes of the last process are lost");
        }
        Homes::default()
    })
}

fn read(path: &Path) -> io::Result<Homes> {
    let mut bytes = Vec::new();
    File::open(path)?.take(ALL_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Writes homes: all of them, or the former file stays. A loss of power may take the latest ones. Blocks
/// for as long as the disk needs.
///
/// # Errors
/// Returns an error if the disk does not take the file.
pub(super) fn save(path: &Path, homes: &Homes) -> io::Result<()> {
    let new = path.with_extension("new");
    // Ids of responses are private to their tenants.
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let mut writer = BufWriter::new(file);
    serde_json::to_writer(&mut writer, homes)?;
    writer.flush()?;
    std::fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_was_saved_is_loaded_and_damage_is_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = path(folder.path());
        assert_eq!(load(&path), Homes::default());
        let conversations = BTreeMap::from([("eu".into(), vec![1, u64::MAX])]);
        let homes = Homes { conversations, ..Homes::default() };
        save(&path, &homes).expect("a disk with room");
        assert_eq!(load(&path), homes);
        std::fs::write(&path, b"{").expect("a disk with room");
        assert_eq!(load(&path), Homes::default());
    }
}
