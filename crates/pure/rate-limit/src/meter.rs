//! Kind of a limit on this node.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::UNITS_MAX;
use crate::reach::ReachWait;
use crate::window::{Window, WindowStep};

/// Steps of a window of a minute: half a second each. A charge may count one step too long, which
/// loses less than 1 % of the limit.
const MINUTE_STEPS: u64 = 120;
/// Steps of a window of a second: 16 ms each.
const SECOND_STEPS: u64 = 64;
/// Allowance for a fast clock, as a divisor of the window: twice the rate at which time daemons
/// slew.
const DRIFT: u64 = 1_000;
/// Delay before the next try for a concurrency slot, since run times of requests are unknown.
const PLACE_WAIT_NS: u64 = 1_000_000_000;
/// Delay before the next try where a request needs more than this node holds, and other nodes need
/// what they hold: this node may hold more by then.
const SHARE_WAIT_NS: u64 = 3_000_000_000;
/// Time by which the use of the whole limit ends earlier once this node has its share. The rest is
/// for its needs to become known.
const OPEN_LESS_NS: u64 = 3_000_000_000;
/// Delay before the next try while the limit is being divided.
const DIVIDE_WAIT_NS: u64 = 1_000_000_000;
/// Longest delay in a reply to a client.
const DEBT_WAIT_MAX_NS: u64 = 24 * 3_600 * 1_000_000_000;

/// Count of charges against the units that this node holds. Any thread charges at any time; one
/// task sets the units held.
#[derive(Debug)]
pub(crate) struct Meter {
    window: Option<Window>,
    /// Units charged that count now.
    in_use: AtomicU64,
    /// Units used beyond their charge, which wait for room to be charged. Kept without an upper
    /// bound: debt that is dropped would be free use.
    debt: AtomicU64,
    /// The whole limit, in all regions.
    whole: AtomicU64,
    floor: AtomicU64,
    lease: AtomicU64,
    lease_ends_ns: AtomicU64,
    /// End of the time in which the whole limit may be used here, because it is new and not divided
    /// yet.
    open_until_ns: AtomicU64,
    /// True if this node knows its share.
    is_divided: AtomicBool,
    /// Units that this node would hold soon if it needed all there is, see [`ReachWait`].
    reach: AtomicU64,
    /// Units beyond those held for which refused requests were asked to retry, and the time until
    /// which that counts.
    promised: AtomicU64,
    promised_until_ns: AtomicU64,
    /// Units refused since the last [`Self::take_asked`].
    refused: AtomicU64,
    /// Most units in use since the last [`Self::take_asked`].
    peak: AtomicU64,
}

/// Charge to settle or undo later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub(crate) units: u64,
    step: Option<WindowStep>,
}

/// Demand since the last [`Meter::take_asked`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) peak: u64,
    pub(crate) refused: u64,
}

impl Meter {
    /// Creates a meter of charges that count for `window`; with None, until they are given back.
    pub(crate) fn new(window: Option<Duration>) -> Self {
        let window = window.map(|window| {
            let is_minute = window > Duration::from_secs(1);
            let steps = if is_minute { MINUTE_STEPS } else { SECOND_STEPS };
            let length_ns = window.as_nanos() as u64;
            Window::new(length_ns + length_ns / DRIFT, steps)
        });
        Self {
            window,
            in_use: AtomicU64::new(0),
            debt: AtomicU64::new(0),
            whole: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            lease: AtomicU64::new(0),
            lease_ends_ns: AtomicU64::new(0),
            open_until_ns: AtomicU64::new(0),
            is_divided: AtomicBool::new(false),
            reach: AtomicU64::new(0),
            promised: AtomicU64::new(0),
            promised_until_ns: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        }
    }

