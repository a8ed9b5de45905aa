//! Knowledge of a node about the disks of other nodes. Pure: time is an argument, counted from any
//! fixed moment.
//!
//! A disk counts its commits, and each process draws a number when it starts. If a process starts
//! with a count below one that an earlier process reported, it runs on a disk from the past. If a
//! process reports again after another process of the same disk, two processes use the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_types::DiskId;

use crate::wire::DiskCount;

/// Maximum number of former processes of a disk that are remembered: a process that reports again
/// is among the last.
const FORMER_MAX: usize = 8;
/// Returns of former processes within [`WINDOW`] from which on two processes use one disk. A message
/// that was late makes two.
const RETURNS: usize = 3;
const WINDOW: Duration = Duration::from_secs(60);
/// Time for which two processes are reported after the last sign of them.
const TOLD: Duration = Duration::from_secs(300);
/// Disks that are remembered: more than a cluster has members.
const DISKS_MAX: usize = 4_096;
/// Disks of no member that are remembered: a node that was removed by mistake may come back, and its
/// disk may be from the past then.
const OTHERS_MAX: usize = 64;

/// Greatest count that a disk has reported, and the process that reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskRow {
    #[serde(with = "crate::wire::number")]
    pub(crate) disk: DiskId,
    process: u64,
    serial: u64,
}

/// Part of this knowledge that a node keeps for its next process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedDisks {
    pub(crate) rows: Vec<DiskRow>,
    /// Count of an earlier process of this node's own disk that it has not caught up with; 0 for
    /// none.
    pub(crate) past: u64,
}

impl Wire for SavedDisks {
    const KIND: u16 = 0x0413;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 64 * DISKS_MAX;
}

/// Discovery about another node's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskNews {
    /// A process has started, with all that its disk had reported.
    Started,
    /// A process has written for the first time: what its disk is put back to later is behind it.
    Written,
    /// A process has started on a disk from the past, which had reported this count.
    Past(u64),
    /// Two processes use the disk.
    Double,
}

/// Knowledge of the disks of other nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disks(BTreeMap<DiskId, KnownDisk>);

#[derive(Clone, Debug, Default)]
struct KnownDisk {
    process: u64,
    /// Greatest count reported by a process that was not behind an earlier one.
    serial: u64,
    /// Processes before the present one, and which of them were behind an earlier one.
    former: Vec<(u64, bool)>,
    /// True while the present process is behind an earlier one.
    is_past: bool,
    returned: Vec<Duration>,
    /// Time at which the disk was seen last; that of the start for one that the last process saw.
    seen: Duration,
}

impl Disks {
    pub(crate) fn new(rows: &[DiskRow]) -> Self {
        let known = |row: &DiskRow| KnownDisk {
            process: row.process,
            serial: row.serial,
            ..KnownDisk::default()
        };
        Self(rows.iter().map(|row| (row.disk, known(row))).collect())
    }

    /// Handles the report of a process about its disk.
    pub(crate) fn see(
        &mut self,
        disk: DiskId,
        count: DiskCount,
        now: Duration,
    ) -> Option<DiskNews> {
        if self.0.len() >= DISKS_MAX && !self.0.contains_key(&disk) {
            return None;
        }
        let known = self.0.entry(disk).or_default();
        known.seen = now;
        let mut news = if known.process == count.process { None } else { known.begin(count, now) };
        if known.is_past && count.cleared >= known.serial {
            known.is_past = false;
        }
        if !known.is_past {
            let is_first = known.serial <= count.began && count.began < count.serial;
            news = news.or_else(|| is_first.then_some(DiskNews::Written));
            known.serial = known.serial.max(count.serial);
        }
        news
    }

    /// Forgets disks that belong to none of the members, those seen longest ago first, until as few
    /// as there is room for are left. Returns true if it forgot any.
    pub(crate) fn forget(&mut self, members: &BTreeSet<DiskId>) -> bool {
        // One place stays free, so that a new member's disk is never one too many.
        let room = OTHERS_MAX.min(DISKS_MAX.saturating_sub(members.len() + 1));
        if self.0.len() <= room {
            return false;
        }
        let others = self.0.iter().filter(|(disk, _)| !members.contains(disk));
        let mut others: Vec<_> = others.map(|(disk, known)| (known.seen, *disk)).collect();
        let excess = others.len().saturating_sub(room);
        others.sort_unstable();
        others[..excess].iter().for_each(|(_, disk)| drop(self.0.remove(disk)));
        excess > 0
    }

