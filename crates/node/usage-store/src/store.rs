//! Usage of this node's own clients, by day.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use spillway_files::{load, private, save};
use spillway_types::{Outcome, unix_ms};
use spillway_usage::{Day, Money, NodeSpending, UsageLines, UsageQuery, UsageTable};

use crate::saved::SavedDay;
use crate::spending::SavedSpending;

/// Name of the folder in the data folder.
const FOLDER: &str = "usage";
/// Name of the file of the nodes' reports about their spending.
const SPENDING: &str = "spending";
/// Days that are kept where there is no folder.
const DAYS_IN_MEMORY: usize = 7;

/// Folder of the usage, and the days that are kept.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The data folder; `None` keeps usage in memory alone.
    pub folder: Option<PathBuf>,
    /// Number of days whose files are kept, today included.
    pub days_max: u32,
}

/// Usage of this node's own clients, by day.
#[derive(Debug)]
pub struct UsageStore {
    config: StoreConfig,
    days: Mutex<BTreeMap<Day, OpenDay>>,
    /// Held while files are read and written, so that an older state never replaces a newer one.
    saving: Mutex<()>,
    /// Error of the last try to write; `None` if it succeeded.
    fault: Mutex<Option<String>>,
}

/// Day whose usage is in memory.
#[derive(Debug, Default)]
struct OpenDay {
    lines: UsageLines,
    /// True if the file of the day has less.
    is_changed: bool,
    /// True if `lines` have what the file had before.
    is_complete: bool,
}

impl UsageStore {
    /// Opens the folder, and makes it if it is not there. One that can't be made is tried again
    /// whenever something is to be written: until then usage is kept in memory.
    #[must_use]
    pub fn open(config: StoreConfig) -> Self {
        let folder = config.folder.as_ref().map(|data| data.join(FOLDER));
        if let Some(Err(error)) = folder.as_deref().map(make) {
            tracing::error!(%error, "usage is only in memory until its folder can be created");
        }
        let config = StoreConfig { folder, days_max: config.days_max.max(1) };
        let (days, saving, fault) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { config, days, saving, fault }
    }

    /// Counts a request of this node's own clients that ended at `at`, with its cost. Never waits for
    /// the disk.
    pub fn record(&self, outcome: &Outcome, cost: Money, at: SystemTime) {
        if outcome.is_guest {
            return;
        }
        let mut days = self.days();
        let day = Day::of_ms(unix_ms(at));
        let open = days.entry(day).or_default();
        open.lines.record(outcome, cost);
        open.is_changed = true;
        if self.config.folder.is_none() {
            // By their number, not by their dates: a clock may be wrong for a while.
            while days.len() > DAYS_IN_MEMORY {
                days.pop_first();
            }
        }
    }

    /// Answers a question about the usage that this node has counted. Reads files.
    #[must_use]
    pub fn read(&self, query: &UsageQuery) -> UsageTable {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = UsageTable::default();
        let mut add = |day: Day, lines: &UsageLines| {
            lines.iter().for_each(|(key, used)| table.add_line(query, day, key, used));
        };
        // Memory first: a day leaves it only when its file has all of it.
        let mut in_memory = Vec::new();
        for (day, open) in self.days().iter() {
            add(*day, &open.lines);
            if open.is_complete {
                in_memory.push(*day);
            }
        }
        let asked = |day: &Day| query.has_day(*day) && !in_memory.contains(day);
        for day in self.days_on_disk().into_iter().filter(asked) {
            add(day, &self.load(day).unwrap_or_default());
        }
        table
    }

