//! One limit of one kind, as this node has it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::UNITS_MAX;
use crate::window::{Step, Window};

/// Steps of a window of a minute: half a second each, so that less than 1 % is lost by the step that
/// a charge may count too long.
const MINUTE_STEPS: u64 = 120;
/// Steps of a window of a second: 16 ms each.
const SECOND_STEPS: u64 = 64;
/// One part in so many that a clock may be too fast: twice what time daemons slew by.
const DRIFT: u64 = 1_000;
/// When to ask again for a place if nothing is known of how long requests take.
const PLACE_WAIT_NS: u64 = 1_000_000_000;
/// When to ask again for more than there is by what this node holds: it may hold more by then.
const SHARE_WAIT_NS: u64 = 3_000_000_000;
/// How much sooner the whole limit may no longer be used once this node has its share. What is left is
/// for its needs to become known.
const OPEN_LESS_NS: u64 = 3_000_000_000;
/// When to ask again while the limit is being divided.
const DIVIDE_WAIT_NS: u64 = 1_000_000_000;
/// The longest wait that is told.
const DEBT_WAIT_MAX_NS: u64 = 24 * 3_600 * 1_000_000_000;

/// Counts what is charged against what is held. Any thread charges at any time; one task says what
/// is held.
#[derive(Debug)]
pub(crate) struct Meter {
    window: Option<Window>,
    /// Charges that count now.
    in_use: AtomicU64,
    /// What was used beyond its charge and waits for room to be charged. Kept whole, however much it
    /// is: what was forgiven would be free.
    debt: AtomicU64,
    /// The whole limit, in all regions.
    whole: AtomicU64,
    floor: AtomicU64,
    lease: AtomicU64,
    lease_ends_ns: AtomicU64,
    /// Until then the whole limit may be used here: the limit is new and not divided yet.
    open_until_ns: AtomicU64,
    /// Whether this node has been told its share.
    is_divided: AtomicBool,
    /// What was refused since somebody looked.
    refused: AtomicU64,
    /// The most in use since somebody looked.
    peak: AtomicU64,
}

/// A charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub(crate) units: u64,
    step: Option<Step>,
}

/// What was asked for since somebody looked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) peak: u64,
    pub(crate) refused: u64,
}

