//! Copy of another node's reports, as far as they arrived.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::datagram::Report;
use crate::entry::ReportEntry;
use crate::name_id::{NameId, fold};
use crate::time::ms;

/// A copy of another node's ledger.
#[derive(Debug)]
pub(crate) struct Mirror<E> {
    entries: BTreeMap<NameId, Copied<E>>,
    digest: u64,
    state: MirrorState,
    /// Last version that the copy had whole; 0 if none.
    version: u64,
    /// Newest version that any report mentioned, and its digest.
    newest: (u64, [u8; 4]),
    /// Version before which entries may have been removed since.
    whole_from: u64,
    /// Moment at which the load of the last whole copy was measured, by our clock and without the
    /// time in transit.
    whole_at: Option<Instant>,
    entries_max: usize,
}

#[derive(Debug)]
struct Copied<E> {
    entry: E,
    fingerprint: u64,
    /// Version in which the sender published the entry.
    version: u64,
    measured_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MirrorState {
    /// The copy equals the sender's last report. => Partial
    Whole,
    /// Parts are in transit, or lost. => Whole
    Partial,
}

/// State of the copy after a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The copy is whole.
    Whole,
    /// More parts are to come.
    Awaiting,
    /// Parts are missing, and no more of this report are to come.
    Lacking,
}

impl<E: ReportEntry> Mirror<E> {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            digest: 0,
            state: MirrorState::Partial,
            version: 0,
            newest: (0, [0; 4]),
            whole_from: 0,
            whole_at: None,
            entries_max,
        }
    }

    /// Applies one part of a report, in any order.
    pub(crate) fn take(&mut self, now: Instant, report: Report<E>) -> Taken {
        let measured_at = now.checked_sub(ms(report.age_ms)).unwrap_or(now);
        let version = report.version;
        if version < self.version {
            // The copy is whole at a later version already.
            return self.taken(report.more);
        }
        if report.whole && version > self.whole_from {
            self.forget_before(version);
        }
        // Parts from before the last whole report may have entries that are gone.
        if version >= self.whole_from {
            for entry in report.entries {
                self.put(entry, version, measured_at);
            }
        }
        if version >= self.newest.0 {
            self.newest = (version, report.digest);
        }
        // Equal fingerprints mean that nothing is missing, in any order of the parts.
        if fold(self.digest) == self.newest.1 {
            self.state = MirrorState::Whole;
            self.version = self.newest.0;
            self.whole_at = self.whole_at.max(Some(measured_at));
        } else {
            self.state = MirrorState::Partial;
        }
        self.taken(report.more)
    }

    fn taken(&self, more: bool) -> Taken {
        match self.state {
            MirrorState::Whole => Taken::Whole,
            MirrorState::Partial if more => Taken::Awaiting,
            MirrorState::Partial => Taken::Lacking,
        }
    }

    /// Returns true if nothing is missing.
    pub(crate) fn is_whole(&self) -> bool {
        self.state == MirrorState::Whole
    }

    /// Returns the last version that the copy had whole; 0 if none.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Returns the moment at which the last whole copy was measured; `None` if there was none.
    pub(crate) fn whole_at(&self) -> Option<Instant> {
        self.whole_at
    }

    pub(crate) fn entry(&self, id: NameId) -> Option<&E> {
        self.entries.get(&id).map(|copied| &copied.entry)
    }

    /// Returns all entries, each with the moment at which it was last known to be true.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (NameId, &E, Instant)> {
        let confirmed = |at: Instant| self.whole_at.map_or(at, |whole_at| whole_at.max(at));
        self.entries
            .iter()
            .map(move |(id, copied)| (*id, &copied.entry, confirmed(copied.measured_at)))
    }

    fn put(&mut self, entry: E, version: u64, measured_at: Instant) {
        let id = entry.id();
        let known = self.entries.get(&id);
        // Parts overtake each other: an older value must not replace a newer one.
        let is_newer = known.is_none_or(|known| version >= known.version);
        if !is_newer || known.is_none() && self.entries.len() >= self.entries_max {
            return;
        }
        let copied = Copied { fingerprint: entry.fingerprint(), entry, version, measured_at };
        self.digest ^= copied.fingerprint;
        if let Some(before) = self.entries.insert(id, copied) {
            self.digest ^= before.fingerprint;
        }
    }

    /// Forgets entries published before `version`, in which all entries are sent again.
    fn forget_before(&mut self, version: u64) {
        self.whole_from = version;
        let digest = &mut self.digest;
        self.entries.retain(|_, copied| {
            let stays = copied.version >= version;
            if !stays {
                *digest ^= copied.fingerprint;
            }
            stays
        });
    }
}

#[cfg(test)]
#[path = "mirror_test.rs"]
mod tests;
