//! A second record of how far the log had come.
//!
//! After each commit of the log its number is noted here. If the log is found behind that number,
//! the disk has lost a commit that it had confirmed: a flipped bit in the newest root makes redb
//! fall back to the one before, as if the last commit had never been whole. The note is forced to
//! disk only with votes; when the power fails it may be old, which is no cause for alarm.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use spillway_codec::{HEADER_BYTES, Wire};
use spillway_files::private;
use spillway_types::DiskId;

use super::fault::DiskError;

/// Bytes of one of the two halves of the file: a note torn while written leaves the other.
const PLACE_BYTES: usize = 64;

/// Number of the log's last commit, and the log's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommitNote {
    #[serde(with = "crate::wire::number")]
    pub(crate) disk: DiskId,
    /// The number of the last commit.
    pub(crate) serial: u64,
}

impl Wire for CommitNote {
    const KIND: u16 = 0x0411;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = PLACE_BYTES - HEADER_BYTES;
}

/// Storage of notes.
pub(crate) trait CommitMarker: Send {
    /// The newest note; `None` if there never was one.
    fn read(&self) -> Result<Option<CommitNote>, DiskError>;

    /// Notes; with `force` it is on disk when this returns.
    fn write(&self, note: CommitNote, force: bool) -> Result<(), DiskError>;
}

/// Notes in a file.
#[derive(Debug)]
pub(crate) struct CommitMarkerFile(File);

impl CommitMarkerFile {
    pub(crate) fn open(path: &Path) -> Result<Self, DiskError> {
        let file = private::open(path);
        file.map(Self).map_err(DiskError::io(format!("opening {}", path.display())))
    }
}

impl CommitMarker for CommitMarkerFile {
    fn read(&self) -> Result<Option<CommitNote>, DiskError> {
        let reading = |error| DiskError::io("reading the witness")(error);
        let bytes = self.0.metadata().map_err(reading)?.len();
        let mut places = [0; 2 * PLACE_BYTES];
        let read = places.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.0.read_exact_at(&mut places[..read], 0).map_err(reading)?;
        Ok(newest(&places))
    }

    fn write(&self, note: CommitNote, force: bool) -> Result<(), DiskError> {
        let writing = |error| DiskError::io("writing the witness")(error);
        let (offset, place) = place_of(note)?;
        self.0.write_all_at(&place, offset).map_err(writing)?;
        if force { self.0.sync_data().map_err(writing) } else { Ok(()) }
    }
}

/// The newest whole note of both halves.
pub(crate) fn newest(places: &[u8]) -> Option<CommitNote> {
    let notes = places.chunks(PLACE_BYTES).filter_map(|place| {
        let bytes = usize::from(*place.first()?);
        spillway_codec::decode::<CommitNote>(place.get(1..=bytes)?).ok()
    });
    notes.max_by_key(|note| note.serial)
}

/// Returns the position of a note in the file, and its bytes.
pub(crate) fn place_of(note: CommitNote) -> Result<(u64, [u8; PLACE_BYTES]), DiskError> {
    let frame = spillway_codec::encode(&note)
        .map_err(|error| DiskError::io("encoding a note")(std::io::Error::other(error)))?;
    let mut place = [0; PLACE_BYTES];
    // A note is much shorter than its half of the file.
    place[0] = frame.len() as u8;
    place[1..=frame.len()].copy_from_slice(&frame);
    Ok((note.serial % 2 * PLACE_BYTES as u64, place))
}