    /// Charges `units` if the units held have room for them beside all debt.
    ///
    /// # Errors
    /// Returns the nanoseconds until there will be room, as far as is known.
    pub(crate) fn charge(&self, now_ns: u64, units: u64) -> Result<Charge, u64> {
        self.drain(now_ns);
        let held = self.held(now_ns);
        // Debt comes first: a request gets units only where no debt is left.
        if !self.pay_from(now_ns, held) || !self.reserve(now_ns, units) {
            self.refused.fetch_add(units, Ordering::SeqCst);
            return Err(self.wait_ns(now_ns, units, held));
        }
        let step = self.window.as_ref().map(|window| window.note(now_ns, units, &self.in_use));
        Ok(Charge { units, step })
    }

    /// Takes a charge back as if it had never been made.
    pub(crate) fn undo(&self, charge: Charge) {
        self.give_back(charge, charge.units);
    }

    /// Settles the charge of a request that ended. A concurrency slot is free again. Of a rate,
    /// units beyond `used` are given back, and units missing become debt; None leaves the charge as
    /// it is.
    pub(crate) fn settle(&self, charge: Charge, used: Option<u64>) {
        if self.window.is_none() {
            self.give_back(charge, charge.units);
            return;
        }
        let Some(used) = used.map(|used| used.min(UNITS_MAX)) else { return };
        self.give_back(charge, charge.units.saturating_sub(used));
        let lacking = used.saturating_sub(charge.units);
        self.owe(lacking);
    }

    /// Drops charges that no longer count, and charges debt as far as there is room. Call this now
    /// and then: without it, a node without demand would go on to need what it used last.
    pub(crate) fn pay(&self, now_ns: u64) {
        self.drain(now_ns);
        if self.debt.load(Ordering::Relaxed) > 0 {
            self.pay_from(now_ns, self.held(now_ns));
        }
    }

    /// Adds `units` to the debt, which is charged before anything else.
    pub(crate) fn owe(&self, units: u64) {
        if units > 0 && self.window.is_some() {
            self.edit_debt(|debt| debt.saturating_add(units));
        }
    }

    /// Sets the units that this node holds: `floor` permanently, `lease` until `lease_ends_ns`.
    pub(crate) fn hold(&self, floor: u64, lease: u64, lease_ends_ns: u64) {
        // Numbers that go down are stored first, so that no request sees more than the larger
        // state.
        if floor < self.floor.load(Ordering::Relaxed) {
            self.floor.store(floor, Ordering::SeqCst);
        }
        if lease < self.lease.load(Ordering::Relaxed) {
            self.lease.store(lease, Ordering::SeqCst);
        }
        self.lease_ends_ns.store(lease_ends_ns, Ordering::SeqCst);
        self.lease.store(lease, Ordering::SeqCst);
        self.floor.store(floor, Ordering::SeqCst);
    }

    /// Sets the units that this node would hold soon if it needed all there is.
    pub(crate) fn expect(&self, reach: u64) {
        self.reach.store(reach, Ordering::Relaxed);
    }

    /// Returns the nanoseconds until units arrive here that other nodes don't need, and notes that
    /// a refused request will retry for `units` of them; None if they will have no room for it.
    /// Concurrent calls may note too little: it is an estimate.
    pub(crate) fn promise(&self, now_ns: u64, units: u64, wait: &ReachWait) -> Option<u64> {
        let is_over = now_ns >= self.promised_until_ns.load(Ordering::Relaxed);
        let promised = if is_over { 0 } else { self.promised.load(Ordering::Relaxed) };
        let held = self.held(now_ns);
        let coming = self.reach(now_ns).saturating_sub(held).saturating_sub(promised);
        let taken = self.counted().saturating_add(self.debt()).saturating_add(units);
        if !self.is_divided() || coming == 0 || taken > held.saturating_add(coming) {
            return None;
        }
        let wait_ns = wait.wait_ns(now_ns);
        if is_over {
            self.promised.store(0, Ordering::Relaxed);
            self.promised_until_ns.store(now_ns.saturating_add(wait_ns), Ordering::Relaxed);
        }
        self.promised.fetch_add(units, Ordering::Relaxed);
        Some(wait_ns)
    }

