//! Failure detector for processes: finds those whose leases have ended.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::NodeName;

use crate::{LimitKind, Overdue, Pool, RequestWindow, Run, Shares};

/// Time added to the length of a lease and the window, in milliseconds, for a thread that is held
/// up between reading its clock and charging.
const MARGIN_MS: u64 = 1_000;
/// Allowance for clocks of different speed, as a divisor of the time. Real clocks differ by one
/// part in ten thousand.
const DRIFT: u64 = 64;

/// Time of the last new statement of each process, by this node's own clock.
#[derive(Debug, Default)]
pub(crate) struct StatementWatch {
    seen: BTreeMap<Run, (u64, u64)>,
}

impl StatementWatch {
    /// Notes new statements of other processes. Returns true if one is by a node in `siblings`.
    pub(crate) fn observe(
        &mut self,
        now_ns: u64,
        me: &Run,
        shares: &Shares,
        siblings: &BTreeSet<NodeName>,
    ) -> bool {
        let mut has_news = false;
        self.seen.retain(|run, _| shares.runs().contains_key(run));
        for (run, row) in shares.runs().iter().filter(|(run, _)| *run != me) {
            let seen = self.seen.get(run);
            if seen.is_none_or(|(serial, _)| *serial != row.serial) {
                // A process that is seen for the first time may have made its statement long ago.
                has_news |= seen.is_some() && siblings.contains(&run.node);
                self.seen.insert(run.clone(), (row.serial, now_ns));
            }
        }
        has_news
    }

    /// Returns the processes whose leases have ended, with the kinds whose window has passed since.
    /// Requests of an earlier process of `me` ended with it. With `inherits`, this process takes
    /// over the leases of such processes for these kinds, because it knows all their charges.
    pub(crate) fn overdue(
        &self,
        now_ns: u64,
        me: &Run,
        inherits: Option<[bool; 3]>,
        (shares, (requests, place_ms)): (&Shares, (RequestWindow, u64)),
    ) -> Vec<Overdue> {
        let mut overdue = Vec::new();
        for (run, (serial, since_ns)) in &self.seen {
            let silent_ms = now_ns.saturating_sub(*since_ns) / 1_000_000;
            let length_ms = shares.runs().get(run).map_or(0, |row| u64::from(row.length_ms));
            let is_earlier_self = run.node == me.node && run < me;
            // Requests of this node's earlier process ended with it.
            let place_ms = if is_earlier_self { 0 } else { place_ms };
            let kinds = LimitKind::ALL.map(|kind| {
                if let Some(inherits) = inherits.filter(|_| is_earlier_self) {
                    return inherits[kind as usize];
                }
                let window = kind.window(requests).map(|window| window.as_millis() as u64);
                let ends_ms = length_ms.saturating_add(window.unwrap_or(place_ms));
                silent_ms >= ends_ms.saturating_add(ends_ms / DRIFT).saturating_add(MARGIN_MS)
            });
            // Most processes make statements all the time, so the search is rare.
            if kinds.contains(&true) && shares.pools().values().any(|pool| has(pool, run, kinds)) {
                overdue.push(Overdue { run: run.clone(), serial: *serial, kinds });
            }
        }
        overdue
    }
}

/// Returns true if an earlier process of `me` still has units of these kinds.
pub(crate) fn has_legacy(shares: &Shares, me: &Run, kinds: [bool; 3]) -> bool {
    let earlier = shares.runs().keys().filter(|run| run.node == me.node && *run < me);
    let mut pools = earlier.flat_map(|run| shares.pools().values().map(move |pool| (pool, run)));
    pools.any(|(pool, run)| has(pool, run, kinds))
}

fn has(pool: &Pool, run: &Run, kinds: [bool; 3]) -> bool {
    let Some(lease) = pool.lease(run) else { return false };
    let counts = |kind: &LimitKind| lease.held[*kind] > 0 || lease.need[*kind] > 0;
    LimitKind::ALL.iter().filter(|kind| kinds[**kind as usize]).any(counts)
}
