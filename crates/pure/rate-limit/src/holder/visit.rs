//! Visits of a holder to limits: what requests may use of a limit, what this process needs of it,
//! and whether a statement has to name it.

use super::{Holder, INTRODUCE_AGAIN_MS, STATEMENT_BYTES_MAX};
use crate::need::{Felt, busy, needed, recent};
use crate::pace::StatementTurn;
use crate::rows::{Judged, Known, Visits};
use crate::seen::{LimitView, least};
use crate::statement::LINES_MAX;
use crate::worth::{Worth, can_give, worth};
use crate::{Holding, LimitKind, ShareLine, Shares, Units};

/// Time beside that of the statements of the node that needs units and of the one that gives them:
/// for looks at both, and for a statement that the other one makes just then.
const NOTICE_NS: u64 = 500_000_000;
/// Bounds of the time for which clients are asked to wait for units of other nodes. HTTP has whole
/// seconds, and the other node may be further from the leader than this one.
const REACH_WAIT_NS: (u64, u64) = (1_000_000_000, 10_000_000_000);

impl Holder {
    /// Visits the limits of this look that may have changed. Returns lines for the next statement,
    /// and true if another process or a request waits for it.
    pub(super) fn visit_rows(
        &mut self,
        now_ns: u64,
        shares: &Shares,
        turn: StatementTurn,
        is_renewal: bool,
    ) -> (Vec<ShareLine>, bool) {
        let visits = match turn {
            StatementTurn::No => Visits::Due,
            StatementTurn::Urgent | StatementTurn::Yes if is_renewal => Visits::Renew,
            StatementTurn::Urgent | StatementTurn::Yes => Visits::Judge,
        };
        let (mut lines, mut bytes, mut is_urgent) = (Vec::new(), 0, false);
        let mut round = self.rows.round();
        while let Some(place) = self.rows.next(round.clone(), visits) {
            round.start = place + 1;
            let known = self.rows.begin(place, &self.run, shares);
            let is_steady = self.feel(place, &known);
            let seen = self.bounded(place, &known.seen, shares);
            // Before the line is made: what a statement gives up must not be charged any more.
            self.follow(place, &seen, &known, now_ns);
            let mut judged = None;
            if visits != Visits::Due {
                let in_use = known.in_use();
                let worth = self.worth(place, (&seen, in_use), (now_ns, is_renewal));
                judged = Some(self.judged(&seen, worth));
                if worth >= Worth::Line {
                    is_urgent |= worth == Worth::Urgent;
                    let line = self.line(place, &seen, in_use);
                    bytes += line.bytes_about();
                    lines.push(line);
                }
            }
            // The time for which this process has waited without success changes even if nothing
            // else does.
            let is_steady = is_steady && self.rows.row(place).waiting.is_none();
            self.rows.end(place, known, (is_steady, judged));
            if lines.len() >= LINES_MAX || bytes >= STATEMENT_BYTES_MAX {
                break;
            }
        }
        (lines, is_urgent)
    }

    /// Returns the view of a limit, bounded by what this process is about to do and knows.
    fn bounded(&self, place: usize, seen: &LimitView, shares: &Shares) -> LimitView {
        let mut seen = *seen;
        // Others wait, and this process needs less than it stated last: it gives up the difference
        // with the statement of the new need, and not with a later one.
        let (need, told) = (self.lease_need(place, &seen), seen.need.unwrap_or_default());
        for kind in LimitKind::ALL {
            if seen.is_wanted[kind as usize] && need[kind] < told[kind] {
                let fair = self.rows.target(place, &self.run, shares, (kind, need[kind]));
                seen.lease_most[kind] = seen.lease_most[kind].min(fair);
            }
        }
        if self.is_leaving {
            seen.lease_most = Units::NONE;
        }
        // Charges of the process before to a floor may still count, so no floor is given away yet.
        for kind in LimitKind::ALL {
            if !self.known[seen.requests as usize][kind as usize] {
                seen.floor_most[kind] = u64::MAX;
            }
        }
        seen
    }

    /// Lets requests use what this process holds of a limit.
    fn follow(&mut self, place: usize, seen: &LimitView, known: &Known, now_ns: u64) {
        let reach = self.reach(place, seen, now_ns);
        let Some(limiter) = &known.limiter else { return };
        let scope = &self.rows.row(place).scope;
        let (mut floor, mut lease) = seen.kept();
        let pending = self.pending.iter().filter_map(|pending| pending.lines.get(scope));
        for (floor_said, lease_said) in pending {
            floor = least(floor, *floor_said);
            lease = least(lease, *lease_said);
        }
        if let Some(cap) = self.floor_caps.get(scope) {
            floor = least(floor, *cap);
        }
        let is_known = &self.known[seen.requests as usize];
        let floor = Units::each(|kind| if is_known[kind as usize] { floor[kind] } else { 0 });
        let is_share = seen.is_divided && now_ns < self.ends_ns;
        // Nothing comes soon to a process that waits until charges of the one before are known.
        let reach = Units::each(|kind| if is_known[kind as usize] { reach[kind] } else { 0 });
        limiter.hold(&Holding { floor, lease, lease_ends_ns: self.ends_ns, is_share, reach });
        limiter.pay(now_ns);
    }