    /// Returns the count that an earlier process of a disk has reported, if the present one is
    /// behind it.
    pub(crate) fn ahead(&self, disk: DiskId) -> Option<u64> {
        let known = self.0.get(&disk)?;
        known.is_past.then_some(known.serial)
    }

    /// Returns true if two processes use a disk.
    pub(crate) fn is_double(&self, disk: DiskId, now: Duration) -> bool {
        self.0.get(&disk).is_some_and(|known| known.is_double(now))
    }

    /// Returns true if a process is the present one of some disk, and has reported a greater count
    /// than the one it began with.
    #[cfg(test)]
    pub(crate) fn is_written(&self, process: u64, began: u64) -> bool {
        self.0.values().any(|known| known.process == process && known.serial > began)
    }

    /// Returns what the next process of this node has to know.
    pub(crate) fn rows(&self) -> Vec<DiskRow> {
        let row = |(disk, known): (&DiskId, &KnownDisk)| DiskRow {
            disk: *disk,
            process: known.process,
            serial: known.serial,
        };
        self.0.iter().map(row).collect()
    }
}

impl KnownDisk {
    fn begin(&mut self, count: DiskCount, now: Duration) -> Option<DiskNews> {
        let before = self.former.iter().find(|(process, _)| *process == count.process).copied();
        if self.process != 0 {
            self.former.retain(|(process, _)| *process != count.process);
            self.former.push((self.process, self.is_past));
            let too_many = self.former.len().saturating_sub(FORMER_MAX);
            self.former.drain(..too_many);
        }
        self.process = count.process;
        let Some((_, was_past)) = before else {
            self.is_past = count.began < self.serial && count.cleared < self.serial;
            return Some(if self.is_past {
                DiskNews::Past(self.serial)
            } else {
                DiskNews::Started
            });
        };
        // If two processes use the name, reports of the other process say nothing about the disk of
        // this one.
        self.is_past = was_past && count.cleared < self.serial;
        let was_double = self.is_double(now);
        self.returned.push(now);
        self.returned.drain(..self.returned.len().saturating_sub(RETURNS));
        (self.is_double(now) && !was_double).then_some(DiskNews::Double)
    }

