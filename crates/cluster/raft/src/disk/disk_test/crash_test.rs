//! A crash at any write or force loses nothing that was acknowledged and takes back no vote.

use std::collections::BTreeMap;

use spillway_types::{DiskId, NodeId};

use super::faulty::{Fault, FaultyDisk};
use crate::disk::log_file::{LogChange, LogFile, LogState};
use crate::raft::{CommandFrame, Entry, Payload};
use crate::wire::{Ballot, EntryRecord, Point};

/// Logs that live and crash several times each.
const LIVES: u64 = 256;
/// Crashes in each.
const CRASHES: usize = 4;
/// Writes and forces before a crash, at most: opening takes about ten, a commit about five.
const STEPS_MAX: usize = 60;

/// Expected contents of a log.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    ballot: Option<Ballot>,
    committed: Option<Point>,
    purged: Option<Point>,
    entries: BTreeMap<u64, EntryRecord>,
}

impl Model {
    fn new() -> Self {
        Self { ballot: None, committed: None, purged: None, entries: BTreeMap::new() }
    }

    fn of(file: &LogFile, entries: Vec<EntryRecord>) -> Self {
        let LogState { ballot, committed, purged, .. } = *file.state();
        let entries = entries.into_iter().map(|entry| (entry.at().index, entry)).collect();
        Self { ballot, committed, purged, entries }
    }

    fn last(&self) -> Option<Point> {
        self.entries.values().next_back().map(EntryRecord::at).or(self.purged)
    }

    fn next_index(&self) -> u64 {
        self.last().map_or(0, |last| last.index + 1)
    }

    /// Returns a random change that Raft may ask the log to write now.
    fn change(&mut self, random: &mut fastrand::Rng) -> Vec<LogChange> {
        let term = self.ballot.map_or(0, |ballot| ballot.term);
        let floor = self.committed.or(self.purged).map_or(0, |at| at.index + 1);
        match random.u8(0..10) {
            _ if term == 0 => self.vote(1, random),
            0 | 1 => self.vote(term + 1, random),
            2 => {
                let from = random.u64(floor..=self.next_index().max(floor));
                self.entries.split_off(&from);
                vec![LogChange::TruncateFrom(from)]
            }
            3 => {
                self.committed = self.last();
                vec![LogChange::Committed(self.committed)]
            }
            4 => match self.committed.filter(|committed| Some(*committed) > self.purged) {
                Some(upto) => {
                    self.entries = self.entries.split_off(&(upto.index + 1));
                    self.purged = Some(upto);
                    vec![LogChange::Purge(upto)]
                }
                None => self.vote(term + 1, random),
            },
            _ => (0..random.u64(1..5)).map(|_| self.append(term, random)).collect(),
        }
    }

    fn vote(&mut self, term: u64, random: &mut fastrand::Rng) -> Vec<LogChange> {
        let ballot = Ballot { term, node: NodeId(random.u64(1..4)), is_won: random.bool() };
        self.ballot = Some(ballot);
        vec![LogChange::Ballot(ballot)]
    }

    fn append(&mut self, term: u64, random: &mut fastrand::Rng) -> LogChange {
        let at = Point { term, index: self.next_index() };
        let length = [10, 100, 3_000, 9_000][random.usize(0..4)];
        let command = CommandFrame(vec![random.u8(..); length].into());
        let entry = Entry { log_id: at.into(), payload: Payload::Normal(command) };
        let record = EntryRecord::from(&entry);
        self.entries.insert(at.index, record.clone());
        LogChange::Append(at, spillway_codec::encode(&record).unwrap())
    }
}

fn open(
    log: &FaultyDisk,
    commit_marker: &FaultyDisk,
) -> Result<(LogFile, Model), crate::DiskError> {
    let (file, entries) = LogFile::open(log.clone(), Box::new(commit_marker.clone()))?;
    let model = Model::of(&file, entries);
    Ok((file, model))
}

/// Runs one log, which lives until a crash, again and again. Returns how many crashes hit a write.
fn live(seed: u64) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut log, mut commit_marker) = (FaultyDisk::default(), FaultyDisk::default());
    LogFile::create(log.clone(), LogState::new(NodeId(1), DiskId(77))).unwrap();
    // Writes that were acknowledged, and writes that were in progress at the crash.
    let (mut acknowledged, mut attempted) = (Model::new(), Model::new());
    let mut hits = 0;
    for crash in 0..CRASHES {
        log.set(Fault::Crash(random.usize(0..STEPS_MAX)));
        commit_marker.set(Fault::Crash(random.usize(0..STEPS_MAX)));
        let mut alive = open(&log, &commit_marker).map(|(file, found)| {
            let is_right = found == acknowledged || found == attempted;
            assert!(is_right, "seed {seed}, crash {crash}:\n{found:?}\n{acknowledged:?}");
            acknowledged = found;
            file
        });
        while let Ok(file) = &mut alive {
            attempted = acknowledged.clone();
            let changes = attempted.change(&mut random);
            match file.write(&changes) {
                Ok(()) => acknowledged = attempted.clone(),
                Err(_) => break,
            }
        }
        hits += 1;
        drop(alive);
        let after = (log.after_crash(&mut random), commit_marker.after_crash(&mut random));
        (log, commit_marker) = (FaultyDisk::of(after.0), FaultyDisk::of(after.1));
    }
    // A disk in order always opens, with all that was acknowledged.
    let (_, found) =
        open(&log, &commit_marker).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    let is_right = found == acknowledged || found == attempted;
    assert!(is_right, "seed {seed}:\n{found:?}\n{acknowledged:?}");
    hits
}

fn lives(seeds: std::ops::Range<u64>) {
    let hits: usize = seeds.clone().map(live).sum();
    assert_eq!(hits, seeds.count() * CRASHES);
}

// Four tests, so that they run beside each other: 1,024 crashes.
#[test]
fn crashes_lose_nothing_acknowledged_1() {
    lives(0..LIVES / 4);
}

#[test]
fn crashes_lose_nothing_acknowledged_2() {
    lives(LIVES / 4..LIVES / 2);
}

#[test]
fn crashes_lose_nothing_acknowledged_3() {
    lives(LIVES / 2..LIVES / 4 * 3);
}

#[test]
fn crashes_lose_nothing_acknowledged_4() {
    lives(LIVES / 4 * 3..LIVES);
}
