//! Limit on this node.

use std::sync::Arc;
use std::time::Duration;

use crate::marks::{MarkPosition, Marks};
use crate::meter::{Charge, Meter};
use crate::reach::ReachWait;
use crate::{LimitKind, LimitTerms, RequestWindow, Scope, Units};

/// Units of a limit that a node holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Units that never expire.
    pub floor: Units,
    /// Units that expire at [`Self::lease_ends_ns`].
    pub lease: Units,
    /// End of the lease, in nanoseconds of [`crate::Quotas::clock_ns`].
    pub lease_ends_ns: u64,
    /// True if this is the node's share that the cluster agreed on. Until the first such share, a
    /// new limit may be used as a whole for a short time, see [`crate::Quotas::open_limits`].
    pub is_share: bool,
    /// Units that the node would hold soon if it needed all there is.
    pub reach: Units,
}

/// Room that a rate limit leaves on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRoom {
    /// The whole limit, in all regions.
    pub limit: u64,
    /// Units that this node would still admit now.
    pub remaining: u64,
    /// Time until all that counts now has left the window.
    pub reset: Duration,
}

/// Usage of a limit on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitUsage {
    /// Units charged within the window; for concurrency, requests in flight.
    pub in_use: Units,
    /// Units that may be in use.
    pub held: Units,
    /// Units used beyond the charge of their request that are not charged yet.
    pub debt: Units,
}

/// Demand on a limit since the last call of [`Limiter::take_demand`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Highest number of units in use at a time.
    pub(crate) peak: Units,
    /// Number of units refused.
    pub(crate) refused: Units,
}

/// Limit with a meter for each kind that it counts.
#[derive(Debug)]
pub(crate) struct Limiter {
    pub(crate) scope: Scope,
    pub(crate) requests: RequestWindow,
    /// True if this node alone enforces the limit.
    pub(crate) is_own: bool,
    meters: [Option<Arc<Meter>>; 3],
    /// Mark to set after each change by a request.
    mark: (Arc<Marks>, MarkPosition),
    /// Time until units arrive that other nodes don't need.
    reach_wait: Arc<ReachWait>,
}

/// Charges of one request to one limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charges([Option<Charge>; 3]);

/// Refusal by one limit: the kind that had no room, with its numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    pub(crate) kind: LimitKind,
    /// Nanoseconds until there will be room.
    pub(crate) wait_ns: u64,
    pub(crate) asked: u64,
    pub(crate) used: u64,
    pub(crate) held: u64,
    pub(crate) whole: u64,
    pub(crate) is_divided: bool,
}

impl Limiter {
    /// Creates a limit by `terms`. Meters of `before` are kept for kinds whose window has not
    /// changed, so that their charges still count, including those of requests in flight. Nothing
    /// is held of other kinds, which may be used as a whole until `open_until_ns`.
    pub(crate) fn new(
        terms: &LimitTerms,
        before: Option<&Self>,
        open_until_ns: u64,
        marks: &Arc<Marks>,
        reach_wait: &Arc<ReachWait>,
    ) -> Self {
        let meters = LimitKind::ALL.map(|kind| {
            terms.whole[kind as usize].map(|whole| {
                // Charges can't be counted over another window, so such a meter starts from zero.
                let is_alike =
                    |before: &&Self| kind.window(before.requests) == kind.window(terms.requests);
                let kept =
                    before.filter(is_alike).and_then(|before| before.meters[kind as usize].clone());
                let meter = kept.unwrap_or_else(|| {
                    let meter = Meter::new(kind.window(terms.requests));
                    meter.open(open_until_ns);
                    Arc::new(meter)
                });
                meter.set_whole(whole);
                meter
            })
        });
        let mark = (Arc::clone(marks), MarkPosition::of(&terms.scope));
        let (scope, requests) = (terms.scope.clone(), terms.requests);
        Self { scope, requests, is_own: false, meters, mark, reach_wait: Arc::clone(reach_wait) }
    }

    /// Turns the limit into one that this node alone enforces: all of it is held permanently.
    pub(crate) fn owned(self) -> Self {
        for meter in self.meters.iter().flatten() {
            meter.hold(meter.whole(), 0, 0);
            meter.divided();
        }
        Self { is_own: true, ..self }
    }

    /// Returns how many of `tokens` to charge. A guess beyond `said`, the tokens that the request
    /// names itself, is bounded by the whole limit: a small limit would otherwise refuse all
    /// requests that leave their length open.
    pub(crate) fn most(&self, tokens: u64, said: u64) -> u64 {
        let whole = self.meter(LimitKind::TokenRate).map_or(u64::MAX, |meter| meter.whole());
        tokens.min(whole.max(said))
    }