    fn is_double(&self, now: Duration) -> bool {
        let (Some(first), Some(last)) = (self.returned.first(), self.returned.last()) else {
            return false;
        };
        let is_often = self.returned.len() >= RETURNS && *last - *first <= WINDOW;
        is_often && now.saturating_sub(*last) < TOLD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DiskId = DiskId(7);

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn count(process: u64, began: u64, serial: u64) -> DiskCount {
        DiskCount { process, began, serial, cleared: 0 }
    }

    #[test]
    fn a_restart_goes_on_where_the_disk_was() {
        let mut disks = Disks::default();
        assert_eq!(disks.see(DISK, count(1, 0, 40), secs(0)), Some(DiskNews::Started));
        assert_eq!(disks.see(DISK, count(1, 0, 57), secs(1)), None);
        assert_eq!(disks.see(DISK, count(2, 57, 57), secs(2)), Some(DiskNews::Started));
        assert_eq!(disks.ahead(DISK), None);
    }

    #[test]
    fn a_disk_from_the_past_is_one_until_it_has_caught_up() {
        let mut disks = Disks::default();
        disks.see(DISK, count(1, 0, 57), secs(0));
        assert_eq!(disks.see(DISK, count(2, 43, 44), secs(1)), Some(DiskNews::Past(57)));
        // Commits of its own prove nothing: they may be others than those that are lost.
        disks.see(DISK, count(2, 43, 80), secs(2));
        assert_eq!(disks.ahead(DISK), Some(57));
        disks.see(DISK, DiskCount { cleared: 57, ..count(2, 43, 81) }, secs(3));
        assert_eq!(disks.ahead(DISK), None);
        assert_eq!(disks.see(DISK, count(3, 81, 82), secs(4)), Some(DiskNews::Started));
    }

    #[test]
    fn what_was_told_outlives_the_process_that_was_told() {
        let mut disks = Disks::default();
        disks.see(DISK, count(1, 0, 57), secs(0));
        let mut next = Disks::new(&disks.rows());
        assert_eq!(next.see(DISK, count(1, 0, 57), secs(0)), None);
        assert_eq!(next.see(DISK, count(2, 43, 44), secs(1)), Some(DiskNews::Past(57)));
        // Counts that a process on a disk from the past reports do not count for later processes.
        disks.see(DISK, count(2, 43, 99), secs(1));
        let mut next = Disks::new(&disks.rows());
        assert_eq!(next.see(DISK, count(3, 50, 50), secs(0)), Some(DiskNews::Past(57)));
    }

    #[test]
    fn two_processes_that_take_turns_are_two() {
        let mut disks = Disks::default();
        for (at, process) in [(0, 1), (1, 2), (2, 1), (3, 2)] {
            disks.see(DISK, count(process, 10, 10), secs(at));
            assert!(!disks.is_double(DISK, secs(at)), "a message may have been late");
        }
        assert_eq!(disks.see(DISK, count(1, 10, 10), secs(4)), Some(DiskNews::Double));
        assert_eq!(disks.see(DISK, count(2, 10, 10), secs(5)), None, "once");
        assert!(disks.is_double(DISK, secs(200)) && !disks.is_double(DISK, secs(305)));
    }

    #[test]
    fn a_copy_makes_the_original_no_disk_from_the_past() {
        let mut disks = Disks::default();
        disks.see(DISK, count(1, 10, 60), secs(0));
        assert_eq!(disks.see(DISK, count(2, 55, 55), secs(1)), Some(DiskNews::Past(60)));
        disks.see(DISK, count(1, 10, 62), secs(2));
        assert_eq!(disks.ahead(DISK), None);
        disks.see(DISK, count(2, 55, 70), secs(3));
        assert_eq!(disks.ahead(DISK), Some(62));
    }

    #[test]
    fn restarts_are_not_taken_for_two_processes() {
        let mut disks = Disks::default();
        for process in 1..100 {
            let news = disks.see(DISK, count(process, process, process), secs(process));
            assert_eq!(news, Some(DiskNews::Started));
            assert!(!disks.is_double(DISK, secs(process)));
        }
        assert!(disks.0[&DISK].former.len() <= FORMER_MAX);
    }

    #[test]
    fn disks_of_nodes_that_are_gone_make_room_for_new_ones() {
        let mut disks = Disks::default();
        let members: BTreeSet<DiskId> = (0..3).map(DiskId).collect();
        for disk in 0..DISKS_MAX as u128 {
            disks.see(DiskId(disk), count(1, 0, 9), secs(disk as u64));
        }
        let new = DiskId(DISKS_MAX as u128);
        assert_eq!(disks.see(new, count(1, 0, 9), secs(9_999)), None, "it is full");
        assert!(disks.forget(&members));
        assert_eq!(disks.0.len(), members.len() + OTHERS_MAX);
        assert!(members.iter().all(|disk| disks.0.contains_key(disk)));
        assert!(disks.0.contains_key(&DiskId(DISKS_MAX as u128 - 1)), "the last one that was seen");
        assert_eq!(disks.see(new, count(1, 0, 9), secs(9_999)), Some(DiskNews::Started));
        assert!(disks.forget(&members) && !disks.forget(&members));
        assert!(disks.0.contains_key(&new) && !disks.0.contains_key(&DiskId(4_032)));
    }

    #[test]
    fn however_many_members_there_are_a_new_one_has_room() {
        let mut disks = Disks::default();
        let members: BTreeSet<DiskId> = (1..DISKS_MAX as u128).map(DiskId).collect();
        for disk in 0..DISKS_MAX as u128 {
            disks.see(DiskId(disk), count(1, 0, 9), secs(1));
        }
        assert!(disks.forget(&members));
        let new = DiskId(DISKS_MAX as u128);
        assert_eq!(disks.see(new, count(1, 0, 9), secs(2)), Some(DiskNews::Started));
    }
}