    /// Lets the whole limit be used here until `until_ns`, or until three seconds before that if
    /// the limit is divided by then.
    pub(crate) fn open(&self, until_ns: u64) {
        self.open_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// Notes that the units held are this node's share.
    pub(crate) fn divided(&self) {
        if !self.is_divided() {
            let until_ns = self.open_until_ns.load(Ordering::Relaxed);
            // Only once: a repeated share must not shorten the time further.
            self.open_until_ns.store(until_ns.saturating_sub(OPEN_LESS_NS), Ordering::Relaxed);
            self.is_divided.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if this node knows its share.
    pub(crate) fn is_divided(&self) -> bool {
        self.is_divided.load(Ordering::Relaxed)
    }

    /// Returns true if the whole limit may be used here because it is not divided yet.
    pub(crate) fn is_open(&self, now_ns: u64) -> bool {
        now_ns < self.open_until_ns.load(Ordering::Relaxed)
    }

    /// Sets the whole limit, in all regions.
    pub(crate) fn set_whole(&self, whole: u64) {
        self.whole.store(whole.min(UNITS_MAX), Ordering::Relaxed);
    }

    pub(crate) fn whole(&self) -> u64 {
        self.whole.load(Ordering::Relaxed)
    }

    /// Counts `units` as charged at `at_ns`, which may be before this process began.
    pub(crate) fn assume(&self, at_ns: u64, units: u64) {
        if let Some(window) = &self.window {
            self.in_use.fetch_add(units, Ordering::AcqRel);
            window.note(at_ns, units, &self.in_use);
        }
    }

    /// Returns the units that count, each number with its least age in nanoseconds: (age, units).
    pub(crate) fn spent(&self, now_ns: u64) -> Vec<(u64, u64)> {
        self.window.iter().flat_map(|window| window.spent(now_ns)).collect()
    }

    /// Returns the units that are charged and count.
    pub(crate) fn in_use(&self, now_ns: u64) -> u64 {
        self.drain(now_ns);
        self.in_use.load(Ordering::Acquire)
    }

    /// Returns the units that counted at the last charge, without a look at the clock.
    pub(crate) fn counted(&self) -> u64 {
        self.in_use.load(Ordering::SeqCst)
    }

    pub(crate) fn debt(&self) -> u64 {
        self.debt.load(Ordering::SeqCst)
    }

    /// Returns the units that may be in use.
    pub(crate) fn held(&self, now_ns: u64) -> u64 {
        if self.is_open(now_ns) {
            return self.whole();
        }
        let floor = self.floor.load(Ordering::SeqCst);
        if now_ns < self.lease_ends_ns.load(Ordering::SeqCst) {
            floor + self.lease.load(Ordering::SeqCst)
        } else {
            floor
        }
    }

    /// Returns the demand since the last call. All threads see these operations and those that they
    /// read in one order, see [`crate::marks::Marks::set`].
    pub(crate) fn take_asked(&self) -> Asked {
        let in_use = self.counted();
        // Debt needs units as requests do, or it would stay on a node that gets no more requests.
        let needed = in_use.saturating_add(self.debt());
        Asked {
            peak: self.peak.swap(in_use, Ordering::SeqCst).max(needed),
            refused: self.refused.swap(0, Ordering::SeqCst),
        }
    }

    /// Returns true if `peak` is what counts now, and goes on counting until a request changes it.
    pub(crate) fn is_steady(&self, peak: u64) -> bool {
        let in_use = self.counted();
        self.debt() == 0 && in_use == peak && (in_use == 0 || self.window.is_none())
    }

    /// Returns the nanoseconds until all that is charged now has left the window; 0 if nothing is.
    pub(crate) fn reset_ns(&self, now_ns: u64) -> u64 {
        let in_use = self.in_use(now_ns);
        match &self.window {
            Some(window) if in_use > 0 => window.wait_ns(now_ns, in_use).unwrap_or(0),
            _ => 0,
        }
    }

    fn drain(&self, now_ns: u64) {
        if let Some(window) = &self.window {
            window.drain(now_ns, &self.in_use);
        }
    }

    /// Takes `units` if no more are in use afterwards than are held.
    ///
    /// The units held may go down during the call. The thread that lowers them reads the units in
    /// use afterwards, and this function reads the units held again after taking some. All threads
    /// see these operations in one order, so one of both threads notices the other.
    fn reserve(&self, now_ns: u64, units: u64) -> bool {
        let held = self.held(now_ns);
        let taken = self.in_use.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |in_use| {
            in_use.checked_add(units).filter(|sum| *sum <= held)
        });
        let Ok(before) = taken else { return false };
        if before + units > self.held(now_ns) {
            self.in_use.fetch_sub(units, Ordering::SeqCst);
            return false;
        }
        self.peak.fetch_max(before + units, Ordering::SeqCst);
        true
    }

    /// Charges debt as far as there is room. Returns true if no debt is left.
    ///
    /// Units leave the debt before they are charged, so that no unit is charged twice. A request
    /// that comes in between is admitted only where there is room beside the rest of the debt.
    fn pay_from(&self, now_ns: u64, held: u64) -> bool {
        let owed = self.debt.load(Ordering::Acquire);
        if owed == 0 {
            return true;
        }
        let room = held.saturating_sub(self.in_use.load(Ordering::Acquire));
        let before = self.edit_debt(|debt| debt - debt.min(room));
        let part = before.min(room);
        if part == 0 {
            return before == 0;
        }
        if !self.reserve(now_ns, part) {
            self.owe(part);
            return false;
        }
        if let Some(window) = &self.window {
            window.note(now_ns, part, &self.in_use);
        }
        before == part
    }

    /// Changes the debt, and returns what it was before.
    fn edit_debt(&self, change: impl Fn(u64) -> u64) -> u64 {
        let edit = |debt| Some(change(debt));
        self.debt.fetch_update(Ordering::SeqCst, Ordering::SeqCst, edit).unwrap_or_default()
    }

    fn give_back(&self, charge: Charge, units: u64) {
        // Charges that have left the window are out of use already.
        let counted = match (&self.window, charge.step) {
            (Some(window), Some(step)) => window.refund(step, units),
            _ => units,
        };
        self.in_use.fetch_sub(counted, Ordering::SeqCst);
    }

    /// Returns the units that this node would hold soon if it needed all there is.
    fn reach(&self, now_ns: u64) -> u64 {
        // A node without leases has no contact to those that would give it more.
        let has_lease = now_ns < self.lease_ends_ns.load(Ordering::Relaxed);
        if has_lease { self.reach.load(Ordering::Relaxed) } else { 0 }
    }

    /// Returns the nanoseconds until there is room for `units` beside all debt, if no other request
    /// comes.
    ///
    /// Charges that leave the window make room. Debt that takes this room leaves one window later,
    /// so each further window makes as much room as is held, or will be soon.
    fn wait_ns(&self, now_ns: u64, units: u64, held: u64) -> u64 {
        // The share comes within a moment, and no other number is known before.
        if !self.is_divided() && !self.is_open(now_ns) {
            return DIVIDE_WAIT_NS;
        }
        // A slot is free when any request ends, at a time that is not known.
        let Some(window) = &self.window else { return PLACE_WAIT_NS };
        let debt = self.debt();
        let needed = debt.saturating_add(units);
        let held = held.max(self.reach(now_ns));
        // Only a larger share helps, or debt that leaves the window.
        if held == 0 || units > held || (needed > held && held < self.whole()) {
            let windows = if debt == 0 { 0 } else { debt / self.whole().max(1) };
            let wait_ns = windows.saturating_mul(window.round_ns()).max(SHARE_WAIT_NS);
            return wait_ns.min(DEBT_WAIT_MAX_NS);
        }
        let in_use = self.in_use.load(Ordering::Acquire);
        let over = in_use.saturating_add(needed).saturating_sub(held).max(1);
        let windows = (over - 1) / held;
        let wait_ns = window.wait_ns(now_ns, over - windows * held).unwrap_or(SHARE_WAIT_NS);
        windows.saturating_mul(window.round_ns()).saturating_add(wait_ns).min(DEBT_WAIT_MAX_NS)
    }
}

#[cfg(test)]
#[path = "meter_test.rs"]
mod tests;
