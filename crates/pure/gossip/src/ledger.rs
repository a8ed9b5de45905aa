//! Entries that a node reports: their values now, and their values in the last report.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use spillway_codec::payload_bytes;

use crate::entry::ReportEntry;
use crate::name_id::{NameId, fold};

/// A set of entries whose changes are published in portions.
///
/// A *version* is a state of what was published. No version is used twice in an incarnation.
#[derive(Debug)]
pub(crate) struct Ledger<E> {
    now: BTreeMap<NameId, E>,
    /// Largest change between `now` and `told`, kept because it is asked for far more often than it
    /// changes.
    change: f32,
    told: BTreeMap<NameId, LedgerEntry<E>>,
    /// Portions that each changed entry has waited for.
    passed_over: BTreeMap<NameId, u32>,
    /// Entries of the last portion, repeated in the next one. That repairs most losses a round trip
    /// sooner than a question does.
    to_repeat: Vec<NameId>,
    version: u64,
    /// Exclusive or of the fingerprints of all published entries: the order does not matter.
    digest: u64,
    /// Version that last contained everything: a receiver with an earlier one may have entries that
    /// are gone, and starts from scratch.
    whole_from: u64,
}

#[derive(Debug)]
struct LedgerEntry<E> {
    entry: E,
    since: u64,
    fingerprint: u64,
}

/// Entries to publish.
#[derive(Debug, PartialEq)]
pub(crate) struct Portion<E> {
    pub(crate) entries: Vec<E>,
    pub(crate) whole: bool,
}

impl<E: ReportEntry> Ledger<E> {
    pub(crate) fn new() -> Self {
        Self {
            now: BTreeMap::new(),
            change: 0.0,
            told: BTreeMap::new(),
            passed_over: BTreeMap::new(),
            to_repeat: Vec::new(),
            version: 0,
            digest: 0,
            whole_from: 0,
        }
    }

    /// Replaces all entries. Of entries with one id the first counts. Returns the number of the
    /// others.
    pub(crate) fn set(&mut self, entries: impl Iterator<Item = E>) -> u64 {
        self.now.clear();
        let mut doubles = 0;
        for entry in entries {
            match self.now.entry(entry.id()) {
                Slot::Vacant(slot) => {
                    slot.insert(entry);
                }
                Slot::Occupied(_) => doubles += 1,
            }
        }
        self.change = self.largest_change();
        doubles
    }

    /// Changes the entry of `id`, if there is one.
    pub(crate) fn update(&mut self, id: NameId, change: impl FnOnce(&mut E)) {
        self.update_each([(id, change)], |entry, change| change(entry));
    }

    /// Changes the entries of some ids; ids without one are passed over.
    pub(crate) fn update_each<T>(
        &mut self,
        changes: impl IntoIterator<Item = (NameId, T)>,
        mut change: impl FnMut(&mut E, T),
    ) {
        let mut is_changed = false;
        for (id, value) in changes {
            let Some(entry) = self.now.get_mut(&id) else { continue };
            let before = entry.clone();
            change(entry, value);
            is_changed |= *entry != before;
        }
        if is_changed {
            self.change = self.largest_change();
        }
    }

    /// Returns the largest change since the last report; entries that came or went count as 1.
    pub(crate) fn change(&self) -> f32 {
        self.change
    }

    /// Returns the entry of `id` as published last.
    pub(crate) fn sent(&self, id: NameId) -> Option<&E> {
        self.told.get(&id).map(|told| &told.entry)
    }

    #[cfg(test)]
    pub(crate) fn all_sent(&self) -> Vec<E> {
        self.told.values().map(|told| told.entry.clone()).collect()
    }

