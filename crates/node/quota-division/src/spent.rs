//! Charges of this process to limits in the last minute, kept for its next process.
//!
//! The file is written while requests are served, so that a process which crashes leaves it behind:
//! the next one goes on from there instead of waiting until a minute has passed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_files::{load, save_unsynced};
use spillway_rate_limit::{LimitKind, LimitTerms, Quotas, RequestWindow, Scope, Units};

use super::uptime::Uptime;

/// Name of the file in the data folder.
const FILE: &str = "limits_spent";
/// Shortest time between two writes.
const PACE: Duration = Duration::from_millis(500);
/// Divisor of time: at most one part in so many is spent on writing.
const SPARING: u32 = 50;
/// Time within which charges are written as one, made when the last of them was.
const GRAIN: Duration = Duration::from_secs(5);
/// Divisor of a limit: one part in so many may have been charged after the last write. The next
/// process counts it after a crash.
const UNWRITTEN: u64 = 8;

/// Charges of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Spent {
    /// Time of the write.
    at: Uptime,
    /// True if the process ended in order, and charged nothing afterwards.
    is_last: bool,
    limits: BTreeMap<Scope, Rates>,
}

/// Charges to one limit, each with the least number of milliseconds between the charge and the
/// write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Rates {
    /// Requests, if they are counted by the minute.
    requests: Vec<(u64, u64)>,
    tokens: Vec<(u64, u64)>,
}

impl Wire for Spent {
    const KIND: u16 = 0x0703;
    const VERSION: u16 = 1;
    // As many limits as there may be, with a dozen numbers each.
    const BYTES_MAX: usize = 32 << 20;
}

/// The file with the charges.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// Charges of the process before; `None` if they are not known, or counted.
    before: Option<Spent>,
    written: BTreeMap<Scope, Rates>,
    not_before: Option<Instant>,
}