    /// Charges all kinds or none.
    ///
    /// # Errors
    /// Returns the first kind that had no room; nothing is charged then.
    pub(crate) fn charge(&self, now_ns: u64, tokens: u64) -> Result<Charges, Full> {
        let mut charges = Charges([None; 3]);
        // Concurrency first: a slot is given back without a trace.
        for kind in [LimitKind::Concurrency, LimitKind::RequestRate, LimitKind::TokenRate] {
            let Some(meter) = self.meter(kind) else { continue };
            let units = if kind == LimitKind::TokenRate { tokens } else { 1 };
            match meter.charge(now_ns, units) {
                Ok(charge) => charges.0[kind as usize] = Some(charge),
                Err(wait_ns) => {
                    let promised = meter.promise(now_ns, units, &self.reach_wait);
                    // Sets the mark, too.
                    self.undo(charges);
                    return Err(Full {
                        kind,
                        wait_ns: promised.unwrap_or(wait_ns),
                        asked: units,
                        used: meter.counted(),
                        held: meter.held(now_ns),
                        whole: meter.whole(),
                        is_divided: meter.is_divided(),
                    });
                }
            }
        }
        self.mark();
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
                meter.expect(holding.reach[kind]);
                if holding.is_share {
                    meter.divided();
                }
            }
        }
    }

    /// Returns true if any kind may be used as a whole because it is not divided yet.
    pub(crate) fn is_open(&self, now_ns: u64) -> bool {
        LimitKind::ALL.into_iter().filter_map(|kind| self.meter(kind)).any(|m| m.is_open(now_ns))
    }

    /// Returns the room of a rate on this node; None if the limit does not count that kind.
    pub(crate) fn room(&self, now_ns: u64, kind: LimitKind) -> Option<RateRoom> {
        let meter = self.meter(kind)?;
        let used = meter.in_use(now_ns).saturating_add(meter.debt());
        Some(RateRoom {
            limit: meter.whole(),
            remaining: meter.held(now_ns).saturating_sub(used),
            reset: Duration::from_nanos(meter.reset_ns(now_ns)),
        })
    }

    /// Returns true if the rate of requests or of tokens is limited.
    pub(crate) fn limits_rates(&self) -> bool {
        self.meter(LimitKind::RequestRate).is_some() || self.limits_tokens()
    }

    /// Charges debt as far as there is room.
    pub(crate) fn pay(&self, now_ns: u64) {
        LimitKind::ALL.into_iter().filter_map(|kind| self.meter(kind)).for_each(|m| m.pay(now_ns));
    }

    /// Notes that the limit was used, see [`Marks::set`].
    pub(crate) fn mark(&self) {
        let (marks, place) = &self.mark;
        marks.set(*place);
    }

    /// Returns true if the next [`Self::take_demand`] will find what this one found, unless the
    /// limit is marked by then: nothing was refused, nothing is owed, and nothing in use is about
    /// to leave a window.
    pub(crate) fn is_steady(&self, demand: &Demand) -> bool {
        LimitKind::ALL.into_iter().all(|kind| {
            let is_steady = |meter: &Meter| meter.is_steady(demand.peak[kind]);
            demand.refused[kind] == 0 && self.meter(kind).is_none_or(is_steady)
        })
    }

    /// Returns true if any unit is used and not charged yet.
    pub(crate) fn owes(&self) -> bool {
        LimitKind::ALL.into_iter().filter_map(|kind| self.meter(kind)).any(|m| m.debt() > 0)
    }

    /// Adds to the debt.
    pub(crate) fn owe(&self, units: Units) {
        for kind in LimitKind::ALL {
            if let Some(meter) = self.meter(kind) {
                meter.owe(units[kind]);
            }
        }
    }

    /// Returns the tokens that are used and not charged yet.
    pub(crate) fn tokens_owed(&self) -> u64 {
        self.meter(LimitKind::TokenRate).map_or(0, Meter::debt)
    }

    /// Returns true if tokens are limited.
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

    pub(crate) fn usage(&self, now_ns: u64) -> LimitUsage {
        LimitUsage {
            in_use: self.each(|meter| meter.in_use(now_ns)),
            held: self.each(|meter| meter.held(now_ns)),
            debt: self.each(Meter::debt),
        }
    }

    /// Returns the units that counted at the last charge, without a look at the clock.
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
        self.mark();
    }
}