    /// Returns the version published last.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn digest(&self) -> [u8; 4] {
        fold(self.digest)
    }

    /// Returns the next portion: entries that changed by more than `ignored`, those that had to
    /// wait first, then the most changed. It has about `bytes_max` bytes, unless it is whole.
    pub(crate) fn publish(&mut self, ignored: f32, bytes_max: usize) -> Portion<E> {
        // A portion of changes can't show that an entry was removed.
        if self.is_shorter() {
            return self.publish_all();
        }
        let mut changed: Vec<(u32, f32, E)> = self
            .now
            .values()
            .map(|entry| (self.waits_of(entry), self.change_of(entry), entry.clone()))
            .filter(|(_, change, _)| *change > ignored)
            .collect();
        // Entries that waited most portions come first, so that none waits forever.
        changed.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
        self.passed_over.clear();
        if !changed.is_empty() {
            self.version += 1;
        }
        let mut portion = Portion { entries: Vec::new(), whole: false };
        let mut bytes = 0;
        let mut fits = |entry: &E| {
            bytes += payload_bytes(entry).unwrap_or(bytes_max);
            bytes <= bytes_max
        };
        for (waits, _, entry) in changed {
            // The first one has to fit, or none ever would.
            if fits(&entry) || portion.entries.is_empty() {
                self.tell(entry.clone());
                portion.entries.push(entry);
            } else {
                self.passed_over.insert(entry.id(), waits + 1);
            }
        }
        let news: Vec<NameId> = portion.entries.iter().map(ReportEntry::id).collect();
        for id in std::mem::take(&mut self.to_repeat) {
            if !news.contains(&id)
                && let Some(told) = self.told.get(&id)
                && fits(&told.entry)
            {
                portion.entries.push(told.entry.clone());
            }
        }
        self.to_repeat = news;
        self.change = self.largest_change();
        portion
    }

    /// Returns the entries that a receiver lacks which has version `have` whole.
    pub(crate) fn since(&self, have: u64) -> Portion<E> {
        // 0 asks for everything; a version beyond ours is an error of the sender.
        let whole = have == 0 || have < self.whole_from || have > self.version;
        let missing = |told: &&LedgerEntry<E>| whole || told.since > have;
        let entries = self.told.values().filter(missing).map(|told| told.entry.clone()).collect();
        Portion { entries, whole }
    }

    /// Publishes all entries: the only way to show that one was removed.
    fn publish_all(&mut self) -> Portion<E> {
        self.version += 1;
        self.whole_from = self.version;
        self.told.clear();
        self.passed_over.clear();
        self.to_repeat.clear();
        self.digest = 0;
        let entries: Vec<E> = self.now.values().cloned().collect();
        entries.iter().for_each(|entry| self.tell(entry.clone()));
        self.change = 0.0;
        Portion { entries, whole: true }
    }

    fn tell(&mut self, entry: E) {
        let told = LedgerEntry { fingerprint: entry.fingerprint(), since: self.version, entry };
        self.digest ^= told.fingerprint;
        // The fingerprint of the replaced entry leaves the digest.
        if let Some(before) = self.told.insert(told.entry.id(), told) {
            self.digest ^= before.fingerprint;
        }
    }

    fn largest_change(&self) -> f32 {
        if self.is_shorter() {
            return 1.0;
        }
        self.now.values().map(|entry| self.change_of(entry)).fold(0.0, f32::max)
    }

    /// Returns true if a published entry is gone.
    fn is_shorter(&self) -> bool {
        self.told.keys().any(|id| !self.now.contains_key(id))
    }

    fn change_of(&self, entry: &E) -> f32 {
        self.told.get(&entry.id()).map_or(1.0, |told| entry.change_from(&told.entry))
    }

    fn waits_of(&self, entry: &E) -> u32 {
        self.passed_over.get(&entry.id()).copied().unwrap_or(0)
    }
}

/// Splits entries into lists of at most `bytes_max` bytes each; at least one list, if an empty one.
pub(crate) fn parts<E: ReportEntry>(entries: Vec<E>, bytes_max: usize) -> Vec<Vec<E>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = 0;
    for entry in entries {
        let length = payload_bytes(&entry).unwrap_or(bytes_max);
        if bytes + length > bytes_max && bytes > 0 {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += length;
        if let Some(part) = parts.last_mut() {
            part.push(entry);
        }
    }
    parts
}

#[cfg(test)]
#[path = "ledger_test.rs"]
mod tests;