    /// Writes what has changed, and removes files that are too old. Call it every few seconds, and
    /// once when all requests have ended.
    pub fn save(&self, now: SystemTime) {
        let Some(folder) = &self.config.folder else { return };
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = make(folder) {
            // Logged at the start; the counted usage stays in memory.
            return self.set_fault(Some(format!("{}: {error}", folder.display())));
        }
        self.complete();
        let mut fault = None;
        for (day, saved) in self.changed() {
            if let Err(error) = save(&folder.join(day.to_string()), &saved) {
                tracing::warn!(%error, %day, folder = %folder.display(),
                    "usage can't be saved");
                fault = Some(format!("{}: {error}", folder.display()));
                if let Some(open) = self.days().get_mut(&day) {
                    open.is_changed = true;
                }
            }
        }
        self.set_fault(fault);
        let today = Day::of_ms(unix_ms(now));
        self.days().retain(|day, open| open.is_changed || *day >= today);
        let oldest = today.before(self.config.days_max - 1);
        let kept = self.days_on_disk();
        // A clock that is wrong for a while must not remove what is kept: there have to be newer files.
        let spare = kept.len().saturating_sub(self.config.days_max as usize);
        for day in kept.into_iter().take(spare).filter(|day| *day < oldest) {
            if let Err(error) = std::fs::remove_file(folder.join(day.to_string())) {
                tracing::warn!(%error, %day, "old usage can't be removed");
            }
        }
    }

    /// Returns the error with which the newest usage could not be written; `None` if it was.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_fault(&self, fault: Option<String>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// Returns what was known of the spending of all nodes when it was last saved.
    #[must_use]
    pub fn spending(&self) -> Vec<NodeSpending> {
        let Some(folder) = &self.config.folder else { return Vec::new() };
        let path = folder.join(SPENDING);
        let saved = load::<SavedSpending>(&path).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "what other nodes spent is not known");
            None
        });
        saved.unwrap_or_default().into_rows()
    }

    /// Writes what is known of the spending of all nodes.
    pub fn save_spending(&self, told: &[NodeSpending]) {
        let Some(folder) = &self.config.folder else { return };
        let path = folder.join(SPENDING);
        if let Err(error) = save(&path, &SavedSpending::of(told)) {
            tracing::warn!(%error, path = %path.display(), "spending can't be written down");
            self.set_fault(Some(format!("{}: {error}", path.display())));
        }
    }

    /// Adds what files have of days in memory. `saving` is held.
    fn complete(&self) {
        let lacks = |(day, open): (&Day, &OpenDay)| (!open.is_complete).then_some(*day);
        let lacking: Vec<Day> = self.days().iter().filter_map(lacks).collect();
        for day in lacking {
            let kept = self.load(day).unwrap_or_default();
            if let Some(open) = self.days().get_mut(&day) {
                kept.iter().for_each(|(key, used)| open.lines.add(key.clone(), used));
                open.is_complete = true;
            }
        }
    }

    /// Takes what is to be written, and marks it as written.
    fn changed(&self) -> Vec<(Day, SavedDay)> {
        let mut days = self.days();
        let changed = days.iter_mut().filter(|(_, open)| open.is_changed && open.is_complete);
        let taken = changed.map(|(day, open)| {
            open.is_changed = false;
            (*day, SavedDay::of(&open.lines))
        });
        taken.collect()
    }

    /// Reads the file of a day. One that can't be read is put aside, so that it is not overwritten.
    fn load(&self, day: Day) -> Option<UsageLines> {
        let path = self.config.folder.as_ref()?.join(day.to_string());
        match load::<SavedDay>(&path) {
            Ok(saved) => saved.map(SavedDay::into_lines),
            Err(error) => {
                let aside = path.with_extension("damaged");
                tracing::warn!(%error, path = %path.display(), aside = %aside.display(),
                    "usage of a day can't be read: it is set aside, and the day starts at zero");
                drop(std::fs::rename(&path, aside));
                None
            }
        }
    }

    fn days_on_disk(&self) -> Vec<Day> {
        let Some(folder) = &self.config.folder else { return Vec::new() };
        days_in(folder).unwrap_or_else(|error| {
            tracing::warn!(%error, folder = %folder.display(), "kept usage can't be listed");
            Vec::new()
        })
    }

    fn days(&self) -> MutexGuard<'_, BTreeMap<Day, OpenDay>> {
        self.days.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the folder, and the data folder around it: this part may be the first that keeps something.
fn make(folder: &Path) -> io::Result<()> {
    if let Some(data) = folder.parent() {
        private::make_folder(data)?;
    }
    private::make_folder(folder)
}

