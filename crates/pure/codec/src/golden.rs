//! Golden vectors: the bytes of a message as they were when its version was made.
//!
//! For tests only. A crate with [`Wire`] messages calls [`check`] for a sample of each. The
//! function compares its frame with `golden/<name>.v<version>.hex` and reads the files of all older
//! versions. A changed message makes it fail, with a text that explains what to do.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::{Wire, decode, encode};

/// Environment variable that makes [`check`] write missing files.
pub const WRITE: &str = "SPILLWAY_GOLDEN_WRITE";

/// Compares the frame of `sample` with the vector of its version, and reads it and all older ones.
///
/// `folder` is that of the vectors, usually `concat!(env!("CARGO_MANIFEST_DIR"), "/golden")`.
///
/// # Panics
/// Panics if a byte differs, or if a vector is missing or can't be read. The message explains what
/// to do.
pub fn check<T: Wire + PartialEq + Debug>(folder: &str, name: &str, sample: &T) {
    let write = env::var_os(WRITE).is_some();
    if let Err(why) = examine(Path::new(folder), name, sample, write) {
        #[expect(clippy::panic, reason = "an assertion of tests")]
        {
            panic!("{why}");
        }
    }
}

fn examine<T: Wire + PartialEq + Debug>(
    folder: &Path,
    name: &str,
    sample: &T,
    write: bool,
) -> Result<(), String> {
    let frame = encode(sample).map_err(|error| format!("the sample of {name}: {error}"))?;
    let path = path(folder, name, T::VERSION);
    // An existing vector is never overwritten: its version must stay readable.
    if write && !path.exists() {
        fs::write(&path, to_hex(&frame)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let golden = read(&path)?;
    if golden != frame {
        return Err(format!(
            "The bytes of `{name}` are not those of {}. If the message was changed on purpose, \
             count `Wire::VERSION` up, read the old version in `Wire::decode_older`, leave the \
             file alone and run the test once with {WRITE}=1 to add one for the new version. If \
             only the sample was changed, change it back. Now it is:\n{}",
            path.display(),
            to_hex(&frame),
        ));
    }
    match decode::<T>(&golden) {
        Ok(read) if read == *sample => {}
        Ok(read) => return Err(format!("`{name}` reads back as {read:?}")),
        Err(error) => return Err(format!("`{name}` cannot be read back: {error}")),
    }
    older::<T>(folder, name)
}

/// Reads every older version that has a vector.
fn older<T: Wire>(folder: &Path, name: &str) -> Result<(), String> {
    for version in 0..T::VERSION {
        let path = path(folder, name, version);
        if path.exists() {
            decode::<T>(&read(&path)?).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn path(folder: &Path, name: &str, version: u16) -> PathBuf {
    folder.join(format!("{name}.v{version}.hex"))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let text = fs::read_to_string(path).map_err(|error| {
        format!("{}: {error}. Run the test once with {WRITE}=1 to make it.", path.display())
    })?;
    from_hex(&text).ok_or_else(|| format!("{} is not hexadecimal", path.display()))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.chunks(32).map(|line| hex::encode(line) + "\n").collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: String = text.split_whitespace().collect();
    hex::decode(digits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_message::{Note, NoteV1};

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");

    #[test]
    fn the_bytes_of_the_test_message_are_those_on_file() {
        check(FOLDER, "note", &NoteV1 { count: 5, text: "old".to_owned() });
        check(FOLDER, "note", &Note::sample());
    }

    #[test]
    fn a_changed_message_is_noticed_and_the_way_on_is_told() {
        let other = Note { count: 8, ..Note::sample() };
        let why = examine(Path::new(FOLDER), "note", &other, false).unwrap_err();
        assert!(why.contains("count `Wire::VERSION` up"), "{why}");
    }

    #[test]
    fn a_missing_vector_is_noticed_and_the_way_on_is_told() {
        let why = examine(Path::new(FOLDER), "nothing", &Note::sample(), false).unwrap_err();
        assert!(why.contains(WRITE), "{why}");
    }

    #[test]
    fn an_older_vector_that_cannot_be_read_any_more_is_noticed() {
        // The vector of its first version lacks a byte.
        let why = examine(Path::new(FOLDER), "unreadable", &Note::sample(), false).unwrap_err();
        assert!(why.contains("unreadable.v1.hex"), "{why}");
    }

    #[test]
    fn hexadecimal_reads_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("0g"), None);
    }
}