    /// Updates the need of a limit by what requests asked for. Returns false if the next look will
    /// find another need or demand even without a request.
    fn feel(&mut self, place: usize, known: &Known) -> bool {
        let (seen, is_tick) = (&known.seen, self.is_tick);
        let demand = known.limiter.as_ref().map(|limiter| limiter.take_demand());
        let demand = demand.unwrap_or_default();
        let row = self.rows.row_mut(place);
        row.recent = Units::each(|kind| recent(row.recent[kind], demand.peak[kind], is_tick));
        let need = Units::each(|kind| {
            let felt = Felt {
                before: row.need[kind],
                recent: row.recent[kind],
                refused: demand.refused[kind],
                is_wanted: seen.is_wanted[kind as usize],
                is_tick,
            };
            needed(&felt).min(seen.most[kind])
        });
        let before = std::mem::replace(&mut row.need, need);
        let is_least = LimitKind::ALL.into_iter().all(|kind| need[kind] <= busy(row.recent[kind]));
        need == before
            && row.recent == demand.peak
            && (is_tick || is_least)
            && known.limiter.as_ref().is_none_or(|limiter| limiter.is_steady(&demand))
    }

    /// Returns the units that this process would hold soon if it needed all there is. If it has
    /// waited for them without success, returns the units that it holds.
    fn reach(&mut self, place: usize, seen: &LimitView, now_ns: u64) -> Units {
        let held = Units::each(|kind| seen.floor[kind].saturating_add(seen.lease[kind]));
        let patience_ns = 3 * self.reach_takes_ns();
        let row = self.rows.row_mut(place);
        let waits = |kind| row.need[kind] > held[kind] && seen.reach[kind] > held[kind];
        if !LimitKind::ALL.into_iter().any(waits) {
            row.waiting = None;
            return seen.reach;
        }
        let (since_ns, had) = *row.waiting.get_or_insert((now_ns, held));
        if had != held {
            row.waiting = Some((now_ns, held));
        }
        if had == held && now_ns > since_ns + patience_ns { held } else { seen.reach }
    }

    /// Returns the time until another node has learned of a need from the log, and this node of the
    /// units that the other one gives up.
    pub(super) fn reach_takes_ns(&self) -> u64 {
        (2 * self.says_ns + NOTICE_NS).clamp(REACH_WAIT_NS.0, REACH_WAIT_NS.1)
    }

    fn worth(
        &mut self,
        place: usize,
        (seen, in_use): (&LimitView, Units),
        (now_ns, is_renewal): (u64, bool),
    ) -> Worth {
        if seen.need.is_none() {
            let may = !self.is_leaving && self.may_introduce(place, now_ns);
            return if may { Worth::Urgent } else { Worth::Nothing };
        }
        self.rows.row_mut(place).introduced = None;
        if self.is_leaving {
            let is_told = self.left.contains(&self.rows.row(place).scope);
            return if !is_told && can_give(seen, in_use) { Worth::Urgent } else { Worth::Nothing };
        }
        worth(seen, self.lease_need(place, seen), in_use, is_renewal)
    }

    /// Returns when a limit has to be judged again if nothing changes.
    fn judged(&self, seen: &LimitView, worth: Worth) -> Judged {
        match worth {
            // It depends on the time whether a limit is named for the first time.
            _ if self.is_leaving || seen.need.is_none() => Judged::Anew,
            Worth::Nothing => Judged::Never,
            Worth::AtRenewal => Judged::AtRenewal,
            // The line may come to nothing.
            Worth::Line | Worth::Urgent => Judged::Anew,
        }
    }

    /// Returns true if a limit of which this process has no lease should be named. If the last
    /// statement that named it was applied, there was no room for it.
    fn may_introduce(&self, place: usize, now_ns: u64) -> bool {
        self.rows.row(place).introduced.is_none_or(|(serial, at_ns)| {
            self.applied < serial || now_ns >= at_ns + INTRODUCE_AGAIN_MS * 1_000_000
        })
    }

    fn line(&self, place: usize, seen: &LimitView, in_use: Units) -> ShareLine {
        let (floor, lease) = seen.said(in_use);
        // A lease that is kept as a whole is sent as the maximum, since an earlier statement may
        // have raised it by the time this one is applied.
        let keeps_all = |kind| lease[kind] == seen.lease[kind] && !self.is_leaving;
        let lease = Units::each(|kind| if keeps_all(kind) { u64::MAX } else { lease[kind] });
        let scope = self.rows.row(place).scope.clone();
        ShareLine { scope, floor, lease, need: self.lease_need(place, seen) }
    }

    fn lease_need(&self, place: usize, seen: &LimitView) -> Units {
        let need = self.rows.row(place).need;
        let floor = |kind| if self.is_leaving { u64::MAX } else { seen.floor[kind] };
        Units::each(|kind| need[kind].saturating_sub(floor(kind)))
    }
}
