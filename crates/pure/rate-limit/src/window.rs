//! Sliding window of charges of the last second or minute, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::UNITS_MAX;

const VALUE_BITS: u32 = 40;
const TAG_MASK: u64 = (1 << (64 - VALUE_BITS)) - 1;

/// Highest number of steps by which a slot may be ahead of a reader that was held up: a minute for
/// a window of requests, half an hour for one of tokens.
const AHEAD_MAX: u64 = 1 << 12;

/// Charges by their time. Time is cut into steps, and a ring holds one slot for each step of the
/// window and one more. So a charge counts for at least the window, and for at most one step more.
///
/// A slot is one number: its step (the tag) and the sum of the charges. The first thread in a new
/// step takes the charges of the oldest one out, by a swap that only one thread can win. A reader
/// that was held up finds a tag newer than its own and leaves that slot alone.
#[derive(Debug)]
pub(crate) struct Window {
    step_ns: u64,
    slots: Box<[AtomicU64]>,
    /// Step up to which old charges were taken out.
    drained: AtomicU64,
}

/// Slot and step of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowStep {
    slot: u32,
    tag: u32,
}

impl Window {
    /// Creates a window of `length_ns`, cut into `steps`.
    pub(crate) fn new(length_ns: u64, steps: u64) -> Self {
        let slots = (0..=steps).map(|step| AtomicU64::new(pack(step, 0))).collect();
        Self { step_ns: length_ns.div_ceil(steps).max(1), slots, drained: AtomicU64::new(0) }
    }

    /// Returns the longest time in which all units of the window are charged again and leave it:
    /// the window, and a step in which no thread may have looked.
    pub(crate) fn round_ns(&self) -> u64 {
        self.step_ns * (self.slots.len() as u64 + 1)
    }

    /// Takes charges that no longer count at `now_ns` out of `in_use`.
    pub(crate) fn drain(&self, now_ns: u64, in_use: &AtomicU64) {
        let step = now_ns / self.step_ns;
        let drained = self.drained.load(Ordering::Acquire);
        if drained >= step {
            return;
        }
        // One round is enough: older steps used the same slots.
        let first = (drained + 1).max((step + 1).saturating_sub(self.slots.len() as u64));
        for step in first..=step {
            let slot = self.slot(step);
            let taken = slot.fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
                is_older(held, step).then_some(pack(step, 0))
            });
            if let Ok(held) = taken {
                in_use.fetch_sub(value(held), Ordering::AcqRel);
            }
        }
        // After the slots: a thread that sees this step finds older charges taken out.
        self.drained.fetch_max(step, Ordering::AcqRel);
    }

    /// Notes a charge that is already part of `in_use`.
    pub(crate) fn note(&self, now_ns: u64, units: u64, in_use: &AtomicU64) -> WindowStep {
        let step = now_ns / self.step_ns;
        let place = step % self.slots.len() as u64;
        let slot = &self.slots[place as usize];
        let mut held = slot.load(Ordering::Acquire);
        loop {
            let (next, gone) = if is_older(held, step) {
                (pack(step, units), value(held))
            } else {
                // The same step, or a later one if this thread was held up for a whole window.
                (held + units, 0)
            };
            match slot.compare_exchange_weak(held, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    in_use.fetch_sub(gone, Ordering::AcqRel);
                    return WindowStep { slot: place as u32, tag: (next >> VALUE_BITS) as u32 };
                }
                Err(now) => held = now,
            }
        }
    }

    /// Gives back a part of a charge if it still counts. Returns the units given back.
    pub(crate) fn refund(&self, step: WindowStep, units: u64) -> u64 {
        let slot = &self.slots[step.slot as usize];
        let refunded = slot.fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
            // With another tag the charge has left the window, and there is nothing to give back.
            (held >> VALUE_BITS == u64::from(step.tag)).then(|| held - units.min(value(held)))
        });
        refunded.map_or(0, |held| units.min(value(held)))
    }

    /// Returns the nanoseconds until `units` of those that count at `now_ns` have left the window;
    /// None if fewer count.
    pub(crate) fn wait_ns(&self, now_ns: u64, units: u64) -> Option<u64> {
        let (now, count) = (now_ns / self.step_ns, self.slots.len() as u64);
        let mut gone = 0;
        for step in (now + 1).saturating_sub(count)..=now {
            let held = self.slot(step).load(Ordering::Relaxed);
            if held >> VALUE_BITS == step & TAG_MASK {
                gone += value(held);
            }
            if gone >= units {
                return Some(((step + count) * self.step_ns).saturating_sub(now_ns));
            }
        }
        None
    }

    /// Returns the charges that count at `now_ns`: (least age in nanoseconds, units).
    pub(crate) fn spent(&self, now_ns: u64) -> impl Iterator<Item = (u64, u64)> {
        let (now, count) = (now_ns / self.step_ns, self.slots.len() as u64);
        ((now + 1).saturating_sub(count)..=now).filter_map(move |step| {
            let held = self.slot(step).load(Ordering::Relaxed);
            let counts = held >> VALUE_BITS == step & TAG_MASK && value(held) > 0;
            let age_ns = now_ns.saturating_sub((step + 1) * self.step_ns);
            counts.then(|| (age_ns, value(held)))
        })
    }

    fn slot(&self, step: u64) -> &AtomicU64 {
        &self.slots[(step % self.slots.len() as u64) as usize]
    }
}

fn pack(step: u64, value: u64) -> u64 {
    (step & TAG_MASK) << VALUE_BITS | value
}

fn value(held: u64) -> u64 {
    held & UNITS_MAX
}

/// Returns true if a slot is of a step before `step`. Tags wrap around after days, and a limit may
/// be idle for as long, or be new while the clock is old. So every tag that is not a little later
/// is earlier.
fn is_older(held: u64, step: u64) -> bool {
    let behind = (step & TAG_MASK).wrapping_sub(held >> VALUE_BITS) & TAG_MASK;
    behind != 0 && behind < TAG_MASK - AHEAD_MAX
}