impl Journal {
    /// Reads the charges of the process before.
    pub(super) fn load(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let before = load::<Spent>(&path).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "saved use of limits can't be read");
            None
        });
        Self { path, before, written: BTreeMap::new(), not_before: None }
    }

    /// Returns true if the charges of the process before are known.
    pub(super) fn is_known(&self) -> bool {
        self.before.is_some()
    }

    /// Counts the charges of the process before to these limits; only the first call does. A crash
    /// may have come before the last charges were written, so a part of each limit counts beside.
    pub(super) fn count(&mut self, quotas: &Quotas, limits: &[LimitTerms]) {
        let Some(before) = self.before.take() else { return };
        let (now, passed) = (Instant::now(), Uptime::now().since(&before.at));
        for terms in limits {
            let rates = before.limits.get(&terms.scope).cloned().unwrap_or_default();
            let charged =
                [(LimitKind::RequestRate, rates.requests), (LimitKind::TokenRate, rates.tokens)];
            for (kind, charges) in charged {
                if !is_by_minute(terms, kind) {
                    continue;
                }
                let count = |age, count| {
                    let units = Units::each(|it| if it == kind { count } else { 0 });
                    quotas.assume(&terms.scope, units, age, now);
                };
                for (age_ms, units) in charges {
                    count(passed + Duration::from_millis(age_ms), units);
                }
                if !before.is_last {
                    count(passed, terms.whole[kind as usize].unwrap_or(0) / UNWRITTEN);
                }
            }
        }
    }

    /// Writes the charges if they have changed, at most once in a period. Only limits `used` have
    /// any.
    pub(super) fn note<U>(&mut self, quotas: &Quotas, used: impl FnOnce() -> U, now: Instant)
    where
        U: IntoIterator<Item = LimitTerms>,
    {
        // Until the charges of the process before are counted, the file is all that knows them.
        if self.before.is_none() && self.not_before.is_none_or(|at| now >= at) {
            self.write(quotas, used(), now, false);
        }
    }

    /// Writes the charges for the last time.
    pub(super) fn close(
        &mut self,
        quotas: &Quotas,
        limits: impl IntoIterator<Item = LimitTerms>,
        now: Instant,
    ) {
        self.write(quotas, limits, now, true);
    }

    fn write(
        &mut self,
        quotas: &Quotas,
        limits: impl IntoIterator<Item = LimitTerms>,
        now: Instant,
        is_last: bool,
    ) {
        let rates = |terms: &LimitTerms| {
            let spent = |kind| match is_by_minute(terms, kind) {
                true => grains(&quotas.spent(&terms.scope, kind, now)),
                false => Vec::new(),
            };
            let (requests, tokens) = (spent(LimitKind::RequestRate), spent(LimitKind::TokenRate));
            Rates { requests, tokens }
        };
        let limits: BTreeMap<Scope, Rates> = limits
            .into_iter()
            .map(|terms| (rates(&terms), terms.scope))
            .map(|(rates, scope)| (scope, rates))
            .filter(|(_, rates)| *rates != Rates::default())
            .collect();
        if limits == self.written && !is_last {
            return;
        }
        let spent = Spent { at: Uptime::now(), is_last, limits };
        let begun = Instant::now();
        let saved = save_unsynced(&self.path, &spent);
        self.not_before = Some(now + PACE.max(begun.elapsed() * SPARING));
        self.written = spent.limits;
        if let Err(error) = saved {
            tracing::warn!(%error, path = %self.path.display(), "use of limits can't be saved");
            // An older file would be taken for everything. There may be none.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Returns true if charges to a kind count for a minute: a window of a second is over before a
/// process has begun.
fn is_by_minute(terms: &LimitTerms, kind: LimitKind) -> bool {
    terms.whole[kind as usize].is_some() && kind.window(terms.requests) == by_minute()
}

fn by_minute() -> Option<Duration> {
    LimitKind::RequestRate.window(RequestWindow::Minute)
}

/// Merges charges that are close to each other: they count as made with the last one.
fn grains(spent: &[(Duration, u64)]) -> Vec<(u64, u64)> {
    let mut grains: BTreeMap<u128, (u64, u64)> = BTreeMap::new();
    for (age, units) in spent {
        let age_ms = age.as_millis() as u64;
        let grain = grains.entry(age.as_millis() / GRAIN.as_millis()).or_insert((age_ms, 0));
        grain.0 = grain.0.min(age_ms);
        grain.1 += units;
    }
    grains.into_values().collect()
}

#[cfg(test)]
mod tests {
    use spillway_codec::golden;
    use spillway_rate_limit::{Holding, QuotaAsk};

    use super::*;

    #[test]
    fn the_bytes_of_the_file_are_those_on_file() {
        let rates = Rates { requests: vec![(500, 2)], tokens: vec![(500, 7), (20_000, 900)] };
        let limits = [(Scope::Global, Rates::default()), (Scope::Key("k".into()), rates)].into();
        let spent = Spent { at: Uptime::of("boot", "100.50 7.2"), is_last: true, limits };
        golden::check(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"), "limits_spent", &spent);
    }

    fn limited(now: Instant) -> (Quotas, [LimitTerms; 1]) {
        let quotas = Quotas::new(now);
        let (scope, requests) = (Scope::Global, RequestWindow::Minute);
        let limits = [LimitTerms { scope, whole: [Some(80), Some(800), Some(9)], requests }];
        quotas.set_limits(&limits);
        let floor = Units([80, 800, 9]);
        quotas.hold(&Scope::Global, &Holding { floor, ..Holding::default() });
        (quotas, limits)
    }

    fn used(quotas: &Quotas, now: Instant) -> [u64; 3] {
        quotas.usage(&Scope::Global, now).unwrap().in_use.0
    }

    #[test]
    fn the_next_process_counts_what_was_written_and_after_a_crash_a_part_more() {
        let folder = tempfile::tempdir().unwrap();
        let now = Instant::now();
        assert!(!Journal::load(folder.path()).is_known());
        let (quotas, limits) = limited(now);
        let mut journal = Journal::load(folder.path());
        for tokens in [100, 20] {
            let ask = QuotaAsk { key: None, tenant: None, model: None, tokens, said: tokens, now };
            drop(quotas.admit(&ask).unwrap());
        }
        journal.note(&quotas, || limits.clone(), now);
        // Crashed.
        let (next, _) = limited(now);
        let mut after = Journal::load(folder.path());
        assert!(after.is_known());
        after.count(&next, &limits);
        assert_eq!(used(&next, now), [2 + 10, 120 + 100, 0]);
        after.count(&next, &limits);
        assert_eq!(used(&next, now), [12, 220, 0], "once");
        // Ended as it should.
        journal.close(&quotas, limits.clone(), now);
        let (next, _) = limited(now);
        Journal::load(folder.path()).count(&next, &limits);
        assert_eq!(used(&next, now), [2, 120, 0]);
    }

    #[test]
    fn what_counts_by_the_second_is_not_counted_by_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let (quotas, limits) = limited(now);
        let ask = QuotaAsk { key: None, tenant: None, model: None, tokens: 9, said: 9, now };
        drop(quotas.admit(&ask).unwrap());
        Journal::load(folder.path()).note(&quotas, || limits.clone(), now);
        // Crashed, and requests are counted by the second from now on.
        let (next, limits) = limited(now);
        let limits = limits.map(|terms| LimitTerms { requests: RequestWindow::Second, ..terms });
        next.set_limits(&limits);
        Journal::load(folder.path()).count(&next, &limits);
        assert_eq!(used(&next, now), [0, 9 + 100, 0]);
    }

    #[test]
    fn nothing_is_written_over_what_is_not_counted_yet() {
        let folder = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let (quotas, limits) = limited(now);
        let ask = QuotaAsk { key: None, tenant: None, model: None, tokens: 9, said: 9, now };
        drop(quotas.admit(&ask).unwrap());
        Journal::load(folder.path()).close(&quotas, limits, now);
        // A process that ends before it learns of any limit.
        let (next, limits) = limited(now);
        let other = QuotaAsk { tokens: 1, said: 1, ..ask };
        drop(next.admit(&other).unwrap());
        Journal::load(folder.path()).note(&next, || limits.clone(), now);
        let (third, _) = limited(now);
        Journal::load(folder.path()).count(&third, &limits);
        assert_eq!(used(&third, now), [1, 9, 0]);
    }

    #[test]
    fn what_was_charged_ages_while_no_process_runs() {
        let folder = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let mut up = serde_json::to_value(Uptime::now()).unwrap();
        let earlier = up["up_ms"].as_u64().unwrap().saturating_sub(30_000);
        up["up_ms"] = earlier.into();
        let rates = Rates { requests: vec![(10_000, 7)], tokens: vec![(25_000, 70)] };
        let limits = [(Scope::Global, rates)].into();
        let spent = Spent { at: serde_json::from_value(up).unwrap(), is_last: true, limits };
        save_unsynced(&folder.path().join(FILE), &spent).unwrap();
        let (next, limits) = limited(now);
        Journal::load(folder.path()).count(&next, &limits);
        let at = |s| used(&next, now + Duration::from_secs(s));
        assert_eq!((at(1), at(8), at(25)), ([7, 70, 0], [7, 0, 0], [0, 0, 0]));
    }

    #[test]
    fn what_can_not_be_written_is_not_known_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let (quotas, limits) = limited(now);
        let mut journal = Journal::load(folder.path());
        journal.close(&quotas, limits.clone(), now);
        assert!(Journal::load(folder.path()).is_known());
        std::fs::create_dir(folder.path().join(FILE).with_extension("new")).unwrap();
        journal.close(&quotas, limits, now);
        assert!(!Journal::load(folder.path()).is_known());
    }

    #[test]
    fn charges_that_are_close_are_written_as_one_with_the_last_of_them() {
        let spent = [(21_300, 5), (20_100, 1), (19_000, 2), (400, 7), (0, 1)];
        let spent = spent.map(|(ms, units)| (Duration::from_millis(ms), units));
        assert_eq!(grains(&spent), [(0, 8), (19_000, 2), (20_100, 6)]);
    }
}
