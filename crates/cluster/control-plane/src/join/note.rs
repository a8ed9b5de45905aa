//! Note of the disk id that a node asks to join with. The note is written before the first
//! question, so that a node that restarts before it has joined asks again as the same node.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use spillway_files::private;
use spillway_raft::{DiskError, RaftStartError, random_id};
use spillway_types::DiskId;

/// Name of the note, beside the log's own files.
const NOTE: &str = "joining";

/// Returns the disk id that the folder is to have: the one in the note, or a new one.
pub(crate) fn disk_to_join_with(folder: &Path) -> Result<DiskId, RaftStartError> {
    let fault = |what: &str, error: io::Error| {
        let what = format!("{what} {}", folder.join(NOTE).display());
        RaftStartError::Disk(DiskError::io(what)(error))
    };
    match fs::read_to_string(folder.join(NOTE)) {
        Ok(text) => {
            let disk = u128::from_str_radix(text.trim(), 16);
            disk.map(DiskId).map_err(|error| fault("reading", io::Error::other(error)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let disk = random_id();
            let disk =
                disk.map_err(|error| fault("naming the disk for", io::Error::other(error)))?;
            write(folder, disk).map_err(|error| fault("writing", error))?;
            Ok(disk)
        }
        Err(error) => Err(fault("reading", error)),
    }
}

/// Writes the note. When this returns, the whole note is on disk.
fn write(folder: &Path, disk: DiskId) -> io::Result<()> {
    private::make_folder(folder)?;
    let part = folder.join("joining.part");
    let mut file = private::create(&part)?;
    writeln!(file, "{disk}")?;
    // The content must be on disk before the name is.
    file.sync_all()?;
    fs::rename(&part, folder.join(NOTE))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_disk_until_it_is_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let first = disk_to_join_with(&data).unwrap();
        assert_eq!(disk_to_join_with(&data).unwrap(), first);
        fs::remove_dir_all(&data).unwrap();
        assert_ne!(disk_to_join_with(&data).unwrap(), first);
        fs::write(data.join(NOTE), "no number").unwrap();
        assert!(disk_to_join_with(&data).unwrap_err().to_string().contains("joining"));
    }
}