/// Returns the days that a folder has files of.
fn days_in(folder: &Path) -> io::Result<Vec<Day>> {
    let mut days = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        // Other names are files put aside, or not written to their end.
        days.extend(entry?.file_name().to_str().and_then(|name| name.parse::<Day>().ok()));
    }
    days.sort_unstable();
    Ok(days)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, UNIX_EPOCH};

    use spillway_types::TokenCounts;

    use super::*;

    fn day(text: &str) -> Day {
        text.parse().unwrap()
    }

    /// Returns noon of a day.
    fn noon(text: &str) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(day(text).starts_ms()) + Duration::from_secs(12 * 3_600)
    }

    fn outcome(tenant: &str) -> Outcome {
        let tokens = TokenCounts { prompt: 10, completion: 5, cached: 0 };
        Outcome { tenant: Some(tenant.into()), status: 200, tokens, ..Outcome::begun() }
    }

    fn store(folder: &Path, days_max: u32) -> UsageStore {
        UsageStore::open(StoreConfig { folder: Some(folder.to_owned()), days_max })
    }

    fn requests(store: &UsageStore, since: &str, until: &str) -> u64 {
        store.read(&UsageQuery::of_days(day(since), day(until))).total().requests
    }

    const COST: Money = Money::of_millionths(3);

    #[test]
    fn folders_are_for_their_owner_alone_from_the_beginning() {
        let around = tempfile::tempdir().unwrap();
        let data = around.path().join("data");
        store(&data, 1);
        for folder in [data.clone(), data.join(FOLDER)] {
            assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o777, 0o700, "{folder:?}");
        }
    }

    #[test]
    fn the_next_process_goes_on_from_what_was_saved() {
        let folder = tempfile::tempdir().unwrap();
        let first = store(folder.path(), 62);
        first.record(&outcome("a"), COST, noon("2026-11-27"));
        first.save(noon("2026-11-27"));
        // Not saved: this one is lost with the process.
        first.record(&outcome("a"), COST, noon("2026-11-27"));
        drop(first);
        let second = store(folder.path(), 62);
        assert_eq!(requests(&second, "2026-11-27", "2026-11-27"), 1, "before any request");
        second.record(&outcome("a"), COST, noon("2026-11-27"));
        second.record(&outcome("b"), COST, noon("2026-11-27"));
        second.save(noon("2026-11-27"));
        let third = store(folder.path(), 62);
        let table = third.read(&UsageQuery::of_days(day("2026-11-27"), day("2026-11-27")));
        assert_eq!(table.total().prompt, 30);
        assert_eq!(table.total().cost, Money::of_millionths(9));
        assert_eq!(table.rows().len(), 2);
    }

    #[test]
    fn a_day_that_is_over_stays_on_disk_and_is_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 62);
        store.record(&outcome("a"), COST, noon("2026-11-27"));
        store.record(&outcome("a"), COST, noon("2026-11-28"));
        for _ in 0..2 {
            assert_eq!(requests(&store, "2026-11-27", "2026-11-28"), 2);
            store.save(noon("2026-11-28"));
        }
        assert_eq!(store.days().keys().copied().collect::<Vec<_>>(), [day("2026-11-28")]);
        // A clock that was set back adds to the day that it says.
        store.record(&outcome("a"), COST, noon("2026-11-27"));
        assert_eq!(requests(&store, "2026-11-27", "2026-11-27"), 2);
        assert_eq!(requests(&store, "2026-11-28", "2026-11-30"), 1);
    }

    #[test]
    fn to_count_a_request_needs_no_disk() {
        let folder = tempfile::tempdir().unwrap();
        let first = store(folder.path(), 62);
        first.record(&outcome("a"), COST, noon("2026-11-27"));
        first.save(noon("2026-11-27"));
        let second = store(folder.path(), 62);
        let path = folder.path().join("usage/2026-11-27");
        let aside = folder.path().join("aside");
        // A file that is not there can't be read.
        std::fs::rename(&path, &aside).unwrap();
        second.record(&outcome("a"), COST, noon("2026-11-27"));
        std::fs::rename(&aside, &path).unwrap();
        assert_eq!(requests(&second, "2026-11-27", "2026-11-27"), 2, "in memory and on disk");
        second.save(noon("2026-11-27"));
        assert_eq!(requests(&second, "2026-11-27", "2026-11-27"), 2);
        assert_eq!(requests(&store(folder.path(), 62), "2026-11-27", "2026-11-27"), 2);
    }

    #[test]
    fn usage_that_can_not_be_written_is_a_fault_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 62);
        store.record(&outcome("a"), COST, noon("2026-11-27"));
        // A file is in the way of the folder: the superuser writes where rights forbid it.
        std::fs::remove_dir_all(folder.path().join("usage")).unwrap();
        std::fs::write(folder.path().join("usage"), "").unwrap();
        assert_eq!(store.fault(), None);
        store.save(noon("2026-11-27"));
        assert!(store.fault().is_some_and(|fault| fault.contains("usage: ")));
        std::fs::remove_file(folder.path().join("usage")).unwrap();
        store.save(noon("2026-11-27"));
        assert_eq!(store.fault(), None);
    }

    #[test]
    fn days_beyond_the_limit_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 2);
        for date in ["2026-11-25", "2026-11-26", "2026-11-27"] {
            store.record(&outcome("a"), COST, noon(date));
        }
        store.save(noon("2026-11-27"));
        assert_eq!(store.days_on_disk(), [day("2026-11-26"), day("2026-11-27")]);
        assert_eq!(requests(&store, "2026-11-01", "2026-11-30"), 2);
    }

    #[test]
    fn a_damaged_file_is_put_aside_and_the_day_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let first = store(folder.path(), 62);
        first.record(&outcome("a"), COST, noon("2026-11-27"));
        first.save(noon("2026-11-27"));
        let path = folder.path().join("usage/2026-11-27");
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let second = store(folder.path(), 62);
        second.record(&outcome("a"), COST, noon("2026-11-27"));
        second.save(noon("2026-11-27"));
        assert_eq!(requests(&second, "2026-11-27", "2026-11-27"), 1);
        assert_eq!(std::fs::read(path.with_extension("damaged")).unwrap(), bytes);
    }

    #[test]
    fn what_can_not_be_written_is_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 62);
        store.record(&outcome("a"), COST, noon("2026-11-27"));
        let in_the_way = folder.path().join("usage/2026-11-27.new");
        std::fs::create_dir(&in_the_way).unwrap();
        store.save(noon("2026-11-28"));
        assert_eq!(store.days_on_disk(), []);
        std::fs::remove_dir(&in_the_way).unwrap();
        store.save(noon("2026-11-28"));
        assert_eq!(store.days_on_disk(), [day("2026-11-27")]);
        assert_eq!(requests(&store, "2026-11-27", "2026-11-27"), 1);
    }

    #[test]
    fn what_other_nodes_spent_is_known_again_unless_the_file_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 62);
        assert_eq!(store.spending(), []);
        let told = [NodeSpending {
            tenant: "a".into(),
            node: "n".into(),
            spending: spillway_usage::Spending::default(),
        }];
        store.save_spending(&told);
        assert_eq!(store.spending(), told);
        std::fs::write(folder.path().join("usage/spending"), "x").unwrap();
        assert_eq!(store.spending(), []);
    }

    #[test]
    fn without_a_folder_a_week_is_kept() {
        let store = UsageStore::open(StoreConfig { folder: None, days_max: 62 });
        for date in 1..10 {
            store.record(&outcome("a"), COST, noon(&format!("2026-11-0{date}")));
        }
        store.save(noon("2026-11-09"));
        assert_eq!(requests(&store, "2026-11-01", "2026-11-30"), 7);
    }

    #[test]
    fn a_clock_that_is_wrong_for_a_while_removes_nothing() {
        let around = tempfile::tempdir().unwrap();
        for folder in [Some(around.path().to_owned()), None] {
            let store = UsageStore::open(StoreConfig { folder, days_max: 3 });
            for date in ["2026-11-28", "2026-11-29", "2027-11-29", "2026-11-29"] {
                store.record(&outcome("a"), COST, noon(date));
                store.save(noon(date));
            }
            assert_eq!(requests(&store, "2026-11-28", "2026-11-29"), 3);
        }
    }

    #[test]
    fn guests_are_counted_where_their_client_asked() {
        let store = UsageStore::open(StoreConfig { folder: None, days_max: 62 });
        let guest = Outcome { is_guest: true, ..outcome("a") };
        store.record(&guest, COST, noon("2026-11-01"));
        assert_eq!(requests(&store, "2026-11-01", "2026-11-30"), 0);
    }
}
