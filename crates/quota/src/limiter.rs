//! One limit, as this node has it.

use std::sync::Arc;

use crate::meter::{Charge, Meter};
use crate::{LimitKind, Scope, Units};

/// What a node holds of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Of what never expires.
    pub floor: Units,
    /// Of what it has until [`Self::lease_ends_ns`].
    pub lease: Units,
    /// When the lease ends, in nanoseconds since the clock of [`crate::Quotas`] began.
    pub lease_ends_ns: u64,
}

/// How a limit stands on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Charged within the window, or running.
    pub in_use: Units,
    /// What may be.
    pub held: Units,
    /// Used beyond what was charged, and not charged yet.
    pub debt: Units,
}

/// What was asked of a limit since somebody looked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// The most that was in use at a time.
    pub peak: Units,
    /// What was refused.
    pub refused: Units,
}

/// One limit: a meter for each kind that it limits.
#[derive(Debug)]
pub(crate) struct Limiter {
    pub(crate) scope: Scope,
    meters: [Option<Arc<Meter>>; 3],
}

/// What one request charged to one limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charges([Option<Charge>; 3]);

/// Which kind had no room, and in how many nanoseconds it will.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    pub(crate) kind: LimitKind,
    pub(crate) wait_ns: u64,
    pub(crate) fits: bool,
}

impl Limiter {
    /// A limit that allows so much. What was charged to the one `before` of the kinds that it still
    /// limits counts on, also to whoever charges that one yet; of other kinds nothing is held.
    pub(crate) fn new(scope: Scope, whole: [Option<u64>; 3], before: Option<&Self>) -> Self {
        let meters = LimitKind::ALL.map(|kind| {
            whole[kind as usize].map(|whole| {
                let kept = before.and_then(|before| before.meters[kind as usize].clone());
                let meter = kept.unwrap_or_else(|| Arc::new(Meter::new(kind)));
                meter.set_whole(whole);
                meter
            })
        });
        Self { scope, meters }
    }

    /// Charges all kinds or none.
    ///
    /// # Errors
    /// The first kind that had no room.
    pub(crate) fn charge(&self, now_ns: u64, tokens: u64) -> Result<Charges, Full> {
        let mut charges = Charges([None; 3]);
        // A place first: it is given back without a trace.
        for kind in [LimitKind::Concurrency, LimitKind::RequestRate, LimitKind::TokenRate] {
            let Some(meter) = self.meter(kind) else { continue };
            let units = if kind == LimitKind::TokenRate { tokens } else { 1 };
            match meter.charge(now_ns, units) {
                Ok(charge) => charges.0[kind as usize] = Some(charge),
                Err(wait_ns) => {
                    self.undo(charges);
                    return Err(Full { kind, wait_ns, fits: units <= meter.whole() });
                }
            }
        }
        Ok(charges)
    }

    pub(crate) fn undo(&self, charges: Charges) {
        self.for_each(charges, |_, meter, charge| meter.undo(charge));
    }

    pub(crate) fn settle(&self, charges: Charges, tokens: Option<u64>) {
        self.for_each(charges, |kind, meter, charge| {
            let used = if kind == LimitKind::TokenRate { tokens } else { None };
            meter.settle(charge, used);
        });
    }

    pub(crate) fn hold(&self, holding: &Holding) {
        for kind in LimitKind::ALL {
            if let Some(meter) = self.meter(kind) {
                meter.hold(holding.floor[kind], holding.lease[kind], holding.lease_ends_ns);
            }
        }
    }

    /// Charges what is owed as far as there is room.
    pub(crate) fn pay(&self, now_ns: u64) {
        LimitKind::ALL.into_iter().filter_map(|kind| self.meter(kind)).for_each(|m| m.pay(now_ns));
    }

    /// Adds to what is owed.
    pub(crate) fn owe(&self, units: Units) {
        for kind in LimitKind::ALL {
            if let Some(meter) = self.meter(kind) {
                meter.owe(units[kind]);
            }
        }
    }

    /// Tokens that are used and not charged yet.
    pub(crate) fn tokens_owed(&self) -> u64 {
        self.meter(LimitKind::TokenRate).map_or(0, Meter::debt)
    }

    /// Whether tokens are limited.
    pub(crate) fn limits_tokens(&self) -> bool {
        self.meter(LimitKind::TokenRate).is_some()
    }

    pub(crate) fn assume(&self, now_ns: u64, units: Units) {
        for kind in LimitKind::ALL {
            if let Some(meter) = self.meter(kind) {
                meter.assume(now_ns, units[kind]);
            }
        }
    }

    pub(crate) fn whole(&self) -> [Option<u64>; 3] {
        LimitKind::ALL.map(|kind| self.meter(kind).map(Meter::whole))
    }

    pub(crate) fn spent(&self, now_ns: u64, kind: LimitKind) -> Vec<(u64, u64)> {
        self.meter(kind).map(|meter| meter.spent(now_ns)).unwrap_or_default()
    }

    pub(crate) fn usage(&self, now_ns: u64) -> Usage {
        Usage {
            in_use: self.each(|meter| meter.in_use(now_ns)),
            held: self.each(|meter| meter.held(now_ns)),
            debt: self.each(Meter::debt),
        }
    }

    /// What counts, or counted when anything was charged last.
    pub(crate) fn in_use(&self) -> Units {
        self.each(Meter::counted)
    }

    pub(crate) fn take_demand(&self) -> Demand {
        let mut demand = Demand::default();
        for kind in LimitKind::ALL {
            if let Some(asked) = self.meter(kind).map(Meter::take_asked) {
                demand.peak[kind] = asked.peak;
                demand.refused[kind] = asked.refused;
            }
        }
        demand
    }

    fn meter(&self, kind: LimitKind) -> Option<&Meter> {
        self.meters[kind as usize].as_deref()
    }

    fn each(&self, of: impl Fn(&Meter) -> u64) -> Units {
        Units::each(|kind| self.meter(kind).map_or(0, &of))
    }

    fn for_each(&self, charges: Charges, each: impl Fn(LimitKind, &Meter, Charge)) {
        for kind in LimitKind::ALL {
            if let (Some(meter), Some(charge)) = (self.meter(kind), charges.0[kind as usize]) {
                each(kind, meter, charge);
            }
        }
    }
}