impl Meter {
    /// A meter of charges that count for `window`, or until they are given back.
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
            refused: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        }
    }

    /// Charges `units` if what is held has room for them beside all debt.
    ///
    /// # Errors
    /// In how many nanoseconds there will be room, as far as is known.
    pub(crate) fn charge(&self, now_ns: u64, units: u64) -> Result<Charge, u64> {
        self.drain(now_ns);
        let held = self.held(now_ns);
        if !self.pay_from(now_ns, held) || !self.reserve(now_ns, units) {
            self.refused.fetch_add(units, Ordering::Relaxed);
            return Err(self.wait_ns(now_ns, units, held));
        }
        let step = self.window.as_ref().map(|window| window.note(now_ns, units, &self.in_use));
        Ok(Charge { units, step })
    }

    /// Takes a charge back as if it had never been.
    pub(crate) fn undo(&self, charge: Charge) {
        self.give_back(charge, charge.units);
    }

    /// The request ended and used `used`. A place is free again; what was charged too much for a
    /// rate is given back, and what was charged too little is charged when there is room.
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

    /// Takes out what no longer counts, and charges debt as far as there is room. To be called now and
    /// then, so that both become less also while nobody asks for anything: a node without demand would
    /// otherwise go on to need what it used last.
    pub(crate) fn pay(&self, now_ns: u64) {
        self.drain(now_ns);
        if self.debt.load(Ordering::Relaxed) > 0 {
            self.pay_from(now_ns, self.held(now_ns));
        }
    }

    /// Adds to what has to be charged before anything else.
    pub(crate) fn owe(&self, units: u64) {
        if units > 0 && self.window.is_some() {
            self.edit_debt(|debt| debt.saturating_add(units));
        }
    }

    /// What this node holds from now on: the floor for ever, the lease until then.
    pub(crate) fn hold(&self, floor: u64, lease: u64, lease_ends_ns: u64) {
        // What goes down goes first, so that no request sees more than either of both states.
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

    /// Lets the whole limit be used here until `until_ns`, or three seconds less if it is divided by
    /// then.
    pub(crate) fn open(&self, until_ns: u64) {
        self.open_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// What is held is this node's share.
    pub(crate) fn divided(&self) {
        if !self.is_divided() {
            let until_ns = self.open_until_ns.load(Ordering::Relaxed);
            self.open_until_ns.store(until_ns.saturating_sub(OPEN_LESS_NS), Ordering::Relaxed);
            self.is_divided.store(true, Ordering::Relaxed);
        }
    }

    /// Whether this node has been told its share.
    pub(crate) fn is_divided(&self) -> bool {
        self.is_divided.load(Ordering::Relaxed)
    }

    /// Whether the whole limit may be used here, as nobody has divided it yet.
    pub(crate) fn is_open(&self, now_ns: u64) -> bool {
        now_ns < self.open_until_ns.load(Ordering::Relaxed)
    }

    /// The whole limit, in all regions.
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

    /// What counts, with how many nanoseconds ago it was charged at least.
    pub(crate) fn spent(&self, now_ns: u64) -> Vec<(u64, u64)> {
        self.window.iter().flat_map(|window| window.spent(now_ns)).collect()
    }

    /// What is charged and counts.
    pub(crate) fn in_use(&self, now_ns: u64) -> u64 {
        self.drain(now_ns);
        self.in_use.load(Ordering::Acquire)
    }

    /// What counts, or counted when anything was charged last.
    pub(crate) fn counted(&self) -> u64 {
        self.in_use.load(Ordering::SeqCst)
    }

    pub(crate) fn debt(&self) -> u64 {
        self.debt.load(Ordering::Relaxed)
    }

    /// What may be in use.
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

    pub(crate) fn take_asked(&self) -> Asked {
        let in_use = self.in_use.load(Ordering::Relaxed);
        // Debt needs what is held as requests do, or it would stay where nobody asks any more.
        let needed = in_use.saturating_add(self.debt());
        Asked {
            peak: self.peak.swap(in_use, Ordering::Relaxed).max(needed),
            refused: self.refused.swap(0, Ordering::Relaxed),
        }
    }

    /// When all that is charged now will have left the window, nanoseconds from now.
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

    /// Takes `units` if that leaves no more in use than is held.
    ///
    /// What is held may go down meanwhile. Whoever lowers it reads afterwards what is in use, and
    /// here what is held is read again after it was taken: in the one order that all threads see of
    /// these, one of both notices the other.
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
        self.peak.fetch_max(before + units, Ordering::Relaxed);
        true
    }

    /// Charges debt as far as there is room; whether none is left.
    ///
    /// What is to be paid leaves the debt before it is charged, so that it is never charged twice. Who
    /// asks in between is let in only where there is room beside the rest.
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

    /// Changes what is owed, and returns what was before.
    fn edit_debt(&self, change: impl Fn(u64) -> u64) -> u64 {
        let edit = |debt| Some(change(debt));
        self.debt.fetch_update(Ordering::AcqRel, Ordering::Acquire, edit).unwrap_or_default()
    }

    fn give_back(&self, charge: Charge, units: u64) {
        let counted = match (&self.window, charge.step) {
            (Some(window), Some(step)) => window.refund(step, units),
            _ => units,
        };
        self.in_use.fetch_sub(counted, Ordering::AcqRel);
    }

    /// In how many nanoseconds there is room for `units` beside all debt, if nobody else asks.
    ///
    /// A node that holds less than the limit may hold more by then, so the wait is the least there can
    /// be. Charges that leave the window make room, and debt that takes it leaves one window later: so
    /// each further window makes as much room as is held.
    fn wait_ns(&self, now_ns: u64, units: u64, held: u64) -> u64 {
        if !self.is_divided() && !self.is_open(now_ns) {
            return DIVIDE_WAIT_NS;
        }
        let Some(window) = &self.window else { return PLACE_WAIT_NS };
        let debt = self.debt();
        let needed = debt.saturating_add(units);
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
