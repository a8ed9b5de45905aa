//! A disk that changes or loses what it confirmed is refused, and never believed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use spillway_types::{DiskId, NodeId};

use super::faulty::FaultyDisk;
use crate::DiskError;
use crate::disk::log_file::{LogChange, LogFile, LogState};
use crate::raft::{Entry, Payload};
use crate::wire::{Ballot, EntryRecord, Point};

fn open(
    log: &FaultyDisk,
    commit_marker: &FaultyDisk,
) -> Result<(LogState, Vec<EntryRecord>), DiskError> {
    let opened = LogFile::open(log.clone(), Box::new(commit_marker.clone()));
    opened.map(|(file, entries)| (*file.state(), entries))
}

fn create(log: &FaultyDisk, commit_marker: &FaultyDisk) -> LogFile {
    LogFile::create(log.clone(), LogState::new(NodeId(1), DiskId(77))).unwrap();
    LogFile::open(log.clone(), Box::new(commit_marker.clone())).unwrap().0
}

fn blank(index: u64) -> LogChange {
    let at = Point { term: 3, index };
    let entry = Entry { log_id: at.into(), payload: Payload::Blank };
    LogChange::Append(at, spillway_codec::encode(&EntryRecord::from(&entry)).unwrap())
}

/// The bytes of a log and of its commit marker.
type Images = (Vec<u8>, Vec<u8>);

/// A log with a vote and 20 entries, and the images of it after each of the last writes.
fn written() -> (FaultyDisk, FaultyDisk, Vec<Images>) {
    let (log, commit_marker) = (FaultyDisk::default(), FaultyDisk::default());
    let mut file = create(&log, &commit_marker);
    let ballot = Ballot { term: 3, node: NodeId(2), is_won: false };
    file.write(&[LogChange::Ballot(ballot)]).unwrap();
    let mut images = Vec::new();
    for index in 0..20 {
        file.write(&[blank(index)]).unwrap();
        images.push((log.bytes(), commit_marker.bytes()));
    }
    file.write(&[LogChange::Committed(Some(Point { term: 3, index: 19 }))]).unwrap();
    drop(file);
    (log, commit_marker, images)
}

#[test]
fn a_flipped_bit_is_refused_or_makes_no_difference() {
    let (log, commit_marker, _) = written();
    let right = open(&log, &commit_marker).unwrap();
    let bytes = log.bytes();
    let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let mut random = fastrand::Rng::with_seed(1);
    let mut refused = 0;
    for _ in 0..400 {
        let mut flipped = bytes.clone();
        let at = used[random.usize(0..used.len())];
        flipped[at] ^= 1 << random.u8(0..8);
        let flipped = FaultyDisk::of(flipped);
        // A node opens its log where a panic is a refusal.
        match catch_unwind(AssertUnwindSafe(|| open(&flipped, &commit_marker))) {
            Ok(Ok(read)) => {
                // The number of the last commit may differ by what repairing writes.
                assert_eq!((read.0.ballot, &read.1), (right.0.ballot, &right.1), "byte {at}");
                assert_eq!(read.0.committed, right.0.committed, "byte {at}");
            }
            Ok(Err(_)) | Err(_) => refused += 1,
        }
    }
    // Most of a small file is unused pages and old roots.
    assert!(refused > 20, "{refused}");
}

#[test]
fn a_log_that_went_back_is_refused() {
    let (log, commit_marker, images) = written();
    assert!(open(&log, &commit_marker).is_ok());
    for (older, _) in &images {
        let fault = open(&FaultyDisk::of(older.clone()), &commit_marker).unwrap_err();
        assert!(matches!(fault, DiskError::Damaged { .. }), "{fault}");
    }
    // An older note is no lie: it was never forced.
    for (_, older) in &images {
        open(&log, &FaultyDisk::of(older.clone())).unwrap();
    }
}

#[test]
fn a_log_without_its_end_is_refused() {
    let (log, commit_marker, _) = written();
    for (remove, expected) in [(15, true), (20, false)] {
        let log = FaultyDisk::of(log.bytes());
        let unwatched = Box::new(FaultyDisk::default());
        let (mut file, _) = LogFile::open(log.clone(), unwatched).unwrap();
        file.write(&[LogChange::TruncateFrom(remove)]).unwrap();
        drop(file);
        let note = FaultyDisk::default();
        let opened = open(&log, &note);
        assert_eq!(opened.is_err(), expected, "{opened:?}");
    }
    assert!(open(&log, &commit_marker).is_ok());
}

#[test]
fn holes_old_terms_and_votes_that_went_back_are_refused() {
    let at = |term, index| Point { term, index };
    let append = |term, index| {
        let entry = Entry { log_id: at(term, index).into(), payload: Payload::Blank };
        LogChange::Append(
            at(term, index),
            spillway_codec::encode(&EntryRecord::from(&entry)).unwrap(),
        )
    };
    let ballot = |term| LogChange::Ballot(Ballot { term, node: NodeId(1), is_won: true });
    let cases: [(&str, Vec<LogChange>, bool); 6] = [
        ("right", vec![ballot(2), append(1, 0), append(2, 1)], true),
        ("a hole", vec![ballot(2), append(1, 0), append(2, 2)], false),
        ("no beginning", vec![ballot(2), append(1, 1)], false),
        ("an older term", vec![ballot(2), append(2, 0), append(1, 1)], false),
        ("a term without a vote", vec![ballot(1), append(2, 0)], false),
        ("purged beyond", vec![ballot(2), LogChange::Purge(at(1, 5)), append(1, 7)], false),
    ];
    for (what, changes, is_right) in cases {
        let (log, commit_marker) = (FaultyDisk::default(), FaultyDisk::default());
        let mut file = create(&log, &commit_marker);
        file.write(&changes).unwrap();
        drop(file);
        assert_eq!(open(&log, &commit_marker).is_ok(), is_right, "{what}");
    }
}

#[test]
fn a_log_of_a_later_version_is_told_from_a_damaged_one() {
    let (log, commit_marker) = (FaultyDisk::default(), FaultyDisk::default());
    let mut file = create(&log, &commit_marker);
    let at = Point { term: 1, index: 0 };
    let ballot = Ballot { term: 1, node: NodeId(1), is_won: true };
    file.write(&[LogChange::Ballot(ballot), LogChange::Append(at, later_version())]).unwrap();
    drop(file);
    let fault = open(&log, &commit_marker).unwrap_err();
    assert!(matches!(fault, DiskError::Newer { .. }), "{fault}");
}

/// The frame of an entry as a later version might write it.
fn later_version() -> bytes::Bytes {
    use serde::{Deserialize, Serialize};
    #[derive(Serialize, Deserialize)]
    struct Later(u64);
    impl spillway_codec::Wire for Later {
        const KIND: u16 = 0x0401;
        const VERSION: u16 = 99;
        const BYTES_MAX: usize = 100;
    }
    spillway_codec::encode(&Later(1)).unwrap()
}
