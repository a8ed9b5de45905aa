//! Files and folders of a node that only its own user may read, whatever the umask is.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// Permissions of everybody but the owner.
const OTHERS: u32 = 0o077;
/// A folder that several users share, such as `/tmp`.
const STICKY: u32 = 0o1000;

/// Makes an empty file in place of what is there. Another user who has the old one open does not see
/// the new one.
///
/// # Errors
/// If the system refuses.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    // A umask may have taken permissions away from the owner, too.
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}

/// Opens a file to read and write it, and makes an empty one if it is not there.
///
/// # Errors
/// If the system refuses.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(FILE_MODE).open(path)?;
    if file.metadata()?.permissions().mode() & OTHERS != 0 {
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    }
    Ok(file)
}

/// Makes a folder unless it is there. The folder around it is not made: one that is missing is a path
/// with an error, or a disk that is not mounted.
///
/// # Errors
/// If the system refuses, or the folder around it is missing.
pub fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    match DirBuilder::new().mode(FOLDER_MODE).create(path) {
        // Another thread or process was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Removes the access of other users to a node's folder and the files in it, and logs that. Where
/// the system refuses, as with a volume of another owner, the files are closed at least. A folder
/// that users share stays as it is.
///
/// # Errors
/// Returns an error if the folder can't be read.
pub fn tighten(folder: &Path) -> io::Result<()> {
    let mode = fs::metadata(folder)?.permissions().mode();
    let path = folder.display();
    if mode & OTHERS != 0 && mode & STICKY == 0 {
        let closed = fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE));
        let mode = format!("{:04o}", mode & 0o7777);
        match closed {
            Ok(()) => tracing::warn!(%path, mode, "the folder was open to others and is 0700 now"),
            Err(error) => {
                tracing::warn!(%path, mode, %error, "the folder is open to others: make it 0700");
            }
        }
    }
    tighten_files(folder)
}

fn tighten_files(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let data = fs::symlink_metadata(&path)?;
        let mode = data.permissions().mode();
        // A link may lead to a file that is not the node's.
        if !data.is_file() || mode & OTHERS == 0 {
            continue;
        }
        let closed = fs::set_permissions(&path, Permissions::from_mode(FILE_MODE));
        let (path, mode) = (path.display(), format!("{:04o}", mode & 0o7777));
        match closed {
            Ok(()) => tracing::warn!(%path, mode, "the file was open to others and is 0600 now"),
            Err(error) => {
                tracing::warn!(%path, mode, %error, "the file is open to others: make it 0600");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_made_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        make_folder(&data).unwrap();
        assert_eq!(mode(&data), 0o700);
        for made in [create(&data.join("a")), open(&data.join("b"))] {
            made.unwrap().write_all(b"x").unwrap();
        }
        assert_eq!((mode(&data.join("a")), mode(&data.join("b"))), (0o600, 0o600));
        make_folder(&data).unwrap();
    }

    #[test]
    fn a_folder_is_made_in_no_missing_one() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let made = make_folder(&missing.join("data"));
        assert_eq!(made.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!missing.exists());
    }

    #[test]
    fn what_was_open_to_others_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(data.join(name), name).unwrap();
            set_mode(&data.join(name), 0o666);
        }
        create(&data.join("a")).unwrap();
        open(&data.join("b")).unwrap();
        assert_eq!((mode(&data.join("a")), mode(&data.join("b"))), (0o600, 0o600));
        assert_eq!(fs::read(data.join("b")).unwrap(), b"b", "what is there stays");
        set_mode(&data, 0o755);
        tighten(&data).unwrap();
        assert_eq!((mode(&data), mode(&data.join("c"))), (0o700, 0o600));
    }

    #[test]
    fn what_a_link_in_the_folder_leads_to_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (data, elsewhere) = (folder.path().join("data"), folder.path().join("elsewhere"));
        fs::create_dir(&data).unwrap();
        fs::write(&elsewhere, "x").unwrap();
        set_mode(&elsewhere, 0o644);
        std::os::unix::fs::symlink(&elsewhere, data.join("link")).unwrap();
        tighten(&data).unwrap();
        assert_eq!(mode(&elsewhere), 0o644);
    }

    #[test]
    fn a_folder_that_users_share_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o1777);
        tighten(folder.path()).unwrap();
        assert_eq!(mode(folder.path()), 0o1777);
    }
}
